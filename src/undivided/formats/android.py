"""Android's strings.xml: the values of `string`, `item` of `string-array` and `plurals`, translated in place."""

from __future__ import annotations

import re

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, Unit, Write
from undivided.formats.text_file import TextFile
from undivided.formats.xml_file import Element, InlineRules, escape, like, parse_elements, read_marked, write_marked

ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|\"|[ \t\r\n]+", re.DOTALL)
LETTERS = {"n": "\n", "t": "\t"}


def parse_android(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each string that may be translated and is no reference to another."""
    root = parse_elements(file.text)
    if root.local != "resources":
        raise InputError(f"{file.name}: not Android resources: the first element is <{root.name}>")
    segments, units = SegmentList(file.text), list[Unit]()
    for element in root.children:
        if element.attributes.get("translatable") == "false" or element.local not in ("string", "string-array", "plurals"):
            continue
        for number, value in enumerate([element] if element.local == "string" else element.children):
            marked = _read(file.text, value)
            if marked.text.strip() and not re.match(r"[@?][\w:.+-]+/", marked.text):
                key = "/".join(filter(None, [element.attributes.get("name", ""), value.attributes.get("quantity", "")]))
                aligned = f"{key}/{number}" if element.local == "string-array" else key
                segment = segments.add(value.inner, marked, key, key=aligned)
                units.append(Unit([segment], _write_over(file.text, value)))
    return SplicedText(units)


def _read(text: str, value: Element) -> Marked:
    """The text without Android's escapes and quotes; elements such as `xliff:g` that must not be translated are one tag."""
    raw = read_marked(text, value.inner, value.inner_end, InlineRules(codes=frozenset({"g"}), words=frozenset({"g"})))
    parts, places, quoted, place = list[str](), dict[int, int](), False, 0
    length = 0
    tokens = [*ESCAPE.finditer(raw.text)]
    for found in [*tokens, None]:
        stop = found.start() if found else len(raw.text)
        for each in range(place, stop + 1):
            places[each] = length + each - place
        parts.append(raw.text[place:stop])
        length += stop - place
        if found is None:
            break
        new, quoted = _resolve(found, quoted)
        parts.append(new)
        length += len(new)
        place = found.end()
    places[len(raw.text)] = length
    tags = tuple(tag._replace(place=_mapped(places, tag.place)) for tag in raw.tags)
    return Marked("".join(parts), tags)


def _mapped(places: dict[int, int], place: int) -> int:
    """A place of the escaped text in the unescaped one; within an escape, the one before it."""
    while place not in places:
        place -= 1
    return places[place]


def _resolve(found: re.Match[str], quoted: bool) -> tuple[str, bool]:
    token = found[0]
    if token == '"':
        return "", not quoted
    if not token.startswith("\\"):
        return (token if quoted else " "), quoted
    code = found[1]
    if len(code) == 5:
        value = int(code[1:], 16)
        return (token if 0xD800 <= value <= 0xDFFF else chr(value)), quoted
    return LETTERS.get(code, code), quoted


def _write_over(text: str, value: Element) -> Write:
    start, end = value.inner, value.inner_end
    return lambda given, approve: [Edit(start, end, like(text[start:end], _write(each))) for each in given if each is not None]


def _write(marked: Marked) -> str:
    written = write_marked(marked, escape_android)
    # Spaces at the ends would be dropped, and a first @ or ? be read as a reference.
    return re.sub(r"\A | \Z", r"\\u0020", re.sub(r"\A([@?])", r"\\\1", written))


def escape_android(text: str) -> str:
    """Text with what Android would take for its own escaped."""
    text = text.replace("\\", "\\\\").replace("'", "\\'").replace('"', '\\"').replace("\n", "\\n").replace("\t", "\\t")
    # XML would read a carriage return as a line feed.
    text = text.replace("\r", "\\u000d")
    # Several spaces in a row would be collapsed.
    return re.sub(r"(?<= ) ", r"\\u0020", escape(text))
