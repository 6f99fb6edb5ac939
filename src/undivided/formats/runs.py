"""Paragraphs of DOCX, PPTX and XLSX: runs of text with a style each. The style of most of the text is the base; others are tags."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from undivided.formats.contract import Edit, Marked, Role, SegmentList, Tag, Unit
from undivided.formats.nested import hole
from undivided.formats.xml_file import Element, escape, unescape

PROPERTIES = {"pPr", "endParaRPr", "rPh", "phoneticPr"}
WRAPPERS = {"hyperlink", "ins", "moveTo", "smartTag", "sdtContent"}
BREAKS = {"br", "cr", "tab", "ptab"}


class Item(NamedTuple):
    """What a paragraph is made of."""

    kind: str
    """`text`, `inside` (alone, within a run), `alone` (between runs), `open` or `close` (around runs)."""
    raw: str
    style: str = ""
    role: Role = ""


class Paragraph(NamedTuple):
    """The runs of a paragraph and how they are written."""

    marked: Marked
    start: int
    end: int
    begin: str
    finish: str


def read_paragraph(text: str, paragraph: Element) -> Paragraph | None:
    """The text of a paragraph; None where it has none, or where it is part of a longer field."""
    content = [each for each in paragraph.children if each.local not in PROPERTIES]
    items = list(_items(text, content))
    if not any(item.kind == "text" and item.raw.strip() for item in items) or any(item.kind == "unbalanced" for item in items):
        return None
    run = next(each for each in paragraph.descend() if each.local == "r" and each is not paragraph)
    letter = next(each for each in run.descend() if each.local == "t").name if any(e.local == "t" for e in run.descend()) else None
    letter = letter or run.name.removesuffix("r") + "t"
    space = "" if letter.startswith("a:") else ' xml:space="preserve"'
    sizes = Counter[str]()
    for item in items:
        sizes[item.style] += len(item.raw) if item.kind == "text" else 0
    base = sizes.most_common(1)[0][0]
    begin, finish = f"<{run.name}>{base}<{letter}{space}>", f"</{letter}></{run.name}>"
    marked = _mark(items, base, (run.name, letter, space))
    return Paragraph(marked, content[0].start, content[-1].end, begin, finish)


def _items(text: str, content: Sequence[Element]) -> Iterator[Item]:
    field_start, depth = -1, 0
    for element in content:
        marks = [each.attributes.get("w:fldCharType") for each in element.children if each.local == "fldChar"]
        if marks or field_start >= 0:
            field_start = element.start if field_start < 0 else field_start
            depth += marks.count("begin") - marks.count("end")
            if depth < 0:
                yield Item("unbalanced", "")
                return
            if depth == 0:
                yield Item("alone", hole(field_start, element.end))
                field_start = -1
        elif element.local == "r":
            yield from _run_items(text, element)
        elif (holder := _holder(element)) and holder.child("r") and not _has_field(element):
            yield Item("open", text[element.start : holder.inner])
            yield from _items(text, [each for each in holder.children if each.local not in PROPERTIES])
            yield Item("close", text[holder.inner_end : element.end])
        elif element.local != "proofErr":
            yield Item("alone", hole(element.start, element.end), role="break" if element.local in BREAKS else "")
    if field_start >= 0:
        yield Item("unbalanced", "")


def _holder(element: Element) -> Element | None:
    """What holds the runs of an element around runs: itself, or the content of a control."""
    inner = element.child("sdtContent") if element.local == "sdt" else element
    return inner if inner and inner.local in WRAPPERS else None


def _has_field(element: Element) -> bool:
    return any(each.local == "fldChar" for each in element.descend())


def _run_items(text: str, run: Element) -> Iterator[Item]:
    properties = run.child("rPr")
    style = text[properties.start : properties.end] if properties else ""
    for element in run.children:
        if element.local == "t":
            yield Item("text", unescape(text[element.inner : element.inner_end]), style)
        elif element.local not in ("rPr", "lastRenderedPageBreak"):
            yield Item("inside", hole(element.start, element.end), style, "break" if element.local in BREAKS else "")


def _mark(items: Sequence[Item], base: str, names: tuple[str, str, str]) -> Marked:
    run, letter, space = names
    stop, begin = f"</{letter}></{run}>", f"<{letter}{space}>"
    parts, tags, length, pairs = list[str](), list[Tag](), 0, 0
    style, wrapped = base, list[tuple[int, str]]()

    def switch(new: str) -> None:
        """Close the tag of one style, and open that of another."""
        nonlocal style, pairs
        if style != base:
            tags.append(Tag(length, f"{stop}<{run}>{base}{begin}", "close", pairs))
        if new != base:
            pairs += 1
            tags.append(Tag(length, f"{stop}<{run}>{new}{begin}", "open", pairs))
        style = new

    for number, item in enumerate(items):
        if item.kind == "open":
            switch(base)
            pairs += 1
            inner = next((each.style for each in items[number + 1 :] if each.kind == "text"), base)
            wrapped.append((pairs, inner))
            tags.append(Tag(length, f"{stop}{item.raw}<{run}>{inner}{begin}", "open", pairs))
        elif item.kind == "close":
            tags.append(
                Tag(
                    length,
                    f"{stop}{item.raw}<{run}>{wrapped[-2][1] if len(wrapped) > 1 else base}{begin}",
                    "close",
                    wrapped.pop()[0],
                )
            )
        elif item.kind == "alone":
            if not wrapped:
                switch(base)
            around = wrapped[-1][1] if wrapped else base
            tags.append(Tag(length, f"{stop}{item.raw}<{run}>{around}{begin}", "alone", role=item.role))
        elif item.kind == "inside":
            tags.append(Tag(length, f"</{letter}>{item.raw}{begin}", "alone", role=item.role))
        else:
            if not wrapped and item.style != style:
                switch(item.style)
            parts.append(item.raw)
            length += len(item.raw)
    if not wrapped:
        switch(base)
    return Marked("".join(parts), tuple(tags), is_flat=True)


def write_paragraph(paragraph: Paragraph, marked: Marked) -> Edit:
    """The runs of a translated paragraph, without empty ones."""
    parts, place = [paragraph.begin], 0
    for tag in marked.tags:
        parts += [escape(marked.text[place : tag.place]), tag.raw]
        place = tag.place
    written = "".join([*parts, escape(marked.text[place:]), paragraph.finish])
    written = written.replace(paragraph.begin + paragraph.finish, "")
    letter = paragraph.finish.partition(">")[0].removeprefix("</")
    opening = paragraph.begin[paragraph.begin.rfind("<") :]
    if not opening.startswith("<a:"):
        written = written.replace(f"{opening}</{letter}>", "")
    return Edit(paragraph.start, paragraph.end, written)


def paragraph_units(text: str, root: Element, segments: SegmentList, names: set[str]) -> Iterator[Unit]:
    """A unit for each paragraph of runs."""
    for element in root.descend():
        found = read_paragraph(text, element) if element.local in names else None
        if found:

            def write(given: Sequence[Marked | None], approve: bool, found: Paragraph = found) -> list[Edit]:
                return [write_paragraph(found, each) for each in given if each is not None]

            yield Unit([segments.add(element.start, found.marked)], write)
