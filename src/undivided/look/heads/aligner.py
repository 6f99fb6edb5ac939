"""A simple word aligner to compare heads with: IBM model 1 with a prior for the diagonal, in both directions."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from undivided.data.ibm1 import cell_weights, count_cooccurrences, translation_probabilities

Link = tuple[int, int]
"""Positions, from 0, of a source word and a target word that translate each other."""

NULL_PROBABILITY = 0.08
"""Prior probability that a target word translates no source word (NULL)."""

TENSION = 4.0
"""How strongly a word is expected near the diagonal."""


class Links(NamedTuple):
    """The links of one pair: found in both directions, and in one at least."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def split_words(text: str) -> list[str]:
    """The words of a line, split at spaces as alignment files expect."""
    return [word for word in text.split(" ") if word]


def normalize_word(word: str) -> str:
    """A word in lower case without punctuation around it: `Dog.` → `dog`; punctuation alone stays."""
    letters = [place for place, letter in enumerate(word) if unicodedata.category(letter)[0] in "LNM"]
    return word[letters[0] : letters[-1] + 1].casefold() if letters else word


def align_words(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], rounds: int = 5) -> list[Links]:
    """The links of each pair of sentences, each a sequence of words."""
    forward = _align_one_way(pairs, rounds)
    backward = _align_one_way([(target, source) for source, target in pairs], rounds)
    result = []
    for there, back in zip(forward, backward, strict=True):
        turned = {(source, target) for target, source in back}
        result.append(Links(frozenset(there & turned), frozenset(there | turned)))
    return result


def _align_one_way(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], rounds: int) -> list[set[Link]]:
    """Each target word's most likely source word, unless it is NULL."""
    source_ids: dict[str, int] = {"": 0}
    target_ids: dict[str, int] = {}
    sources = [np.array([0, *_word_ids(source, source_ids)]) for source, _ in pairs]
    targets = [np.array(_word_ids(target, target_ids), dtype=np.int64) for _, target in pairs]
    found = count_cooccurrences(sources, targets, max(1, len(target_ids)))
    prior = np.concatenate([_prior(len(source), len(target)).ravel() for source, target in pairs])
    place = np.concatenate([np.tile(np.arange(-1, len(source)), len(target)) for source, target in pairs])
    weight = cell_weights(found, translation_probabilities(found, rounds, prior), prior)
    # By weight within each slot: the last cell of a slot is its best.
    order = np.lexsort((weight, found.slot))
    last = order[np.append(np.flatnonzero(np.diff(found.slot[order])), len(order) - 1)] if len(order) else order
    best = iter(place[last].tolist())
    links = [[(next(best), place) for place in range(len(target))] for _, target in pairs]
    return [{link for link in each if link[0] >= 0} for each in links]


def _word_ids(words: Sequence[str], ids: dict[str, int]) -> list[int]:
    return [ids.setdefault(normalize_word(word), len(ids)) for word in words]


def _prior(source: int, target: int) -> np.ndarray:
    """`T (1 + S)`: the probability of NULL, and of each source word by its distance from the diagonal."""
    distance = abs((np.arange(source) + 0.5) / max(1, source) - ((np.arange(target) + 0.5) / max(1, target))[:, None])
    near = np.exp(-TENSION * distance)
    near *= (1 - NULL_PROBABILITY) / near.sum(axis=1, keepdims=True)
    return np.concatenate([np.full((target, 1), NULL_PROBABILITY), near], axis=1)


class Agreement(NamedTuple):
    """How well links agree with an aligner's: alignment error rate (lower is better), precision, recall."""

    aer: float
    precision: float
    recall: float


def agreement(found: Iterable[frozenset[Link]], wanted: Iterable[Links]) -> Agreement:
    """Alignment error rate (Och and Ney, 2003) of some links against sure and possible ones."""
    hits_sure = hits_possible = links = sure = 0
    for ours, theirs in zip(found, wanted, strict=True):
        hits_sure += len(ours & theirs.sure)
        hits_possible += len(ours & theirs.possible)
        links, sure = links + len(ours), sure + len(theirs.sure)
    error = 1 - (hits_sure + hits_possible) / max(1, links + sure)
    return Agreement(error, hits_possible / max(1, links), hits_sure / max(1, sure))


def diagonal_links(source: int, target: int) -> frozenset[Link]:
    """Each target word linked to the source word at the same relative position, for sentences of these lengths."""
    return frozenset((int((place + 0.5) * source / target), place) for place in range(target) if source)


def to_pharaoh(links: Iterable[Link]) -> str:
    """Links in Pharaoh format, `0-0 1-2`: source position, target position."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
