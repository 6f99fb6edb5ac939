"""The PyTorch model: the reference, or on a CPU that supports it, the same with bfloat16 products."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.inference.drafts import DraftCount
from undivided.inference.engines.contract import BFLOAT16, batch_by_length, follows_drafts
from undivided.inference.engines.torch_drafts import search_with_drafts
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.search import Constraint, search
from undivided.models import Transformer
from undivided.nn.attention import is_recording
from undivided.nn.backend import PackedWeights
from undivided.nn.device import ThreadPool


class TorchEngine:
    """Runs the model as it is; with `bfloat16` all matrix products but the logits are computed in bfloat16 (CPU only)."""

    is_parallel = False
    has_shortlist = False

    def __init__(self, artifact: Artifact, bfloat16: bool = False) -> None:
        self.name = BFLOAT16 if bfloat16 else "torch"
        self.artifact, self.model = artifact, artifact.model
        self.drafts = None if artifact.draft is None else DraftCount()
        self.device = artifact.device
        self._pool, self._packed = ThreadPool(1), PackedWeights(bfloat16)

    @property
    def reference(self) -> TorchEngine:
        """Itself."""
        return self

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
        constraints: Callable[[Sequence[int]], Constraint] | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Batch by batch, sorted by length; on a CPU several at once, each on one thread.

        `constraints` gives the constraint of a batch, from the indices of its sources.
        """

        drafted = self.drafts is not None and constraints is None and not is_recording() and follows_drafts(config, prefixes)

        def search_batch(batch: list[int]) -> list[tuple[int, list[Hypothesis]]]:
            rows, begins = ([side[index] for index in batch] for side in (sources, prefixes))
            if drafted:
                return list(zip(batch, self._search_with_drafts(rows, config), strict=True))
            constraint = None if constraints is None else constraints(batch)
            with self._packed.use():
                own_keys = [keys[index] for index in batch]
                results = search(self.model, rows, config, self.device, begins, own_keys, constraint=constraint)
            return list(zip(batch, results, strict=True))

        batches = list(batch_by_length([len(row) for row in sources], _beams(config), self._threads()))
        for done in self._workers(len(batches)).imap(search_batch, batches):
            yield from done

    def _search_with_drafts(self, rows: Sequence[Sequence[int]], config: SearchConfig) -> list[list[Hypothesis]]:
        draft, count = self.artifact.draft, self.drafts
        assert isinstance(self.model, Transformer), "only a Transformer has a draft decoder"
        assert draft is not None, "asked for only where there is one"
        assert count is not None, "asked for only where there is one"
        with self._packed.use():
            return search_with_drafts(self.model, draft, rows, config, self.device, count)

    def _threads(self) -> int:
        """How many batches may run at once; one while attention is recorded, which happens in this thread."""
        return torch.get_num_threads() if self.device.type == "cpu" and not is_recording() else 1

    def _workers(self, batches: int) -> ThreadPool:
        """A thread for each batch that may run at once; this one where a single batch uses them all."""
        if batches < 2 or self._threads() == 1:
            return ThreadPool(1)
        if self._pool.size != self._threads():
            self._pool = ThreadPool(self._threads())
        return self._pool


def _beams(config: SearchConfig) -> int:
    """Hypotheses of a sentence that are followed at once."""
    return config.n_best if config.sample else config.beam_size
