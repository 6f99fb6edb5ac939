"""A simple word aligner to compare with: IBM model 1 with a prior for the diagonal, by EM, in both directions."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

Link = tuple[int, int]
"""Places of a source word and a target word that translate each other, from 0."""

NULL_SHARE = 0.08
"""How often a word is taken to translate nothing."""

TENSION = 4.0
"""How much a word is expected near the diagonal."""


class Links(NamedTuple):
    """The links of one pair: found in both directions, and in one at least."""

    sure: frozenset[Link]
    possible: frozenset[Link]


def words_of(text: str) -> list[str]:
    """The words of a line: what spaces part, as in every file of alignments."""
    return [word for word in text.split(" ") if word]


def plainly(word: str) -> str:
    """A word in small letters without the signs around it: `Dog.` is `dog`; signs alone stay."""
    letters = [place for place, letter in enumerate(word) if unicodedata.category(letter)[0] in "LNM"]
    return word[letters[0] : letters[-1] + 1].casefold() if letters else word


@dataclass(frozen=True)
class _Cells:
    """Every (source word or nothing, target word) of every pair as one row of numbers."""

    slot: np.ndarray  # which target word of the corpus
    place: np.ndarray  # where its source word stands; −1 is nothing
    meaning: np.ndarray  # which pair of words
    origin: np.ndarray  # of each pair of words, its source word
    prior: np.ndarray
    slots: int


def aligned(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], rounds: int = 5) -> list[Links]:
    """The links of each pair of sentences, each a sequence of words."""
    forth = _one_way(pairs, rounds)
    back = _one_way([(target, source) for source, target in pairs], rounds)
    result = []
    for ahead, behind in zip(forth, back, strict=True):
        turned = {(source, target) for target, source in behind}
        result.append(Links(frozenset(ahead & turned), frozenset(ahead | turned)))
    return result


def _one_way(pairs: Sequence[tuple[Sequence[str], Sequence[str]]], rounds: int) -> list[set[Link]]:
    """Each target word's likeliest source word, after some rounds of expectation and maximisation."""
    cells = _cells(pairs)
    chance = np.ones(len(cells.origin))
    for _ in range(rounds):
        weight = cells.prior * chance[cells.meaning]
        share = weight / np.bincount(cells.slot, weight, cells.slots)[cells.slot]
        counts = np.bincount(cells.meaning, share, len(cells.origin))
        chance = counts / np.bincount(cells.origin, counts)[cells.origin]
    weight = cells.prior * chance[cells.meaning]
    # By weight within each slot: the last of a slot is its best.
    order = np.lexsort((weight, cells.slot))
    last = order[np.append(np.flatnonzero(np.diff(cells.slot[order])), len(order) - 1)] if len(order) else order
    best = iter(cells.place[last].tolist())
    result = []
    for _, target in pairs:
        found = [(next(best), place) for place in range(len(target))]
        result.append({link for link in found if link[0] >= 0})
    return result


def _cells(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> _Cells:
    source_ids: dict[str, int] = {"": 0}
    target_ids: dict[str, int] = {}
    slots, places, lefts, rights, priors, count = [], [], [], [], [], 0
    for source, target in pairs:
        left = np.array([0, *(source_ids.setdefault(plainly(word), len(source_ids)) for word in source)])
        right = np.array([target_ids.setdefault(plainly(word), len(target_ids)) for word in target], dtype=np.int64)
        rows, columns = len(target), len(source) + 1
        slots.append(np.repeat(np.arange(count, count + rows), columns))
        places.append(np.tile(np.arange(-1, len(source)), rows))
        lefts.append(np.tile(left, rows))
        rights.append(np.repeat(right, columns))
        priors.append(_prior(len(source), rows).ravel())
        count += rows
    left, right = np.concatenate(lefts), np.concatenate(rights)
    keys, meaning = np.unique(left * max(1, len(target_ids)) + right, return_inverse=True)
    origin = keys // max(1, len(target_ids))
    return _Cells(np.concatenate(slots), np.concatenate(places), meaning, origin, np.concatenate(priors), count)


def _prior(source: int, target: int) -> np.ndarray:
    """`T (1 + S)`: the chance of nothing, and of each source word by its distance from the diagonal."""
    distance = abs((np.arange(source) + 0.5) / max(1, source) - ((np.arange(target) + 0.5) / max(1, target))[:, None])
    near = np.exp(-TENSION * distance)
    near *= (1 - NULL_SHARE) / near.sum(axis=1, keepdims=True)
    return np.concatenate([np.full((target, 1), NULL_SHARE), near], axis=1)


class Agreement(NamedTuple):
    """How links agree with an aligner's: error rate (less is better), precision, recall."""

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


def diagonal(source: int, target: int) -> frozenset[Link]:
    """Each of so many target words with the source word at the same share of its sentence."""
    return frozenset((int((place + 0.5) * source / target), place) for place in range(target) if source)


def pharaoh(links: Iterable[Link]) -> str:
    """`0-0 1-2`: source place, target place."""
    return " ".join(f"{source}-{target}" for source, target in sorted(links))
