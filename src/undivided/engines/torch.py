"""The PyTorch model: the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from undivided.artifact import Artifact
from undivided.attention import watched
from undivided.batches import budget_bounds
from undivided.config import SearchConfig
from undivided.device import Crew
from undivided.search import Hypothesis, Rule, search

BATCH_TOKENS = 1024
"""Most source tokens of a batch, padding included."""


class TorchEngine:
    """Runs the model as it was trained."""

    name = "torch"
    side_by_side = False
    has_shortlist = False

    def __init__(self, artifact: Artifact) -> None:
        self.model = artifact.model
        self.device = next(artifact.model.parameters()).device
        self._crew = Crew(1)

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
            results = search(self.model, rows, config, self.device, begins, [keys[place] for place in batch], rule=rule)
            return list(zip(batch, results, strict=True))

        batches = list(by_length([len(row) for row in sources]))
        for done in self._workers(len(batches)).flow(found, batches):
            yield from done

    def _workers(self, batches: int) -> Crew:
        """As many as there are threads to compute with; none where one batch needs them all, or somebody watches this thread."""
        threads = torch.get_num_threads()
        if self.device.type != "cpu" or batches < 2 or watched():
            return Crew(1)
        if self._crew.size != threads:
            self._crew = Crew(threads)
        return self._crew


def by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places in batches of like length, the longest first, so that what does not fit fails at once."""
    order = np.argsort(np.asarray(lengths, dtype=np.int64), kind="stable")
    widths = np.asarray(lengths, dtype=np.int64)[order]
    for start, end in reversed(budget_bounds(widths, widths, BATCH_TOKENS)):
        yield order[start:end].tolist()
