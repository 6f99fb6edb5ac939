"""What every character is: one lookup table of classes and scripts, so that whole blocks of text are judged at once."""

from __future__ import annotations

import unicodedata
from functools import cache

import numpy as np
import numpy.typing as npt

OTHER, LETTER, DIGIT, SPACE, CONTROL, BROKEN, HIDDEN = range(7)
"""Classes of characters. CONTROL: commands to a terminal, NUL included. BROKEN: what only damage writes, such as U+FFFD, half
characters and private use. HIDDEN: shown as nothing, such as a byte-order mark inside a line; joiners are part of writing."""

SCRIPTS = (
    "", "Latin", "Greek", "Cyrillic", "Armenian", "Hebrew", "Arabic", "Devanagari", "Bengali", "Gurmukhi", "Gujarati", "Tamil",
    "Telugu", "Kannada", "Malayalam", "Sinhala", "Thai", "Lao", "Tibetan", "Myanmar", "Georgian", "Hangul", "Ethiopic", "Khmer",
    "Mongolian", "Kana", "Han",
)  # fmt: skip
"""Scripts by their number; 0 is none or any."""

_NAMES = {
    "LATIN": "Latin", "FULLWIDTH LATIN": "Latin", "GREEK": "Greek", "CYRILLIC": "Cyrillic", "ARMENIAN": "Armenian",
    "HEBREW": "Hebrew", "ARABIC": "Arabic", "DEVANAGARI": "Devanagari",
    "BENGALI": "Bengali", "GURMUKHI": "Gurmukhi", "GUJARATI": "Gujarati",
    "TAMIL": "Tamil", "TELUGU": "Telugu", "KANNADA": "Kannada", "MALAYALAM": "Malayalam", "SINHALA": "Sinhala", "THAI": "Thai",
    "LAO": "Lao", "TIBETAN": "Tibetan", "MYANMAR": "Myanmar", "GEORGIAN": "Georgian", "HANGUL": "Hangul", "ETHIOPIC": "Ethiopic",
    "KHMER": "Khmer", "MONGOLIAN": "Mongolian", "HIRAGANA": "Kana", "KATAKANA": "Kana", "HALFWIDTH KATAKANA": "Kana", "CJK": "Han",
}  # fmt: skip
"""How the names of letters begin, and their script."""

_RANGES = {"Han": [(0x3400, 0x4DC0), (0x4E00, 0xA000), (0x20000, 0x32000)], "Hangul": [(0xAC00, 0xD7A4)]}
"""Scripts with too many letters to look each up."""

_HIDDEN = "\ufeff\u200b\u2060\u00ad\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


class Tables:
    """The class, script and small form of every character, by its code point."""

    def __init__(self) -> None:
        self.kind: npt.NDArray[np.uint8] = np.full(0x110000, OTHER, np.uint8)
        self.script: npt.NDArray[np.uint8] = np.zeros(0x110000, np.uint8)
        self.lower: npt.NDArray[np.uint32] = np.arange(0x110000, dtype=np.uint32)
        for name, ranges in _RANGES.items():
            for start, end in ranges:
                self.kind[start:end], self.script[start:end] = LETTER, SCRIPTS.index(name)
        in_ranges = self.script != 0
        for code in [*range(0xD800), *range(0xE000, 0x20000)]:
            if not in_ranges[code]:
                self._add(code)
        self.kind[0xD800:0xE000] = self.kind[0xE000:0xF900] = self.kind[0xF0000:] = BROKEN
        self.kind[[0xFFFD, 0xFFFE, 0xFFFF]] = BROKEN
        self.kind[[ord(each) for each in _HIDDEN]] = HIDDEN

    def _add(self, code: int) -> None:
        char = chr(code)
        category = unicodedata.category(char)
        if category[0] in "LM":
            self.kind[code] = LETTER
            self.script[code] = _script_number(char)
            small = char.lower()
            self.lower[code] = ord(small[0])
        elif category == "Nd":
            self.kind[code] = DIGIT
            self.lower[code] = ord("0") + unicodedata.decimal(char)
        elif category[0] == "Z" or char in "\t":
            self.kind[code] = SPACE
        elif category == "Cc":
            self.kind[code] = CONTROL


def _script_number(char: str) -> int:
    words = unicodedata.name(char, "").split(" ", 2)
    name = _NAMES.get(words[0]) or _NAMES.get(" ".join(words[:2]))
    return SCRIPTS.index(name) if name else 0


@cache
def tables() -> Tables:
    """The tables, made once."""
    return Tables()
