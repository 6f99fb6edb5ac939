"""WordPiece, as BERT splits text (Devlin et al., 2019): words and signs, each cut into the longest pieces that the table has."""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from undivided.core.ids import UNK

INSIDE = "##"
"""What a piece begins with that continues a word."""
MAX_WORD = 100
"""A longer word is unknown as a whole."""
CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F), (0x2B740, 0x2B81F), (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip
"""Blocks of characters that are words of their own."""
LATER_SPACES = frozenset("\u1680\u2028\u2029")


class WordPiece:
    """Text → ids by a table of pieces; what a word's characters were before they were made plain is lost."""

    def __init__(self, ids: Mapping[str, int], lower_case: bool, strip_accents: bool, split_chinese: bool, mask: str) -> None:
        self.ids, self.mask = ids, mask
        self.lower_case, self.strip_accents, self.split_chinese = lower_case, strip_accents, split_chinese

    def encode(self, text: str) -> Iterator[int]:
        """The ids of a text, in which the name of the mask is the mask."""
        parts = text.split(self.mask) if self.mask else [text]
        for number, part in enumerate(parts):
            if number:
                yield self.ids[self.mask]
            for word in split_words(self._normalise(part)):
                yield from self._encode_word(word)

    def _normalise(self, text: str) -> str:
        text = "".join(_clean(each) for each in text)
        if self.split_chinese:
            text = "".join(f" {each} " if _is_chinese(ord(each)) else each for each in text)
        if self.strip_accents:
            text = "".join(each for each in unicodedata.normalize("NFD", text) if unicodedata.category(each) != "Mn")
        # One character at a time: a Σ at the end of a word is like any other.
        return "".join(each.lower() for each in text) if self.lower_case else text

    def _encode_word(self, word: str) -> list[int]:
        """The longest pieces from the left; a word that they do not fill is unknown."""
        found: list[int] = []
        start = 0
        while start < len(word) <= MAX_WORD:
            mark = INSIDE if start else ""
            pieces = ((self.ids.get(mark + word[start:end]), end) for end in range(len(word), start, -1))
            token, start = next(((token, end) for token, end in pieces if token is not None), (UNK, 0))
            if token == UNK:
                return [UNK]
            found.append(token)
        return found or [UNK]

    def decode(self, pieces: Sequence[str]) -> str:
        """The pieces with spaces between words."""
        text = " ".join(pieces).replace(f" {INSIDE}", "")
        return text.removeprefix(INSIDE)


@functools.lru_cache(1 << 14)
def _clean(character: str) -> str:
    """Nothing for what cannot be seen, a space for every kind of white space, else the character."""
    if character in "\t\n\r" or character in LATER_SPACES or unicodedata.category(character) == "Zs":
        return " "
    return "" if character == "\ufffd" or unicodedata.category(character) in ("Cc", "Cf", "Co") else character


def _is_chinese(code: int) -> bool:
    return code >= 0x3400 and any(first <= code <= last for first, last in CHINESE)


@functools.lru_cache(1 << 14)
def _is_sign(character: str) -> bool:
    """Punctuation, and every printed character of ASCII that is no letter and no digit."""
    if character < "\x7f":
        return character > " " and not character.isalnum()
    return unicodedata.category(character)[0] == "P"


def split_words(text: str) -> Iterator[str]:
    """The words between spaces; every sign is a word of its own."""
    for part in text.split():
        word = ""
        for character in part:
            if not _is_sign(character):
                word += character
                continue
            if word:
                yield word
            yield character
            word = ""
        if word:
            yield word
