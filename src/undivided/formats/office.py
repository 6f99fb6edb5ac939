"""DOCX, PPTX, XLSX, ODT, ODP, ODS and EPUB: the paragraphs of their parts; styles, pictures, formulas and links stay."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.formats.archive import Archive
from undivided.formats.contract import DocumentOptions, Edit, Marked, Segment, SegmentList, SplicedText, Tag, Unit, as_marked
from undivided.formats.html import parse_html, read_html
from undivided.formats.nested import apply_nested, hole
from undivided.formats.runs import paragraph_units
from undivided.formats.text_file import TextFile
from undivided.formats.xml_file import Element, InlineRules, parse_elements, read_marked, read_xml, write_marked

HOLDERS = frozenset({
    "note", "frame", "annotation", "annotation-end", "custom-shape", "text-box", "g", "bookmark-ref", "sequence", "page-number",
    "page-count", "date", "time", "ruby-text", "tracked-changes",
})  # fmt: skip
"""Elements within a paragraph of OpenDocument that are no part of its text; they may hold paragraphs of their own."""


def parse_word(file: TextFile, options: DocumentOptions) -> SplicedText:
    """The paragraphs of a part of a DOCX or PPTX file."""
    return SplicedText(list(paragraph_units(file.text, parse_elements(file.text), SegmentList(file.text), {"p"})))


def parse_strings_table(file: TextFile, options: DocumentOptions) -> SplicedText:
    """The texts of an XLSX file: shared strings, and those that stand in cells."""
    text, segments = file.text, SegmentList(file.text)
    units = list[Unit]()
    for element in parse_elements(text).descend():
        simple = element.child("t") if element.local in ("si", "is") else None
        if simple is not None and not element.child("r"):
            marked = read_marked(text, simple.inner, simple.inner_end, InlineRules())
            if marked.text.strip():
                units.append(Unit([segments.add(element.start, marked)], _cell_writer(simple)))
        elif element.local in ("si", "is"):
            units += paragraph_units(text, element, segments, {element.local})
    return SplicedText(units)


def _cell_writer(simple: Element) -> Callable[[Sequence[Marked | None], bool], list[Edit]]:
    name = simple.name

    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        content = write_marked(given[0]) if given[0] else ""
        return [Edit(simple.start, simple.end, f'<{name} xml:space="preserve">{content}</{name}>')]

    return write


def parse_open_document(file: TextFile, options: DocumentOptions) -> SplicedText:
    """The paragraphs and headings of a part of an ODT, ODP or ODS file."""
    text, segments, units = file.text, SegmentList(file.text), list[Unit]()
    rules = InlineRules(codes=HOLDERS, breaks=frozenset({"line-break", "tab"}))
    for element in parse_elements(text).descend():
        if element.name not in ("text:p", "text:h") or element.is_empty:
            continue
        marked = read_marked(text, element.inner, element.inner_end, rules)
        if marked.text.strip():
            # What is below the paragraph may hold paragraphs that are translated too.
            below = _places(text, element)
            tags = tuple(tag if tag.raw not in below else tag._replace(raw=below[tag.raw]) for tag in marked.tags)
            collapsed = _collapse(Marked(marked.text, tags))
            units.append(Unit([segments.add(element.start, collapsed)], _paragraph_writer(element)))
    return SplicedText(units)


def _places(text: str, element: Element) -> dict[str, str]:
    inside = [each for each in element.descend() if each is not element and each.local in HOLDERS]
    return {text[each.start : each.end]: hole(each.start, each.end) for each in inside}


def _collapse(marked: Marked) -> Marked:
    """White space counts as one space."""
    text, places = list[str](), list[int]()
    for letter in marked.text:
        places.append(len(text))
        if letter not in " \t\r\n":
            text.append(letter)
        elif not text or text[-1] != " ":
            text.append(" ")
    places.append(len(text))
    return Marked("".join(text), tuple(Tag(min(places[tag.place], len(text)), *tag[1:]) for tag in marked.tags))


def _paragraph_writer(element: Element) -> Callable[[Sequence[Marked | None], bool], list[Edit]]:
    return lambda given, approve: [Edit(element.inner, element.inner_end, write_marked(each)) for each in given if each is not None]


def parse_navigation(file: TextFile, options: DocumentOptions) -> SplicedText:
    """The table of contents of an EPUB 2 file."""
    segments, units = SegmentList(file.text), list[Unit]()
    for element in parse_elements(file.text).descend():
        if (
            element.local == "text"
            and (marked := read_marked(file.text, element.inner, element.inner_end, InlineRules())).text.strip()
        ):
            units.append(Unit([segments.add(element.start, marked)], _paragraph_writer(element)))
    return SplicedText(units)


class Part(NamedTuple):
    """Which members of an archive are read how."""

    names: re.Pattern[str]
    parse: Callable[[TextFile, DocumentOptions], SplicedText]
    read: Callable[[bytes, str], TextFile] = read_xml


OPEN_DOCUMENT = (Part(re.compile(r"\A(?:content|styles)\.xml\Z"), parse_open_document),)
OFFICE_FORMATS: dict[str, tuple[Part, ...]] = {
    "docx": (Part(re.compile(r"\Aword/(?:document|header\d*|footer\d*|footnotes|endnotes)\.xml\Z"), parse_word),),
    "pptx": (Part(re.compile(r"\Appt/(?:slides/slide|notesSlides/notesSlide)\d+\.xml\Z"), parse_word),),
    "xlsx": (Part(re.compile(r"\Axl/(?:sharedStrings|worksheets/sheet\d+)\.xml\Z"), parse_strings_table),),
    "odt": OPEN_DOCUMENT,
    "odp": OPEN_DOCUMENT,
    "ods": OPEN_DOCUMENT,
    "epub": (
        Part(re.compile(r"\.(?:xhtml|html?)\Z", re.IGNORECASE), parse_html, read_html),
        Part(re.compile(r"\.ncx\Z", re.IGNORECASE), parse_navigation),
    ),
}


class OfficeDocument:
    """A document whose parts are members of a zip archive."""

    def __init__(self, format: str, data: bytes, name: str, options: DocumentOptions) -> None:
        self.format, self.source_lang, self.target_lang = format, "", ""
        self.archive = Archive(data, name)
        self.parts = [self._open(member, part, options) for member, part in self._members()]
        if not self.parts:
            raise InputError(f"{name}: no {format} document: it has none of the parts that hold text")
        self._segments: list[Segment] = []
        self._owners: list[tuple[int, int]] = []
        for number, (_, _, content) in enumerate(self.parts):
            for segment in (each for unit in content.units for each in unit.segments):
                self._owners.append((number, segment.number))
                self._segments.append(replace(segment, number=len(self._segments), line=0))

    def _members(self) -> Iterator[tuple[str, Part]]:
        for member in self.archive.names():
            part = next((each for each in OFFICE_FORMATS[self.format] if each.names.search(member)), None)
            if part:
                yield member, part

    def _open(self, member: str, part: Part, options: DocumentOptions) -> tuple[str, TextFile, SplicedText]:
        file = part.read(self.archive.read(member), f"{self.archive.name}: {member}")
        return member, file, part.parse(file, options)

    def segments(self) -> Sequence[Segment]:
        """All paragraphs, part by part."""
        return self._segments

    def save(self, translations: Mapping[int, Marked | str], approve: bool = False) -> bytes:
        """The archive with these translations."""
        by_part: dict[int, dict[int, Marked]] = {}
        for number, each in as_marked(translations).items():
            part, local = self._owners[number]
            by_part.setdefault(part, {})[local] = each
        changed = {}
        for part, given in by_part.items():
            member, file, content = self.parts[part]
            changed[member] = file.encode(apply_nested(file.text, content.edits(given, approve)))
        return self.archive.replace(changed)
