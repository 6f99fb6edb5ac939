"""A block of lines as arrays: code points, their classes, and the words of each line with a hash of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from undivided.data.check.characters import DIGIT, LETTER, SCRIPTS, tables

Numbers = npt.NDArray[Any]

BASE = 0x5851F42D4C957F2D
INVERSE = pow(BASE, -1, 1 << 64)


class Words(NamedTuple):
    """The words of a block: runs of letters."""

    start: Numbers
    end: Numbers
    line: Numbers
    hash: Numbers
    """Of the word in small letters."""


def mix(values: Numbers) -> Numbers:
    """64-bit numbers, scattered: numbers that differ in a bit differ in half of their bits."""
    values = (values ^ (values >> np.uint64(31))) * np.uint64(0x9E3779B97F4A7C15)
    return values ^ (values >> np.uint64(29))


@cache
def _letter_numbers() -> Numbers:
    """A random number for every letter, the same for its small form; 0 for what is no letter."""
    numbers = mix(np.arange(1, 0x110001, dtype=np.uint64)) | np.uint64(1)
    found = numbers[tables().lower]
    found[tables().kind != LETTER] = 0
    return found


class Powers:
    """BASE and its inverse to the power of every place of a block, made when first needed."""

    def __init__(self) -> None:
        self.up = self.down = np.ones(1, np.uint64)

    def at_least(self, count: int) -> Powers:
        """Enough of them for a text of `count` characters."""
        if len(self.up) < count:
            size = 1 << max(16, (count - 1).bit_length())
            self.up, self.down = (np.cumprod(np.full(size, base, np.uint64), dtype=np.uint64) for base in (BASE, INVERSE))
        return self


_POWERS = Powers()


class Block:
    """Lines of one side, as one text, and all that is counted in them."""

    def __init__(self, lines: Sequence[str]) -> None:
        self.lines = lines
        text = "\n".join(lines)
        self.codes: Numbers = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32).astype(np.int64)
        self.length: Numbers = np.fromiter(map(len, lines), np.int64, len(lines))
        self.start: Numbers = np.cumsum(self.length + 1) - self.length - 1
        self.kind: Numbers = tables().kind[self.codes]

    def __len__(self) -> int:
        return len(self.lines)

    def count(self, places: Numbers) -> Numbers:
        """How many of these places of the text each line has."""
        if not len(places):
            return np.zeros(len(self), np.int64)
        return np.bincount(np.searchsorted(self.start, places, side="right") - 1, minlength=len(self))

    def has(self, kind: int) -> Numbers:
        """Which lines have a character of this class."""
        return self.count(np.flatnonzero(self.kind == kind)) > 0

    @cached_property
    def letter_hashes(self) -> Numbers:
        """Sums over letters, up to each place, of their numbers times the power of their place."""
        powers = _POWERS.at_least(len(self.codes)).up
        sums = np.zeros(len(self.codes) + 1, np.uint64)
        np.cumsum(_letter_numbers()[self.codes] * powers[: len(self.codes)], out=sums[1:])
        return sums

    @cached_property
    def words(self) -> Words:
        """All words, in order."""
        flags = np.zeros(len(self.kind) + 2, np.int8)
        flags[1:-1] = self.kind == LETTER
        changes = np.flatnonzero(flags[1:] != flags[:-1])
        start, end = changes[::2], changes[1::2]
        line = np.searchsorted(self.start, start, side="right") - 1
        sums = self.letter_hashes
        return Words(start, end, line, mix((sums[end] - sums[start]) * _POWERS.at_least(len(self.codes) + 1).down[start]))

    @cached_property
    def word_count(self) -> Numbers:
        """How many words each line has."""
        return np.bincount(self.words.line, minlength=len(self))

    @cached_property
    def letters(self) -> Numbers:
        """How many letters each line has."""
        return self.scripts.sum(axis=1)

    @cached_property
    def scripts(self) -> Numbers:
        """How many letters of each script each line has; a word counts as what it begins with, but for Kana behind Han."""
        words = self.words
        place = words.line * len(SCRIPTS) + tables().script[self.codes[words.start]]
        counts = np.bincount(place, weights=words.end - words.start, minlength=len(self) * len(SCRIPTS))
        found = counts.reshape(len(self), len(SCRIPTS)).astype(np.int64)
        kana, han = SCRIPTS.index("Kana"), SCRIPTS.index("Han")
        if found[:, han].any():
            all_kana = self.count(np.flatnonzero((self.codes >= 0x3041) & (self.codes < 0x3100)))
            behind_han = np.clip(all_kana - found[:, kana], 0, found[:, han])
            found[:, kana] += behind_han
            found[:, han] -= behind_han
        return found

    @cached_property
    def line_hash(self) -> Numbers:
        """A hash of the words of each line in their order, whatever their case, spaces, digits and punctuation."""
        words = self.words
        first = np.cumsum(self.word_count) - self.word_count
        place = np.arange(len(words.line)) - first[words.line]
        sums = np.zeros(len(words.line) + 1, np.uint64)
        np.cumsum(words.hash * _POWERS.at_least(int(place.max(initial=0)) + 1).up[place], out=sums[1:])
        return mix(sums[first + self.word_count] - sums[first])

    @cached_property
    def digit_hash(self) -> Numbers:
        """A hash of the digits of each line, whatever their order: 1,000.5 and 1.000,5 are the same number."""
        places = np.flatnonzero(self.kind == DIGIT)
        digits = tables().lower[self.codes[places]].astype(np.int64) - ord("0")
        line = np.searchsorted(self.start, places, side="right") - 1
        counts = np.bincount(line * 10 + digits, minlength=len(self) * 10).reshape(len(self), 10)
        return counts @ np.array([101**power for power in range(9)] + [7], np.int64)
