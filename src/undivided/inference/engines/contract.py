"""The contract that every engine keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from undivided.config import SearchConfig
from undivided.inference.hypothesis import Hypothesis

ROUNDED = "torch-bfloat16"
"""PyTorch with rounded products."""

BATCH_ROWS = 256
"""Most hypotheses of a batch, sentences times beams: as many as a product needs to be fast."""
BATCH_TOKENS = 16 * BATCH_ROWS
"""Most source tokens of a batch times beams, padding included."""
LEAST_SENTENCES = 16
"""Towards the end batches have fewer sentences, down to this, so that no worker waits long for another."""


def by_length(lengths: Sequence[int], beams: int = 1, workers: int = 1) -> Iterator[list[int]]:
    """Places in batches of like length, the longest first, so that what does not fit fails at once."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        size = min(BATCH_ROWS // beams, BATCH_TOKENS // beams // max(1, lengths[order[start]]))
        if workers > 1:
            size = min(size, max(LEAST_SENTENCES, (len(order) - start) // (2 * workers)))
        yield order[start : start + max(1, size)]
        start += max(1, size)


class Engine(Protocol):
    """Turns source ids into target ids."""

    name: str
    side_by_side: bool
    """Whether it works on several calls at once, in threads of its own."""
    has_shortlist: bool

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The n best translations of each source, as (its place, hypotheses), in whatever order they are done.

        Sources end with `</s>`; `prefixes` are what translations must begin with; `keys` tell samples apart.
        """
