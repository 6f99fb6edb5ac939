"""Edits of paragraphs that hold other paragraphs, such as text boxes and footnotes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from undivided.formats.contract import Edit

HOLE = re.compile("\0(\\d+):(\\d+)\0")
"""Where the text of a replacement holds a stretch of the original, with what was edited in that. XML has no such characters."""


def hole(start: int, end: int) -> str:
    """A stretch of the original text, within a replacement."""
    return f"\0{start}:{end}\0"


def apply_nested(text: str, edits: Sequence[Edit]) -> str:
    """A text with its edits; edits within others apply to the holes of these."""
    return _apply(text, 0, len(text), sorted(dict.fromkeys(edits), key=lambda each: (each.start, -each.end)))


def _apply(text: str, start: int, end: int, edits: Sequence[Edit]) -> str:
    parts, place = list[str](), start
    for number, each in enumerate(edits):
        if each.start < place:
            continue  # Within the one before it.
        inner = []
        for other in edits[number + 1 :]:
            if other.start >= each.end:
                break
            inner.append(other)

        def fill(found: re.Match[str], inner: Sequence[Edit] = inner) -> str:
            first, last = int(found[1]), int(found[2])
            return _apply(text, first, last, [edit for edit in inner if first <= edit.start and edit.end <= last])

        parts += [text[place : each.start], HOLE.sub(fill, each.text)]
        place = each.end
    return "".join([*parts, text[place:end]])
