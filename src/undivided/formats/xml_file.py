"""XML as text with places: checked by expat, with nothing declared and nothing loaded, then edited in place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn
from xml.parsers import expat

from undivided.core.errors import InputError
from undivided.formats.contract import Marked, Role, Tag, TagKind
from undivided.formats.text_file import MARKS, TextFile, read_text

DECLARED = re.compile(rb"""<\?xml[^>]{0,200}?encoding\s*=\s*["']([A-Za-z][\w.:-]*)["']""")
MAX_DEPTH = 500
TOKEN = re.compile(
    r"""<!--.*?-->|<!\[CDATA\[(?P<cdata>.*?)\]\]>|<\?.*?\?>|<!(?:[^<>"']|"[^"]*"|'[^']*')*>"""
    r"""|<(?P<close>/)?(?P<name>[^\s/>!?"'<]+)(?P<attributes>(?:[^<>"']|"[^"<]*"|'[^'<]*')*?)(?P<empty>/)?>""",
    re.DOTALL,
)
ATTRIBUTE = re.compile(r"""(?<=[\s"'])([^\s=/>"']{1,200})\s{0,50}=\s{0,50}(?:"([^"]*)"|'([^']*)')""")
REFERENCE = re.compile(r"&(#[0-9]{1,7}|#x[0-9a-fA-F]{1,6}|\w+);")
NAMED = {"amp": "&", "lt": "<", "gt": ">", "quot": '"', "apos": "'"}


def forbid_declarations(parser: expat.XMLParserType, name: str) -> None:
    """Refuse entities and what declares them; a DTD that is only named is never loaded."""

    def refuse(*_: object) -> NoReturn:
        raise InputError(
            f"{name}, line {parser.CurrentLineNumber:,}: declares or uses entities, which is refused; expand them first"
        )

    def doctype(_name: str, _system: str | None, _public: str | None, has_subset: int) -> None:
        if has_subset:
            refuse()

    parser.StartDoctypeDeclHandler = doctype
    parser.EntityDeclHandler = parser.UnparsedEntityDeclHandler = refuse
    parser.SkippedEntityHandler = parser.ExternalEntityRefHandler = refuse


def read_xml(data: bytes, name: str) -> TextFile:
    """The text of an XML file that is well-formed, and declares and loads nothing."""
    found = None if any(data.startswith(mark) for mark, _ in MARKS) else DECLARED.match(data.lstrip()[:300])
    file = read_text(data, name, found.group(1).decode("ascii") if found else "utf-8", "xmlcharrefreplace")
    parser = expat.ParserCreate("UTF-8")
    forbid_declarations(parser, name)
    depth = [0]

    def enter(*_: object) -> None:
        depth[0] += 1
        if depth[0] > MAX_DEPTH:
            raise InputError(f"{name}, line {parser.CurrentLineNumber:,}: elements are nested more than {MAX_DEPTH} deep")

    def leave(*_: object) -> None:
        depth[0] -= 1

    parser.StartElementHandler, parser.EndElementHandler = enter, leave
    try:
        parser.Parse(file.text.encode("utf-8", "strict"), True)
    except expat.ExpatError as error:
        raise InputError(f"{name}, line {error.lineno:,}: not well-formed XML: {expat.ErrorString(error.code)}") from None
    return file


@dataclass
class Element:
    """An element and where it stands."""

    name: str
    attributes: dict[str, str]
    start: int
    inner: int
    """Where its content begins, behind the start tag."""
    inner_end: int = -1
    end: int = -1
    parent: Element | None = field(default=None, repr=False)
    children: list[Element] = field(default_factory=list, repr=False)

    @property
    def local(self) -> str:
        """Its name without the prefix of a namespace."""
        return self.name.rpartition(":")[2]

    @property
    def is_empty(self) -> bool:
        """Whether it is written `<name/>`."""
        return self.inner == self.end

    def child(self, local: str) -> Element | None:
        """Its first child of this name."""
        return next((each for each in self.children if each.local == local), None)

    def descend(self) -> Iterator[Element]:
        """It and all below it, in the order of the file."""
        waiting = [self]
        while waiting:
            element = waiting.pop()
            yield element
            waiting += reversed(element.children)


def parse_elements(text: str) -> Element:
    """The elements of a checked XML text."""
    top = Element("", {}, 0, 0, len(text), len(text))
    stack = [top]
    for token in TOKEN.finditer(text):
        if token["name"] is None:
            continue
        if token["close"]:
            stack[-1].inner_end, stack[-1].end = token.start(), token.end()
            stack.pop()
            continue
        attributes = {name: unescape(double or single) for name, double, single in ATTRIBUTE.findall(token["attributes"])}
        element = Element(token["name"], attributes, token.start(), token.end(), parent=stack[-1])
        stack[-1].children.append(element)
        if token["empty"]:
            element.inner_end = element.end = token.end()
        else:
            stack.append(element)
    return top.children[0]


def unescape(text: str) -> str:
    """Text with XML's references resolved."""

    def resolve(found: re.Match[str]) -> str:
        name = found[1]
        if name.startswith("#"):
            code = int(name[2:], 16) if name[1] == "x" else int(name[1:])
            return chr(code) if code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF else found[0]
        return NAMED.get(name, found[0])

    return REFERENCE.sub(resolve, text) if "&" in text else text


FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Characters that XML cannot hold."""


def escape(text: str) -> str:
    """Text as the content of an element."""
    return FORBIDDEN.sub("\ufffd", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def escape_quotes(text: str) -> str:
    """Text as the content of an element, or the value of an attribute."""
    return escape(text).replace('"', "&quot;").replace("'", "&apos;")


LINE_BREAK = re.compile(r"""\bctype\s*=\s*["'](?:lb|x-lb|x-html-br)["']""", re.IGNORECASE)
"""How XLIFF says that a code is a line break."""


class InlineRules(NamedTuple):
    """Which inline elements hold code instead of text, and which of these open and close a span."""

    codes: frozenset[str] = frozenset()
    """Their content is no text: the whole element is one tag."""
    opening: frozenset[str] = frozenset()
    closing: frozenset[str] = frozenset()
    pair_keys: tuple[str, ...] = ("rid", "i", "startRef", "id")
    unescape: Callable[[str], str] = unescape
    words: frozenset[str] = frozenset()
    """Elements that stand in a sentence as a word does."""
    breaks: frozenset[str] = frozenset()
    """Elements that end a line."""

    def role(self, name: str, raw: str) -> Role:
        """What an element that stands alone is in its sentence."""
        if name in self.breaks or (name in self.words and LINE_BREAK.search(raw)):
            return "break"
        return "word" if name in self.words else ""


def read_marked(text: str, start: int, end: int, rules: InlineRules) -> Marked:
    """The content between two places as text and inline markup."""
    parts: list[str] = []
    tags: list[Tag] = []
    length = pairs = 0
    opened: list[int] = []
    keys: dict[str, int] = {}
    place = start

    def add(content: str) -> None:
        nonlocal length
        parts.append(content)
        length += len(content)

    while place < end:
        token = TOKEN.search(text, place, end)
        add(rules.unescape(text[place : token.start() if token else end]))
        if token is None:
            break
        raw, place, name = token[0], token.end(), (token["name"] or "").rpartition(":")[2]
        kind: TagKind = "alone"
        pair = 0
        if token["cdata"] is not None:
            add(token["cdata"])
            continue
        if name in rules.codes and not token["empty"]:
            place = _end_of(text, token, end)
            raw = text[token.start() : place]
        if name in rules.opening or name in rules.closing:
            found = {key: one or two for key, one, two in ATTRIBUTE.findall(token["attributes"])}
            key = next((found[each] for each in rules.pair_keys if each in found), "")
            kind = "open" if name in rules.opening else "close"
            if kind == "open":
                pairs += 1
                keys[key] = pairs
            pair = keys.pop(key, 0) if kind == "close" else pairs
        elif name and name not in rules.codes and not token["empty"]:
            if token["close"]:
                kind, pair = "close", opened.pop() if opened else 0
            else:
                pairs += 1
                opened.append(pairs)
                kind, pair = "open", pairs
        tags.append(Tag(length, raw, kind, pair, rules.role(name, raw) if kind == "alone" else ""))
    return Marked("".join(parts), pair_up(tags))


def pair_up(tags: list[Tag]) -> tuple[Tag, ...]:
    """Tags that open or close nothing, or whose spans cross, count as standing alone."""
    good: set[int] = set()
    stack: list[int] = []
    closes = {tag.pair for tag in tags if tag.kind == "close" and tag.pair}
    for tag in tags:
        if tag.kind == "open" and tag.pair in closes:
            stack.append(tag.pair)
        elif tag.kind == "close" and tag.pair in stack:
            while stack and stack.pop() != tag.pair:
                pass
            good.add(tag.pair)
    return tuple(tag if tag.kind == "alone" or tag.pair in good else Tag(tag.place, tag.raw, "alone") for tag in tags)


def _end_of(text: str, opening: re.Match[str], end: int) -> int:
    """Where an element ends, behind its closing tag."""
    depth, place = 1, opening.end()
    while depth and (token := TOKEN.search(text, place, end)):
        place = token.end()
        if token["name"] == opening["name"] and not token["empty"]:
            depth += -1 if token["close"] else 1
    return place


def write_marked(marked: Marked, escape: Callable[[str], str] = escape) -> str:
    """Text and inline markup as the content of an element."""
    parts, place = [], 0
    for tag in marked.tags:
        parts += [escape(marked.text[place : tag.place]), tag.raw]
        place = tag.place
    return "".join([*parts, escape(marked.text[place:])])


BEGIN_CDATA, END_CDATA = "<![CDATA[", "]]>"


def like(old: str, written: str) -> str:
    """Written content without elements in a CDATA section, where what it stands for was in one."""
    whole = old.strip()
    is_section = whole.startswith(BEGIN_CDATA) and whole.find(END_CDATA) == len(whole) - len(END_CDATA)
    if not is_section or "<" in written:
        return written
    return BEGIN_CDATA + unescape(written).replace(END_CDATA, f"]]{END_CDATA}{BEGIN_CDATA}>") + END_CDATA


def set_attribute(text: str, element: Element, name: str, value: str | None) -> str:
    """The start tag of an element with another value of an attribute, or without it."""
    tag = text[element.start : element.inner]
    found = next((each for each in ATTRIBUTE.finditer(tag) if each[1] == name), None)
    written = "" if value is None else f'{name}="{escape_quotes(value)}"'
    if found:
        before = tag[: found.start()].rstrip() if value is None else tag[: found.start()]
        return before + written + tag[found.end() :]
    if value is None:
        return tag
    stop = len(tag) - (2 if tag.endswith("/>") else 1)
    return f"{tag[:stop].rstrip()} {written}{tag[stop:]}"
