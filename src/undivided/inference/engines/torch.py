"""The PyTorch model: the reference, or on a CPU that is far faster so, the same with products of bfloat16."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.inference.engines.contract import ROUNDED, by_length
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.search import Rule, search
from undivided.nn.attention import is_recording
from undivided.nn.backend import PackedWeights
from undivided.nn.device import ThreadPool


class TorchEngine:
    """Runs the model as it is; `rounded`: on a CPU, with the factors of its products rounded, but for those that give logits."""

    side_by_side = False
    has_shortlist = False

    def __init__(self, artifact: Artifact, rounded: bool = False) -> None:
        self.name = ROUNDED if rounded else "torch"
        self.model = artifact.model
        self.device = artifact.device
        self._pool, self._packed = ThreadPool(1), PackedWeights(rounded)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
        rules: Callable[[Sequence[int]], Rule] | None = None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Batch by batch, sorted by length; on a CPU several side by side, each on one thread.

        `rules` gives for the places of a batch what may follow what.
        """

        def found(batch: list[int]) -> list[tuple[int, list[Hypothesis]]]:
            rows, begins = ([side[place] for place in batch] for side in (sources, prefixes))
            rule = None if rules is None else rules(batch)
            with self._packed.use():
                results = search(self.model, rows, config, self.device, begins, [keys[place] for place in batch], rule=rule)
            return list(zip(batch, results, strict=True))

        batches = list(by_length([len(row) for row in sources], _beams(config), self._threads()))
        for done in self._workers(len(batches)).flow(found, batches):
            yield from done

    def _threads(self) -> int:
        """How many batches may be worked on side by side; one where somebody watches this thread."""
        return torch.get_num_threads() if self.device.type == "cpu" and not is_recording() else 1

    def _workers(self, batches: int) -> ThreadPool:
        """As many as there are threads to compute with; none where one batch needs them all."""
        if batches < 2 or self._threads() == 1:
            return ThreadPool(1)
        if self._pool.size != self._threads():
            self._pool = ThreadPool(self._threads())
        return self._pool


def _beams(config: SearchConfig) -> int:
    """How many hypotheses of a sentence are followed."""
    return config.n_best if config.sample else config.beam_size
