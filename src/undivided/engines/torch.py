"""The PyTorch model: the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from undivided.artifact import Artifact
from undivided.batches import budget_bounds
from undivided.config import SearchConfig
from undivided.search import Hypothesis, search

BATCH_TOKENS = 2048
"""Most source tokens of a batch, padding included."""


class TorchEngine:
    """Runs the model as it was trained."""

    name = "torch"
    side_by_side = False
    has_shortlist = False

    def __init__(self, artifact: Artifact) -> None:
        self.model = artifact.model
        self.device = next(artifact.model.parameters()).device

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Batch by batch, sorted by length."""
        for batch in by_length([len(row) for row in sources]):
            rows, begins = ([side[place] for place in batch] for side in (sources, prefixes))
            found = search(self.model, rows, config, self.device, begins, [keys[place] for place in batch])
            yield from zip(batch, found, strict=True)


def by_length(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places in batches of like length, the longest first, so that what does not fit fails at once."""
    order = np.argsort(np.asarray(lengths, dtype=np.int64), kind="stable")
    widths = np.asarray(lengths, dtype=np.int64)[order]
    for start, end in reversed(budget_bounds(widths, widths, BATCH_TOKENS)):
        yield order[start:end].tolist()
