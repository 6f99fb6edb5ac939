"""Byte-level BPE, as GPT-2 splits text (Radford et al., 2019): words become bytes, a letter for each, and pairs are merged."""

from __future__ import annotations

import functools
import heapq
import re
import sys
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from undivided.core.errors import InputError

SPACES = r"\t\n\x0b\x0c\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""What Unicode calls white space; Python's own `\\s` has four characters more."""
MAX_CACHED, MAX_CACHED_LENGTH = 1 << 17, 40
"""Words whose ids are remembered, and most characters of such a word."""


@functools.cache
def byte_letters() -> list[str]:
    """The letter that stands for each byte: those that can be printed for themselves, the others from U+0100 on."""
    printed = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printed else next(others)) for byte in range(256)]


@functools.cache
def word_pattern() -> re.Pattern[str]:
    """English contractions; letters, digits or other signs with one space before them; white space, but for that one space."""
    letters, digits = _class("L"), _class("N")
    words = rf"'s|'t|'re|'ve|'m|'ll|'d| ?[{letters}]+| ?[{digits}]+| ?[^{SPACES}{letters}{digits}]+"
    return re.compile(rf"{words}|[{SPACES}]+(?![^{SPACES}])|[{SPACES}]+")


def _class(kind: str) -> str:
    """The ranges of all characters of a general category of Unicode."""
    ranges: list[list[int]] = []
    for code in range(sys.maxunicode + 1):
        if unicodedata.category(chr(code))[0] == kind:
            if ranges and ranges[-1][1] == code - 1:
                ranges[-1][1] = code
            else:
                ranges.append([code, code])
    return "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in ranges)


class ByteBpe:
    """Text ↔ ids by a table of pieces and a list of merges, the first of which is the first to be done."""

    def __init__(self, ids: Mapping[str, int], merges: Sequence[tuple[str, str]], prefix_space: bool) -> None:
        self.ids, self.prefix_space = ids, prefix_space
        missing = [letter for letter in byte_letters() if letter not in ids]
        if missing:
            raise InputError(f"its vocabulary lacks {len(missing)} of the 256 bytes")
        self.ranks: dict[tuple[int, int], tuple[int, int]] = {}
        for rank, (left, right) in enumerate(merges):
            if not {left, right, left + right} <= ids.keys():
                raise InputError(f"the merge {left!r} {right!r} is not in its vocabulary")
            self.ranks.setdefault((ids[left], ids[right]), (rank, ids[left + right]))
        self._letters = [ids[letter] for letter in byte_letters()]
        self._bytes = {letter: byte for byte, letter in enumerate(byte_letters())}
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> Iterator[int]:
        """The ids of a text."""
        if self.prefix_space and not text.startswith(" "):
            text = f" {text}"
        for match in word_pattern().finditer(text):
            yield from self._encode_word(match[0])

    def _encode_word(self, word: str) -> list[int]:
        found = self._cache.get(word)
        if found is None:
            found = self._merge([self._letters[byte] for byte in word.encode()])
            if len(word) <= MAX_CACHED_LENGTH:
                if len(self._cache) >= MAX_CACHED:
                    self._cache.clear()
                self._cache[word] = found
        return found

    def _merge(self, tokens: list[int]) -> list[int]:
        """Merge the pair of the lowest rank, of equals the first, until none is left: in n log n, for a word may be long."""
        following, before = list(range(1, len(tokens) + 1)), list(range(-1, len(tokens) - 1))
        queue: list[tuple[int, int, int, int, int]] = []

        def offer(place: int) -> None:
            after = following[place]
            if after < len(tokens) and (found := self.ranks.get((tokens[place], tokens[after]))):
                heapq.heappush(queue, (found[0], place, tokens[place], tokens[after], found[1]))

        for place in range(len(tokens) - 1):
            offer(place)
        gone = -1
        while queue:
            _, place, left, right, merged = heapq.heappop(queue)
            after = following[place] if tokens[place] == left else len(tokens)
            if after >= len(tokens) or tokens[after] != right:
                continue
            tokens[place], tokens[after] = merged, gone
            following[place] = following[after]
            if following[place] < len(tokens):
                before[following[place]] = place
            offer(place)
            if before[place] >= 0:
                offer(before[place])
        return [token for token in tokens if token != gone]

    def decode(self, pieces: Sequence[str]) -> str:
        """The text of some pieces; bytes that are no UTF-8 become `\ufffd`."""
        letters = "".join(pieces)
        return bytes(self._bytes[letter] for letter in letters if letter in self._bytes).decode("utf-8", "replace")
