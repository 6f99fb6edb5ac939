"""TMX 1.4: translation units; read as a stream to train from, edited in place to translate."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import BinaryIO
from xml.parsers import expat

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, Unit, Write
from undivided.formats.languages import matches_language
from undivided.formats.text_file import TextFile
from undivided.formats.xml_file import Element, InlineRules, forbid_declarations, parse_elements, read_marked, write_marked

RULES = InlineRules(
    codes=frozenset({"bpt", "ept", "ph", "it", "ut", "sub"}),
    opening=frozenset({"bpt"}),
    closing=frozenset({"ept"}),
    words=frozenset({"ph"}),
)
BLOCK = 1 << 16


def parse_tmx(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each unit that has the source language."""
    text, root = file.text, parse_elements(file.text)
    if root.local != "tmx":
        raise InputError(f"{file.name}: not a TMX file: its first element is <{root.name}>")
    header = root.child("header")
    source_lang = options.source_lang or (header.attributes.get("srclang", "") if header else "")
    body = root.child("body")
    tus = [each for each in body.children if each.local == "tu"] if body else []
    if source_lang in ("", "*all*") and tus:
        source_lang = next((_language(each) for each in tus[0].children if each.local == "tuv"), "")
    target_lang = options.target_lang
    segments, units = SegmentList(text), list[Unit]()
    for tu in tus:
        variants = [each for each in tu.children if each.local == "tuv" and each.child("seg")]
        source = next((each for each in variants if matches_language(_language(each), source_lang)), None)
        if source is None:
            continue
        others = [each for each in variants if each is not source]
        target = next((each for each in others if not target_lang or matches_language(_language(each), target_lang)), None)
        marked, old = _seg(text, source), _seg(text, target).text if target else ""
        if marked.text.strip():
            segment = segments.add(source.start, marked, tu.attributes.get("tuid", ""), old, "done" if old.strip() else "new")
            units.append(Unit([segment], _writer(text, source, target, target_lang)))
    found = {_language(each) for tu in tus[:100] for each in tu.children if each.local == "tuv"}
    foreign = sorted(each for each in found if not matches_language(each, source_lang))
    return SplicedText(units, source_lang, target_lang or (foreign[0] if len(foreign) == 1 else ""))


def _language(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")


def _seg(text: str, variant: Element) -> Marked:
    seg = variant.child("seg")
    return read_marked(text, seg.inner, seg.inner_end, RULES) if seg else Marked("")


def _writer(text: str, source: Element, target: Element | None, language: str) -> Write:
    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        content = f"<seg>{write_marked(given[0]) if given[0] else ''}</seg>"
        if target is not None:
            seg = target.child("seg")
            return [Edit(seg.start, seg.end, content)] if seg else []
        before = text[text.rfind("\n", 0, source.start) + 1 : source.start]
        end = "\r\n" if "\r\n" in text[:2000] else "\n"
        gap = f"{end}{before}" if not before.strip() else ""
        return [Edit(source.end, source.end, f'{gap}<tuv xml:lang="{language or "und"}">{content}</tuv>')]

    return write


class _Reader:
    """Collects the variants of one unit at a time."""

    def __init__(self) -> None:
        self.ready: list[dict[str, str]] = []
        self.unit: dict[str, str] = {}
        self.language = ""
        self.parts: list[str] | None = None
        self.codes = 0
        self.root = ""

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self.root = self.root or name
        if name == "tu":
            self.unit = {}
        elif name == "tuv":
            self.language = attributes.get("xml:lang") or attributes.get("lang", "")
        elif name == "seg":
            self.parts, self.codes = [], 0
        elif name in RULES.codes:
            self.codes += 1

    def end(self, name: str) -> None:
        if name == "seg" and self.parts is not None:
            self.unit.setdefault(self.language, re.sub(r"\s+", " ", "".join(self.parts)).strip())
            self.parts = None
        elif name == "tu":
            self.ready.append(self.unit)
        elif name in RULES.codes and self.parts is not None:
            self.codes -= 1

    def text(self, content: str) -> None:
        if self.parts is not None and not self.codes:
            self.parts.append(content)


def stream_units(stream: BinaryIO, name: str) -> Iterator[dict[str, str]]:
    """The units of a TMX file as texts by language, without markup. Memory does not grow with the file."""
    parser, reader = expat.ParserCreate(), _Reader()
    forbid_declarations(parser, name)
    parser.StartElementHandler, parser.EndElementHandler = reader.start, reader.end
    parser.CharacterDataHandler = reader.text
    try:
        while block := stream.read(BLOCK):
            parser.Parse(block, False)
            if reader.root not in ("", "tmx"):
                raise InputError(f"{name}: not a TMX file: its first element is <{reader.root}>")
            yield from reader.ready
            reader.ready.clear()
        parser.Parse(b"", True)
        yield from reader.ready
    except expat.ExpatError as error:
        raise InputError(f"{name}, line {error.lineno:,}: not well-formed XML: {expat.ErrorString(error.code)}") from None
    except (ValueError, LookupError) as error:
        raise InputError(f"{name}: cannot be read as XML: {error}") from None
