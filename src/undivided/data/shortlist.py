"""Which target subwords each source subword may become, learned from the training corpus: an engine need not weigh all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from undivided.core.ids import EOS, PAD

if TYPE_CHECKING:
    from undivided.data.store import Store

LIKELY = 40
"""Target subwords kept for one source subword."""

COMMON = 200
"""Target subwords that are always weighed: the most frequent ones, which have no single source."""

CELLS = 8_000_000
"""Pairs of a source and a target subword that are counted: evenly spaced sentences of a corpus, as many as make so many."""


@dataclass(frozen=True)
class Shortlist:
    """Target ids that are always weighed, and for each source id its likeliest, `S LIKELY`; where there are fewer, padding."""

    common: np.ndarray
    likely: np.ndarray

    def fits(self, source: int, target: int) -> bool:
        """Whether it can belong to vocabularies of these sizes: it may come from a stranger."""
        whole = all(part.dtype == np.int32 for part in (self.common, self.likely))
        shaped = self.common.ndim == 1 and self.likely.ndim == 2 and len(self.likely) == source
        return whole and shaped and all(((part >= 0) & (part < target)).all() for part in (self.common, self.likely))

    def lines(self, source: Sequence[str], target: Sequence[str]) -> list[str]:
        """Subwords in words, as CTranslate2 reads them: `what is read`, a tab, `what may be written …`.

        A source subword that the target has too may stand for itself: a name, a number, a byte.
        """
        same = set(target)
        lines = ["\t" + " ".join(target[token] for token in self.common)]
        for piece, row in zip(source, self.likely, strict=True):
            likely = [target[token] for token in row if token != PAD]
            lines.append(f"{piece}\t{' '.join(dict.fromkeys([*likely, piece] if piece in same else likely))}")
        return lines


def learn_shortlist(store: Store, source: int, target: int, rounds: int = 4) -> Shortlist:
    """The likeliest meanings of every source subword by IBM model 1 (Brown et al., 1993), for vocabularies of these sizes."""
    links = _Links.of(store, target)
    chance = np.ones(len(links.meanings))
    for _ in range(rounds):
        weight = chance[links.meaning]
        share = weight / np.bincount(links.slot, weight)[links.slot]
        counts = np.bincount(links.meaning, share, len(links.meanings))
        reader = links.meanings // target
        chance = counts / np.bincount(reader, counts, source)[reader]
    likely = np.full((source, LIKELY), PAD, dtype=np.int32)
    order = np.lexsort((-chance, links.meanings // target))
    readers, written = np.divmod(links.meanings[order], target)
    rank = np.arange(len(order)) - np.searchsorted(readers, readers)
    kept = rank < LIKELY
    likely[readers[kept], rank[kept]] = written[kept]
    frequent = np.argsort(-links.written, kind="stable")[:COMMON]
    common = np.union1d(frequent[links.written[frequent] > 0], [EOS])
    return Shortlist(common.astype(np.int32), likely)


@dataclass(frozen=True)
class _Links:
    """Every pair of a source and a target subword of the same sentence pair."""

    slot: np.ndarray  # which target subword of the corpus
    meaning: np.ndarray  # which of the meanings
    meanings: np.ndarray  # source id × target vocabulary + target id, sorted
    written: np.ndarray  # how often each target id occurs

    @classmethod
    def of(cls, store: Store, target: int) -> _Links:
        sizes = np.prod(store.lengths(np.arange(len(store))), axis=0)
        places = np.arange(0, len(store), max(1, -(-int(sizes.sum()) // CELLS)))
        slots, meanings, count = [], [], 0
        written = np.zeros(target, dtype=np.int64)
        for read, wrote in zip(store.rows(0, places), store.rows(1, places), strict=True):
            slots.append(np.repeat(np.arange(count, count + len(wrote)), len(read)))
            meanings.append((read.astype(np.int64) * target + wrote.astype(np.int64)[:, None]).ravel())
            np.add.at(written, wrote, 1)
            count += len(wrote)
        known, meaning = np.unique(np.concatenate(meanings), return_inverse=True)
        return cls(np.concatenate(slots), meaning, known, written)
