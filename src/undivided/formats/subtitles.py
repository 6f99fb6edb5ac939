"""Subtitles, SRT and WebVTT: the text of each cue; numbers, times, positions and notes stay."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, Tag, Unit, Write
from undivided.formats.text_file import TextFile
from undivided.formats.xml_file import pair_up

TIMES = re.compile(
    r"(?<!\d)(?:\d{1,4}:)?\d{1,2}:\d{2}[.,]\d{1,3}[ \t]{0,20}-->"
    r"[ \t]{0,20}(?:\d{1,4}:)?\d{1,2}:\d{2}[.,]\d{1,3}[^\r\n]*(?:\r\n|\n|\r|\Z)"
)
BLANK = re.compile(r"(?:\r\n|\n|\r(?!\n))[ \t]*(?:\r\n|\n|\r|\Z)|\Z")
MARKUP = re.compile(r"<(?P<close>/)?(?P<name>[a-zA-Z]\w*|\d[\d:.]*)?[^<>\r\n]*>|\{\\[^{}\r\n]*\}")
DIALOGUE = re.compile(r"\A\s{0,9}[-–—]\s{0,9}\S")
END = re.compile(r"\r\n|\n|\r")


def parse_srt(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each cue, or for each line of a dialogue."""
    return _parse(file)


def parse_vtt(file: TextFile, options: DocumentOptions) -> SplicedText:
    """As SRT, behind the line `WEBVTT`."""
    if not file.text.startswith("WEBVTT"):
        raise InputError(f"{file.name}, line 1: a WebVTT file begins with WEBVTT")
    return _parse(file)


def _parse(file: TextFile) -> SplicedText:
    text, place = file.text, 0
    segments, units = SegmentList(text), list[Unit]()
    while found := TIMES.search(text, place):
        line_start = max(text.rfind("\n", 0, found.start()), text.rfind("\r", 0, found.start())) + 1
        if text[line_start : found.start()].strip():
            place = found.end()
            continue
        stop = None if END.match(text, found.end()) else BLANK.search(text, found.end())
        end = stop.start() if stop else found.end()
        for number, (start, finish) in enumerate(_parts(text, found.end(), end)):
            marked = read_cue(text[start:finish])
            if marked.text.strip():
                key = f"{found[0].split('-->')[0].strip().replace('.', ',')} {number}"
                units.append(Unit([segments.add(start, marked, key=key)], _writer(start, finish, text[start:finish])))
        place = max(end, found.end())
    if not units and text.strip() and not text.startswith("WEBVTT") and "-->" not in text:
        raise InputError(f"{file.name}: no subtitles; expected times such as 00:01:02,000 --> 00:01:04,000")
    return SplicedText(units)


def _parts(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """The whole cue, or each of its lines where two people speak."""
    lines, place = [], start
    for found in [*END.finditer(text, start, end), None]:
        lines.append((place, found.start() if found else end))
        place = found.end() if found else end
    lines = [each for each in lines if text[slice(*each)].strip()]
    if len(lines) > 1 and all(DIALOGUE.match(text[slice(*each)]) for each in lines):
        yield from lines
    elif lines:
        yield lines[0][0], lines[-1][1]


def read_cue(raw: str) -> Marked:
    """The text of a cue in one line, and its markup."""
    parts, tags, stack, place, length, pairs = list[str](), list[Tag](), list[tuple[str, int]](), 0, 0, 0
    for found in [*MARKUP.finditer(raw), None]:
        piece = re.sub(r"(?<![ \t])[ \t]*(?:\r\n|\n|\r)[ \t]*", " ", raw[place : found.start() if found else len(raw)])
        parts.append(piece)
        length += len(piece)
        if found is None:
            break
        place, name = found.end(), found["name"] or ""
        if found["close"] and stack and stack[-1][0] == name:
            tags.append(Tag(length, found[0], "close", stack.pop()[1]))
        elif name and not found["close"] and not name[0].isdigit():
            pairs += 1
            stack.append((name, pairs))
            tags.append(Tag(length, found[0], "open", pairs))
        else:
            tags.append(Tag(length, found[0], "alone"))
    return Marked("".join(parts), pair_up(tags))


def _writer(start: int, end: int, old: str) -> Write:
    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        return [Edit(start, end, write_cue(each, old)) for each in given if each is not None]

    return write


def write_cue(marked: Marked, old: str) -> str:
    """A translation in about as many lines as the cue had. What would end a cue, or begin its markup, is kept out."""
    text, place, parts = marked.text, 0, list[str]()
    for tag in marked.tags:
        parts += [_clean(text[place : tag.place]), tag.raw]
        place = tag.place
    written = "".join([*parts, _clean(text[place:])])
    rows = len(END.split(old.strip()))
    if rows < 2:
        return written
    end = found[0] if (found := END.search(old)) else "\n"
    for width in range(max(1, len(written) // rows), len(written) + 1):
        lines = textwrap.wrap(written, width, break_long_words=False, break_on_hyphens=False)
        if len(lines) <= rows:
            return end.join(lines)
    return written


def _clean(text: str) -> str:
    return END.sub(" ", text).replace("-->", "→")
