"""Markdown: paragraphs, headings, items and table cells; code, addresses, HTML and front matter stay."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from undivided.formats.contract import DocumentOptions, Edit, Marked, Role, SegmentList, SplicedText, Tag, Unit, Write
from undivided.formats.text_file import TextFile
from undivided.formats.xml_file import pair_up

LINE = re.compile(r"[^\n]*\n|[^\n]+")
PREFIX = re.compile(
    r"\A(?:[ \t]{0,3}>[ \t]?|[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?|[ \t]{0,3}#{1,6}[ \t]+"
    r"|[ \t]{0,3}\[\^[^\]\s]+\]:[ \t]+)*[ \t]*"
)
FENCE = re.compile(r"\A[ \t>]*(?:[-*+][ \t]+)?(`{3,}|~{3,})")
DEFINITION = re.compile(r"\A[ \t]{0,3}\[(?!\^)[^\]]+\]:\s")
HTML_BLOCK = re.compile(r"\A[ \t]{0,3}<(?:[a-zA-Z/!?])")
ANEW = re.compile(r"\A[ \t>]*(?:[-*+][ \t]|\d{1,9}[.)][ \t]|#{1,6}[ \t]|\[\^[^\]\s]+\]:[ \t])")
"""What begins an item, a heading or a footnote."""
HEADING = re.compile(r"\A[ \t>]*#{1,6}[ \t]")
FRONT = ("---", "+++")
INLINE = re.compile(
    r"(?P<code>(?<!`)(`{1,3})(?!`)[^`]{1,2000}?(?<!`)\2(?!`))|(?P<escape>\\[^\w\s])|(?P<auto><(?:https?:|mailto:)[^<>\s]+>)"
    r"|(?P<html><!--.{0,2000}?-->|</?[a-zA-Z][^<>]{0,500}>)|(?P<image>!\[[^\[\]]{0,500}\](?:\([^()\s]{0,1000}(?:\s+\"[^\"]{0,500}\")?\)|\[[^\[\]]{0,200}\]))"
    r"|(?P<note>\[\^[^\[\]\s]{1,100}\])|(?P<link>\[)|(?P<end>\](?:\([^()\s]{0,1000}(?:\([^()\s]{0,500}\)[^()\s]{0,500})?(?:\s+\"[^\"]{0,500}\")?\)|\[[^\[\]]{0,200}\]))"
    r"|(?P<mark>\*{1,3}|_{1,3}|~~)|(?P<break>(?:(?<! ) {2,}|\\)\n)"
)


class Block(NamedTuple):
    """A stretch of lines that is one text."""

    start: int
    end: int
    following: str
    """What its second and later lines begin with."""
    is_cell: bool = False


def parse_markdown(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each block of text."""
    segments, units = SegmentList(file.text), list[Unit]()
    for block in _Scanner(file.text).blocks():
        raw = file.text[block.start : block.end]
        marked = read_inline(_join(raw))
        if marked.text.strip():
            units.append(Unit([segments.add(block.start, marked)], _writer(block, raw)))
    return SplicedText(units)


def _join(raw: str) -> str:
    """The lines of a block as one, without what they begin with."""
    lines = raw.replace("\r\n", "\n").split("\n")
    rows = [lines[0], *(re.sub(r"\A[ \t]*+(?:>[ \t]?)*+[ \t]*+", "", line) for line in lines[1:])]
    joined = ""
    for number, row in enumerate(rows):
        is_break = row.endswith(("  ", "\\")) and number < len(rows) - 1
        joined += row + ("\n" if is_break else " " if number < len(rows) - 1 else "")
    return joined


