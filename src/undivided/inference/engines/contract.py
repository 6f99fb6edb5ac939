"""The contract that every engine keeps."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from undivided.artifact import Artifact
from undivided.artifact.demand import BATCH_ROWS, BATCH_TOKENS
from undivided.config import SearchConfig
from undivided.inference.drafts import DraftCount
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.search_settings import is_greedy

if TYPE_CHECKING:
    from undivided.inference.engines.torch import TorchEngine

BFLOAT16 = "torch-bfloat16"
"""PyTorch with bfloat16 products."""

INT8 = "int8"
"""Our own engine for CPUs, with products of 8 bits."""

MIN_SENTENCES = 16
"""Towards the end batches have fewer sentences, but at least this many, so that no worker waits long for another."""


def batch_by_length(lengths: Sequence[int], beams: int = 1, workers: int = 1) -> Iterator[list[int]]:
    """Indices in batches of similar length, the longest first, so that what does not fit fails at once."""
    order = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    start = 0
    while start < len(order):
        size = min(BATCH_ROWS // beams, BATCH_TOKENS // beams // max(1, lengths[order[start]]))
        if workers > 1:
            size = min(size, max(MIN_SENTENCES, (len(order) - start) // (2 * workers)))
        yield order[start : start + max(1, size)]
        start += max(1, size)


def follows_drafts(config: SearchConfig, prefixes: Sequence[Sequence[int]]) -> bool:
    """Whether a search is one that drafts serve: greedy, without anything that says what may follow."""
    return bool(config.draft) and is_greedy(config) and not config.no_repeat_ngram and not any(prefixes)


class Engine(Protocol):
    """A way to run a model: source ids → hypotheses."""

    name: str
    is_parallel: bool
    """Whether it works on several calls of `search` at once, in threads of its own."""
    has_shortlist: bool
    """Whether it can restrict translations to the likely target subwords."""
    drafts: DraftCount | None
    """What drafts have come to so far; None where it uses none."""

    @property
    def reference(self) -> TorchEngine:
        """The PyTorch engine of the same model, for what only that can do."""

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The n best translations of each source, as (its index, hypotheses), in the order in which they are finished.

        Sources end with `</s>`; translations begin with their `prefixes`; samples depend on their `keys`.
        """


class ConvertedEngine:
    """An engine that runs a converted model, and leaves to PyTorch what it cannot do."""

    drafts: DraftCount | None = None
    threads: int
    is_shared = False
    """Whether it serves many clients, whose sentences meet in ever other batches anyway."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact, self._lock = artifact, threading.Lock()
        self._searches = set[object]()
        self._reference: TorchEngine | None = None

    @property
    def reference(self) -> TorchEngine:
        """The PyTorch engine of the same model."""
        from undivided.inference.engines.torch import TorchEngine

        with self._lock:
            if self._reference is None:
                self._reference = TorchEngine(self.artifact)
            return self._reference

    @contextmanager
    def share_of(self, threads: int) -> Iterator[int]:
        """How many of its threads a search may count on: of several at once each has some, and larger batches instead."""
        own = object()
        self._searches.add(own)
        try:
            yield max(1, threads // len(self._searches))
        finally:
            self._searches.discard(own)
