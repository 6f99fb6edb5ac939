"""The lexical shortlist: likely target subwords of each source subword, so that an engine need not consider all others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from undivided.core.ids import EOS, PAD
from undivided.data.ibm1 import count_cooccurrences, translation_probabilities

if TYPE_CHECKING:
    from undivided.data.store import Store

MAX_LIKELY = 40
"""Target subwords kept for one source subword."""

MAX_COMMON = 200
"""Target subwords that are always considered: the most frequent ones, which have no single source."""

MAX_CELLS = 8_000_000
"""Most (source, target) subword pairs that are counted; from a larger corpus, evenly spaced sentences are taken."""


@dataclass(frozen=True)
class Shortlist:
    """Target ids that are always considered, and the most likely ones of each source id, `S MAX_LIKELY`, padded."""

    common: np.ndarray
    likely: np.ndarray

    def fits(self, source_size: int, target_size: int) -> bool:
        """Whether it can belong to vocabularies of these sizes: it may come from a stranger."""
        parts = (self.common, self.likely)
        has_shape = self.common.ndim == 1 and self.likely.ndim == 2 and len(self.likely) == source_size
        has_type = all(part.dtype == np.int32 for part in parts)
        return has_type and has_shape and all(((part >= 0) & (part < target_size)).all() for part in parts)

    def vocabulary_map(self, source: Sequence[str], target: Sequence[str]) -> list[str]:
        """The file that CTranslate2 reads: a source subword, a tab, its target subwords with spaces between.

        A source subword that is also a target subword may stay as it is: a name, a number, a byte.
        """
        known = set(target)
        lines = ["\t" + " ".join(target[token] for token in self.common)]
        for piece, row in zip(source, self.likely, strict=True):
            likely = [target[token] for token in row if token != PAD]
            lines.append(f"{piece}\t{' '.join(dict.fromkeys([*likely, piece] if piece in known else likely))}")
        return lines


def learn_shortlist(store: Store, source_size: int, target_size: int, rounds: int = 4) -> Shortlist:
    """The most likely translations of every source subword by IBM model 1, for vocabularies of these sizes."""
    cells = np.prod(store.lengths(np.arange(len(store))), axis=0).sum()
    places = np.arange(0, len(store), max(1, -(-int(cells) // MAX_CELLS)))
    sources, targets = store.rows(0, places), store.rows(1, places)
    found = count_cooccurrences(sources, targets, target_size)
    probability = translation_probabilities(found, rounds)
    # By source subword, then by falling probability: the rank of a pair among those of its source subword.
    order = np.lexsort((-probability, found.source))
    source, target = found.source[order], found.target[order]
    rank = np.arange(len(order)) - np.searchsorted(source, source)
    kept = rank < MAX_LIKELY
    likely = np.full((source_size, MAX_LIKELY), PAD, dtype=np.int32)
    likely[source[kept], rank[kept]] = target[kept]
    counts = np.bincount(np.concatenate(targets), minlength=target_size)
    frequent = np.argsort(-counts, kind="stable")[:MAX_COMMON]
    common = np.union1d(frequent[counts[frequent] > 0], [EOS])
    return Shortlist(common.astype(np.int32), likely)
