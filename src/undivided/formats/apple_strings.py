"""Apple's .strings: `"key" = "value";`, the values translated in place."""

from __future__ import annotations

import re

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, SegmentList, SplicedText, Unit, Write
from undivided.formats.text_file import TextFile

TOKEN = re.compile(
    r"\s+|/\*(?P<comment>.*?)\*/|//[^\r\n]*"
    r'|(?P<key>"(?:[^"\\]|\\.)*"|(?<![\w.$-])[\w.$-]++)\s*+(?:=\s*+(?P<value>"(?:[^"\\]|\\.)*")\s*+)?;',
    re.DOTALL,
)
ESCAPE = re.compile(r"\\(U[0-9a-fA-F]{4}|u[0-9a-fA-F]{4}|[0-7]{3}|.)", re.DOTALL)
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "\n": ""}


def parse_strings(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each value, with the comment before it as its context."""
    segments, units, comment = SegmentList(file.text), list[Unit](), ""
    place = 0
    while place < len(file.text):
        found = TOKEN.match(file.text, place)
        if found is None:
            line = file.text.count("\n", 0, place) + 1
            raise InputError(f'{file.name}, line {line:,}: expected "key" = "value"; or a comment')
        place = found.end()
        if found["comment"] is not None:
            comment = found["comment"].strip()
        elif found["key"] is not None:
            start, end = found.span("value") if found["value"] is not None else (-1, -1)
            text = unescape_string(file.text[start + 1 : end - 1]) if start >= 0 else ""
            if text.strip():
                key = unescape_string(found["key"].strip('"'))
                segment = segments.add(start, text, f"{key}: {comment}" if comment else key, key=key)
                units.append(Unit([segment], _write_over(start + 1, end - 1)))
            comment = ""
    return SplicedText(units)


def _write_over(start: int, end: int) -> Write:
    return lambda given, approve: [Edit(start, end, escape_string(each.text)) for each in given if each is not None]


def unescape_string(text: str) -> str:
    """The characters that a quoted string stands for."""

    def resolve(found: re.Match[str]) -> str:
        code = found[1]
        if code[0] in "uU" and len(code) == 5:
            value = int(code[1:], 16)
            return found[0] if 0xD800 <= value <= 0xDFFF else chr(value)
        return LETTERS.get(code, code if len(code) == 1 else chr(int(code, 8)))

    return ESCAPE.sub(resolve, text)


def escape_string(text: str) -> str:
    """Text within quotes."""
    text = text.replace("\\", "\\\\").replace('"', '\\"')
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