class _Scanner:
    """Finds the blocks of text, line by line."""

    def __init__(self, text: str) -> None:
        self.text, self.lines = text, list(LINE.finditer(text))
        self.skip = ""
        """The fence or front matter that must end before text goes on."""
        self.in_html = False
        self.block: Block | None = None

    def blocks(self) -> Iterator[Block]:
        """Paragraphs, headings, items, cells; everything else is passed over."""
        for number, found in enumerate(self.lines):
            line = found[0].rstrip("\r\n")
            if self._is_skipped(number, line):
                continue
            is_new = bool(ANEW.match(line))
            is_kept = self._is_kept(number, line, is_new)
            if self.block and (is_kept or is_new or _is_row(line)):
                yield self.block
                self.block = None
            if not is_kept:
                yield from self._read(line, found.start(), is_new)
        if self.block:
            yield self.block

    def _is_skipped(self, number: int, line: str) -> bool:
        stripped = line.strip()
        if number == 0 and stripped in FRONT and any(each[0].strip() == stripped for each in self.lines[1:200]):
            self.skip = stripped
            return True
        if not self.skip:
            return False
        fence = FENCE.match(line)
        is_fence_end = bool(fence and fence[1].startswith(self.skip) and not stripped.strip("> `~"))
        if stripped == self.skip if self.skip in FRONT else is_fence_end:
            self.skip = ""
        return True

    def _is_kept(self, number: int, line: str, is_new: bool) -> bool:
        """Whether a line holds no text: blank, code, HTML, a rule, a definition."""
        stripped, fence = line.strip("> \t"), FENCE.match(line)
        begins_html = self.block is None and HTML_BLOCK.match(line) and not re.match(r"<(?:https?|mailto):", line.lstrip())
        self.in_html = (self.in_html and bool(stripped)) or bool(begins_html)
        if fence:
            self.skip = fence[1]
        is_code = self.block is None and line.startswith(("    ", "\t")) and not is_new and not _in_list(self.lines, number)
        return not stripped or bool(fence) or self.in_html or is_code or bool(DEFINITION.match(line)) or _is_rule(stripped)

    def _read(self, line: str, start: int, is_new: bool) -> Iterator[Block]:
        is_heading = bool(HEADING.match(line))
        end = start + len(_heading(line) if is_heading else line.rstrip())
        found = PREFIX.match(line)
        content = start + (found.end() if found else 0)
        if _is_row(line):
            yield from _cells(self.text, start, start + len(line))
        elif self.block:
            self.block = Block(self.block.start, end, _prefix(line))
        elif content < end:
            block = Block(content, end, " " * (content - start) if is_new else _prefix(line))
            if is_heading:
                yield block
            else:
                self.block = block


def _heading(line: str) -> str:
    """The line of a heading without the signs that may end it."""
    body = line.rstrip()
    short = body.rstrip("#")
    return short.rstrip() if short != body and short[-1:].isspace() else body


def _prefix(line: str) -> str:
    found = re.match(r"\A[ \t]*+(?:>[ \t]?)*+[ \t]*+", line)
    return found[0] if found else ""


def _in_list(lines: Sequence[re.Match[str]], number: int) -> bool:
    """Whether an indented line belongs to an item above it."""
    for place in range(number - 1, max(-1, number - 50), -1):
        line = lines[place][0]
        if re.match(r"\A[ \t]*(?:[-*+]|\d{1,9}[.)])[ \t]", line):
            return True
        if line.strip() and not line.startswith((" ", "\t")):
            return False
    return False


def _is_rule(stripped: str) -> bool:
    """Whether a line is a rule, the line under a heading, or the one under the head of a table."""
    letters = set(stripped) - {" ", "\t"}
    return (letters in ({"-"}, {"*"}, {"_"}, {"="}) and len(stripped) > 1) or (
        "-" in letters and "|" in letters and letters <= set("|:-")
    )


def _is_row(line: str) -> bool:
    stripped = line.strip().lstrip("> ")
    return stripped.startswith("|") and stripped.endswith("|") and stripped.count("|") > 2


