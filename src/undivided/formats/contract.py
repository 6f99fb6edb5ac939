"""The contract that every format keeps: a document gives segments and takes translations back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

TagKind = Literal["open", "close", "alone"]
Role = Literal["", "break", "word"]
State = Literal["new", "draft", "done"]


class Tag(NamedTuple):
    """A piece of inline markup."""

    place: int
    """How many characters of the text stand before it."""
    raw: str
    """The markup as the file writes it."""
    kind: TagKind
    pair: int = 0
    """The same number for an opening tag and the tag that closes it."""
    role: Role = ""
    """What it is in its sentence: a `break` ends it, a `word` stands in it as a word does, such as code."""


@dataclass(frozen=True)
class Marked:
    """Text without its inline markup, and the markup with its places."""

    text: str
    tags: tuple[Tag, ...] = ()
    is_flat: bool = False
    """Whether a span cannot hold another, as the runs of a DOCX paragraph."""


@dataclass(frozen=True)
class Segment:
    """A text to translate: a message, a paragraph, a subtitle."""

    number: int
    """Its place among the segments of the document, from 0."""
    source: Marked
    context: str = ""
    """What a translator would want to know: key, comment, disambiguation."""
    target: str = ""
    """The translation that the document has already, without markup."""
    state: State = "new"
    """`new`: has no translation; `draft`: has one that a person must still review; `done`: has one."""
    line: int = 0
    """Where it is in the file, from 1; 0 where a file has no lines."""
    key: str = ""
    """What the same text has in a catalogue of another language: a key, a time; empty where the format has none."""

    @property
    def text(self) -> str:
        """The source without markup."""
        return self.source.text


@dataclass(frozen=True)
class DocumentOptions:
    """What a format cannot know from the file alone."""

    source_lang: str = ""
    target_lang: str = ""
    source_column: str = ""
    """Column (CSV, TSV) or key (JSONL) of the source; empty: found by its name."""
    target_column: str = ""


class Document(Protocol):
    """A file of any format."""

    format: str
    source_lang: str
    """As the file says; empty where it does not."""
    target_lang: str

    def segments(self) -> Sequence[Segment]:
        """All texts that may be translated, in the order of the file."""

    def save(self, translations: Mapping[int, Marked | str], approve: bool = False) -> bytes:
        """The file with these translations, by the number of their segment; without any, the very bytes that were read.

        Translations are marked as in need of review where the format can say so, unless `approve`.
        """


class Edit(NamedTuple):
    """A replacement of some characters of a text."""

    start: int
    end: int
    text: str


Write = Callable[[Sequence[Marked | None], bool], Sequence[Edit]]
"""Translations of the segments of a unit, None where there is none, and whether they are approved → edits."""


class Unit(NamedTuple):
    """Segments that are written together, such as the plural forms of a message."""

    segments: Sequence[Segment]
    write: Write


class SplicedText(NamedTuple):
    """The units of a text that is edited in place: what is not translated stays as it is."""

    units: list[Unit]
    source_lang: str = ""
    target_lang: str = ""
    finish: Callable[[], Sequence[Edit]] = list
    """Edits of the header where anything was translated."""

    def edits(self, translations: Mapping[int, Marked], approve: bool) -> list[Edit]:
        """What the translations change."""
        found: list[Edit] = []
        for unit in self.units:
            given = [translations.get(segment.number) for segment in unit.segments]
            if any(each is not None for each in given):
                found += unit.write(given, approve)
        return [*self.finish(), *found] if translations else []


def apply_edits(text: str, edits: Sequence[Edit]) -> str:
    """A text with its edits, which must not overlap; equal ones count once."""
    parts, place = [], 0
    for start, end, new in sorted(dict.fromkeys(edits), key=lambda edit: (edit.start, edit.end)):
        if start < place:
            raise AssertionError(f"two edits of the same characters, at {start}")
        parts += [text[place:start], new]
        place = end
    return "".join([*parts, text[place:]])


def as_marked(translations: Mapping[int, Marked | str]) -> dict[int, Marked]:
    """Translations without markup become marked text too."""
    return {number: Marked(each) if isinstance(each, str) else each for number, each in translations.items()}


@dataclass
class SegmentList:
    """Numbers segments as a format finds them, and knows their lines."""

    text: str
    count: int = 0
    _line: int = 1
    _place: int = field(default=0, repr=False)

    def add(
        self, place: int, source: Marked | str, context: str = "", target: str = "", state: State = "new", key: str = ""
    ) -> Segment:
        """The next segment, which begins at this character of the file; places must not go back."""
        if place >= self._place:
            self._line += self.text.count("\n", self._place, place)
            self._place = place
        marked = Marked(source) if isinstance(source, str) else source
        segment = Segment(self.count, marked, context, target, state, self._line, key)
        self.count += 1
        return segment
