"""Plain text: each line is a segment; line ends and the spaces around lines stay."""

from __future__ import annotations

import re

from undivided.formats.contract import DocumentOptions, Edit, SegmentList, SplicedText, Unit, Write
from undivided.formats.text_file import TextFile

LINE = re.compile(r"[^\r\n]+")


def parse_plain(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each line that is not blank."""
    segments = SegmentList(file.text)
    units = []
    for found in LINE.finditer(file.text):
        if found[0].strip():
            units.append(Unit([segments.add(found.start(), found[0])], write_over(found.start(), found.end())))
    return SplicedText(units)


def write_over(start: int, end: int) -> Write:
    """A translation takes the place of its source; what would be a line break becomes a space."""
    return lambda given, approve: [Edit(start, end, " ".join(each.text.splitlines())) for each in given if each is not None]
