"""The contract that every engine keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from undivided.config import SearchConfig
from undivided.search import Hypothesis

BATCH_TOKENS = 1024
"""Most source tokens of a batch, padding included."""
BATCH_SENTENCES = 64
"""Most sentences of a batch: with their beams as many rows as a product needs to be fast."""
LEAST_SENTENCES = 8
"""Towards the end batches have fewer, down to this, so that no worker waits long for another."""


def by_length(lengths: Sequence[int], workers: int = 1) -> Iterator[list[int]]:
    """Places in batches of like length, the longest first, so that what does not fit fails at once."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        share = max(LEAST_SENTENCES, (len(order) - start) // (2 * workers)) if workers > 1 else BATCH_SENTENCES
        size = max(1, min(BATCH_SENTENCES, share, BATCH_TOKENS // max(1, lengths[order[start]])))
        yield order[start : start + size]
        start += size


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
