"""Pairs held out of the training data for validation: always the same ones, and nothing of them stays behind. [paper 6.1]"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Sequence

import numpy as np

from undivided.config import CorpusFiles, DataConfig
from undivided.data.corpus import CorpusReport, corpus_name, read_pairs

FEWEST = 10
"""Fewer pairs than this measure nothing: then none are held out."""

LARGEST_SHARE = 20
"""At most one pair in so many is held out."""

Lines = tuple[frozenset[int], ...]
"""Line numbers, counted from 1, of each corpus."""


def count_held_out(pairs: int, wanted: int) -> int:
    """How many of so many pairs are held out where `wanted` are asked for: a fair part, or none of a very small corpus."""
    count = min(wanted, pairs // LARGEST_SHARE)
    return count if count >= FEWEST else 0


def choose_held_out(corpora: Sequence[CorpusFiles], config: DataConfig, count: int) -> Lines:
    """The lines to hold out: of pairs whose source and target occur once, those with the smallest digests.

    So the choice needs no seed, does not depend on the order of the lines, hardly changes as a corpus grows, and neither side
    of a held-out pair is in the training data.
    """
    sides, places = _digests(corpora, config)
    alone = np.ones(len(places), dtype=bool)
    for digests in sides:
        _, inverse, counts = np.unique(digests, return_inverse=True, return_counts=True)
        alone &= counts[inverse] == 1
    candidates = np.flatnonzero(alone)
    ranked = candidates[np.argsort(sides[0][candidates], kind="stable")][:count]
    chosen = places[ranked]
    return tuple(frozenset(chosen[chosen[:, 0] == number, 1].tolist()) for number in range(len(corpora)))


def _digests(corpora: Sequence[CorpusFiles], config: DataConfig) -> tuple[list[np.ndarray], np.ndarray]:
    """64 bits of each source and each target, spaces and letter case aside, and (corpus, line) of each pair."""
    source, target, corpus, line = array("Q"), array("Q"), array("q"), array("q")
    for number, files in enumerate(corpora):
        for pair in read_pairs(files, config, CorpusReport(corpus_name(files))):
            source.append(_digest(pair.source))
            target.append(_digest(pair.target))
            corpus.append(number)
            line.append(pair.line)
    sides = [np.frombuffer(side, dtype=np.uint64) for side in (source, target)]
    return sides, np.stack([np.frombuffer(side, dtype=np.int64) for side in (corpus, line)], axis=1)


def _digest(text: str) -> int:
    folded = " ".join(text.split()).casefold()
    return int.from_bytes(hashlib.blake2b(folded.encode(), digest_size=8).digest(), "little")
