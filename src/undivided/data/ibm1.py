"""IBM model 1 (Brown et al., 1993): which words translate each other, learned from sentence pairs by EM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Cooccurrences:
    """Every (source word, target word) of the same sentence pair, as flat arrays: a cell for each.

    The cells of a sentence pair are in the order of its target words, and for each in the order of its source words.
    """

    slot: np.ndarray
    """Of each cell, which target word of the corpus."""
    pair: np.ndarray
    """Of each cell, which distinct pair of words: an index into `source` and `target`."""
    source: np.ndarray
    """Of each distinct pair, its source word; they are in ascending order."""
    target: np.ndarray
    """Of each distinct pair, its target word."""


def count_cooccurrences(sources: Sequence[np.ndarray], targets: Sequence[np.ndarray], target_words: int) -> Cooccurrences:
    """The cells of a corpus: word ids of each sentence on both sides; target ids are below `target_words`."""
    slots, keys, count = [], [], 0
    for source, target in zip(sources, targets, strict=True):
        slots.append(np.repeat(np.arange(count, count + len(target)), len(source)))
        keys.append((source.astype(np.int64) * target_words + target.astype(np.int64)[:, None]).ravel())
        count += len(target)
    distinct, pair = np.unique(np.concatenate(keys), return_inverse=True)
    return Cooccurrences(np.concatenate(slots), pair, *np.divmod(distinct, target_words))


def translation_probabilities(found: Cooccurrences, rounds: int, prior: np.ndarray | None = None) -> np.ndarray:
    """P(target word | source word) of each distinct pair, after some rounds of EM; `prior` weights each cell."""
    probability = np.ones(len(found.source))
    for _ in range(rounds):
        weight = cell_weights(found, probability, prior)
        share = weight / np.bincount(found.slot, weight)[found.slot]
        counts = np.bincount(found.pair, share, len(found.source))
        probability = counts / np.bincount(found.source, counts)[found.source]
    return probability


def cell_weights(found: Cooccurrences, probability: np.ndarray, prior: np.ndarray | None) -> np.ndarray:
    """How likely each cell is a translation, up to a factor that all cells of a target word share."""
    return probability[found.pair] if prior is None else prior * probability[found.pair]