def _cells(text: str, start: int, end: int) -> Iterator[Block]:
    for found in re.finditer(r"(?:[^|\\`\n]|\\.|`[^`\n]*`|`)+", text[start:end]):
        cell = found[0]
        begin = start + found.start() + len(cell) - len(cell.lstrip())
        if cell.strip(" >"):
            yield Block(begin, begin + len(cell.strip()), "", is_cell=True)


def read_inline(text: str) -> Marked:
    """Text and inline markup: emphasis and links as pairs; code, images, addresses and HTML as tags that stand alone."""
    parts, tags, length, pairs, place = list[str](), list[Tag](), 0, 0, 0
    stack: list[tuple[str, int]] = []
    for found in [*INLINE.finditer(text), None]:
        piece = text[place : found.start() if found else len(text)]
        if found and found.lastgroup == "escape":
            piece += found[0][1]
        parts.append(piece)
        length += len(piece)
        if found is None:
            break
        place, raw, kind = found.end(), found[0], _kind(found)
        after, before = text[place : place + 1], text[found.start() - 1 : found.start()]
        if kind == "mark":
            closes = any(name == raw for name, _ in stack) and bool(before.strip())
            opens = bool(after.strip()) and not (raw[0] == "_" and before.isalnum())
            if closes and stack[-1][0] == raw:
                tags.append(Tag(length, raw, "close", stack.pop()[1]))
            elif opens:
                pairs += 1
                stack.append((raw, pairs))
                tags.append(Tag(length, raw, "open", pairs))
            else:
                parts.append(raw)
                length += len(raw)
        elif kind == "link":
            pairs += 1
            stack.append(("[", pairs))
            tags.append(Tag(length, raw, "open", pairs))
        elif kind == "end" and any(name == "[" for name, _ in stack):
            while stack[-1][0] != "[":
                stack.pop()
            tags.append(Tag(length, raw, "close", stack.pop()[1]))
        elif kind != "escape":
            tags.append(Tag(length, raw, "alone", role=_role(kind, raw)))
    return Marked("".join(parts), pair_up(tags))


def _role(kind: str, raw: str) -> Role:
    """What a tag that stands alone is in its sentence."""
    if kind == "break" or re.match(r"<br\b", raw, re.IGNORECASE):
        return "break"
    return "word" if kind in ("code", "auto", "image") else ""


def _kind(found: re.Match[str]) -> str:
    return next(name for name, value in found.groupdict().items() if value is not None)


def escape_markdown(text: str) -> str:
    """Text in which nothing is taken for markup."""
    text = re.sub(r"([\\`*\[\]<]|(?<!\w)_|_(?!\w)|~~)", r"\\\1", text)
    return re.sub(r"\A(\s*)([#>+-]|\d{1,9}[.)])(?=\s)", r"\1\\\2", text)


def _writer(block: Block, raw: str) -> Write:
    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        return [Edit(block.start, block.end, write_block(each, raw, block)) for each in given if each is not None]

    return write


def write_block(marked: Marked, raw: str, block: Block) -> str:
    """A block, wrapped to the width that it had."""
    parts, place, following = list[str](), 0, block.following

    def escape(text: str) -> str:
        written = escape_markdown(text)
        return written.replace("|", "\\|") if block.is_cell else written

    for tag in marked.tags:
        parts += [escape(marked.text[place : tag.place]), tag.raw]
        place = tag.place
    written = "".join([*parts, escape(marked.text[place:])])
    lines = raw.splitlines()
    end = "\r\n" if "\r\n" in raw else "\n"
    if len(lines) < 2 or "\n" in written:
        return (end + following).join(row.rstrip("\n") for row in written.split("\n"))
    width = max(20, *map(len, lines))
    rows = textwrap.wrap(written, width, break_long_words=False, break_on_hyphens=False) or [""]
    # A line must not begin with what would make it an item or a heading.
    rows = [rows[0], *(re.sub(r"\A([#>+-]|\d{1,9}[.)])(?=\s|$)", r"\\\1", row) for row in rows[1:])]
    return (end + following).join(rows)
