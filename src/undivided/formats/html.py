"""HTML: the text between block elements; tags, attributes, scripts and code stay."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from undivided.formats.contract import DocumentOptions, Edit, Marked, Role, SegmentList, SplicedText, Tag, Unit, Write
from undivided.formats.text_file import TextFile, read_text
from undivided.formats.xml_file import escape, pair_up, write_marked

INLINE = frozenset({
    "a", "abbr", "acronym", "b", "bdi", "bdo", "big", "br", "cite", "code", "data", "del", "dfn", "em", "font", "i", "img",
    "input", "ins", "kbd", "mark", "nobr", "q", "ruby", "rb", "rt", "rp", "s", "samp", "small", "span", "strike", "strong",
    "sub", "sup", "time", "tt", "u", "var", "wbr",
})  # fmt: skip
VOID = frozenset(["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"])
KEPT = frozenset({
    "script", "style", "pre", "code", "kbd", "samp", "var", "tt", "textarea", "svg", "math", "template", "noscript", "object",
    "iframe", "canvas", "audio", "video",
})  # fmt: skip
"""Elements whose content is no text to translate: each is kept whole."""
CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?([A-Za-z][\w.:-]*)""", re.IGNORECASE)
NAME = re.compile(r"</?([a-zA-Z][^\s/>]*)")
STOP = re.compile(r"[>\"']")
FIXED = re.compile(r"""\stranslate\s*=\s*["']?no\b|\sclass\s*=\s*["'][^"']*\bnotranslate\b""", re.IGNORECASE)
LANGUAGE = re.compile(r"""\s(?:xml:)?lang\s*=\s*["']?([A-Za-z-]+)""")


class Token(NamedTuple):
    """A tag, comment or stretch of text."""

    start: int
    end: int
    name: str
    """Of a tag in small letters, with `/` before it where it closes; empty for text, `!` for comments and the like."""


def read_html(data: bytes, name: str) -> TextFile:
    """Decode as the page says."""
    found = CHARSET.search(data[:4096])
    codec = found.group(1).decode("ascii").lower() if found else "utf-8"
    return read_text(data, name, codec, "strict" if codec.replace("_", "-") in ("utf-8", "utf8") else "xmlcharrefreplace")


def tokenize(text: str) -> Iterator[Token]:
    """Tags and what is between them. Whatever is no markup is text."""
    place = at = 0
    open_quotes: set[str] = set()
    last = text.rfind(">")
    while (at := text.find("<", at)) >= 0:
        end = -1
        name = "!"
        if at > last and not text.startswith("<!--", at):
            break
        if text.startswith("<!--", at):
            end = text.find("-->", at + 4) + 3
            end = len(text) if end == 2 else end
        elif text[at + 1 : at + 2] in ("!", "?"):
            end = text.find(">", at) + 1
        elif found := NAME.match(text, at):
            end = _tag_end(text, found.end(), open_quotes)
            name = ("/" if text[at + 1] == "/" else "") + found[1].lower()
        if end <= at:
            at += 1
            continue
        if at > place:
            yield Token(place, at, "")
        yield Token(at, end, name)
        place = at = end
    if place < len(text):
        yield Token(place, len(text), "")


def _tag_end(text: str, place: int, open_quotes: set[str]) -> int:
    """Where a tag ends; `open_quotes` remembers which quotes are never closed behind here, so that nothing is searched twice."""
    while found := STOP.search(text, place):
        place = found.end()
        if found[0] == ">":
            return place
        if text[max(0, place - 40) : place - 1].rstrip().endswith("=") and found[0] not in open_quotes:
            end = text.find(found[0], place)
            if end < 0:
                open_quotes.add(found[0])
            else:
                place = end + 1
    return -1


def parse_html(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each stretch of text and inline tags between block elements."""
    text, segments, units = file.text, SegmentList(file.text), list[Unit]()
    for run in _runs(text):
        run = _trim(text, run)
        if run:
            marked = read_run(text, run)
            if marked.text.strip():
                start, end = run[0].start, run[-1].end
                units.append(Unit([segments.add(start, marked)], _writer(text, start, end)))
    page = next((each for each in islice(tokenize(text), 50) if each.name == "html"), None)
    language = LANGUAGE.search(text, page.start, page.end) if page else None

    def finish() -> list[Edit]:
        if not page or not language or not options.target_lang:
            return []
        return [Edit(*each.span(1), options.target_lang) for each in LANGUAGE.finditer(text, page.start, page.end)]

    return SplicedText(units, language[1] if language else "", finish=finish)


def _runs(text: str) -> Iterator[list[Token]]:
    """Stretches of text and inline tags; an element that is kept whole is one token."""
    run: list[Token] = []
    kept: Token | None = None
    depth = 0
    for token in tokenize(text):
        name = token.name
        if kept is not None:
            depth += (name == kept.name and text[token.end - 2] != "/") - (name == f"/{kept.name}")
            if depth == 0:
                whole = Token(kept.start, token.end, "!")
                run = [*run, whole] if kept.name in INLINE else run
                if kept.name not in INLINE:
                    yield run
                    run = []
                kept = None
            continue
        is_open = bool(name) and name[0] not in "/!" and name not in VOID and text[token.end - 2] != "/"
        if is_open and (name in KEPT or FIXED.search(text, token.start, token.end)):
            kept, depth = token, 1
        elif not name or name == "!" or name.removeprefix("/") in INLINE:
            run.append(token)
        else:
            yield run
            run = []
    if kept is None:
        yield run


def _trim(text: str, run: Sequence[Token]) -> list[Token]:
    """Without white space, comments and tags that stand alone at the ends."""
    found = list(run)
    for place in (0, -1):
        while found and (found[place].name in ("!", "br", "img", "input", "wbr") or _is_blank(text, found[place])):
            found.pop(place)
    return found


def _is_blank(text: str, token: Token) -> bool:
    return not token.name and not text[token.start : token.end].strip()


def read_run(text: str, run: Sequence[Token]) -> Marked:
    """Text and inline markup; white space counts as one space."""
    parts, tags, stack, length, pairs = list[str](), list[Tag](), list[tuple[str, int]](), 0, 0
    for token in run:
        raw, name = text[token.start : token.end], token.name
        if not name:
            piece = re.sub(r"[ \t\r\n\f]+", " ", html.unescape(raw))
            parts.append(piece)
            length += len(piece)
        elif name[0] == "/" and stack and stack[-1][0] == name[1:]:
            tags.append(Tag(length, raw, "close", stack.pop()[1]))
        elif name[0] in "/!" or name in VOID or raw.endswith("/>"):
            tags.append(Tag(length, raw, "alone", role=_role(raw, name)))
        else:
            pairs += 1
            stack.append((name, pairs))
            tags.append(Tag(length, raw, "open", pairs))
    return Marked("".join(parts), pair_up(tags))


def _role(raw: str, name: str) -> Role:
    """What a tag that stands alone is in its sentence; an element that is kept whole stands there as a word."""
    is_element = name == "img" or (name == "!" and raw[1:2] not in ("!", "?"))
    return "break" if name == "br" else "word" if is_element else ""


def _writer(text: str, start: int, end: int) -> Write:
    raw = text[start:end]
    before, after = raw[: len(raw) - len(raw.lstrip())], raw[len(raw.rstrip()) :]

    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        rows = [write_marked(each, escape) for each in given if each is not None]
        return [Edit(start, end, before + row.strip(" \t\r\n\f") + after) for row in rows]

    return write
