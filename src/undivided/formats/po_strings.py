"""The strings of PO files: escapes and line wrapping."""

from __future__ import annotations

import re
from collections.abc import Sequence

ESCAPE = re.compile(r"\\(?:([abfnrtv\"\\?'])|x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
LETTERS = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
WRITTEN = {**{value: f"\\{key}" for key, value in LETTERS.items()}, '"': '\\"', "\\": "\\\\"}
WIDTH = 77
"""Characters of a line between its quotes, as gettext's own tools wrap."""


def join_strings(parts: Sequence[str]) -> str:
    """What some quoted strings say together."""

    def resolve(found: re.Match[str]) -> str:
        letter, hexadecimal, octal, other = found.groups()
        if letter:
            return LETTERS.get(letter, letter)
        return chr(int(hexadecimal, 16)) if hexadecimal else chr(int(octal, 8)) if octal else other

    text = "".join(parts)
    return ESCAPE.sub(resolve, text) if "\\" in text else text


def quote(text: str) -> str:
    """Text as a quoted string."""
    return '"' + "".join(WRITTEN.get(letter, letter) for letter in text) + '"'


def wrap_message(text: str, indent: int, end: str, wraps: bool) -> str:
    """A text as quoted strings: one line if it fits, else a new one after each line break and at spaces."""
    if "\n" not in text[:-1] and (not wraps or len(quote(text)) + indent <= WIDTH + 2):
        return quote(text)
    rows = ['""']
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        rows += [quote(row) for row in (_wrap(line) if wraps else [line])]
    return end.join(rows)


def _wrap(line: str) -> list[str]:
    rows = [""]
    for word in re.findall(r"\S*\s+|\S+", line):
        if rows[-1] and len(quote(rows[-1] + word)) - 2 > WIDTH:
            rows.append("")
        rows[-1] += word
    return rows
