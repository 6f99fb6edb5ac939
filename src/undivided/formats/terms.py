"""Glossaries: which words of a text have a translation that somebody has decided on. TSV, CSV and TBX."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.core.ids import TERM_MARKS
from undivided.formats.languages import matches_language
from undivided.formats.markup import find_words
from undivided.formats.protection import Protected, replace_spans
from undivided.formats.text_file import read_text
from undivided.formats.xml_file import Element, InlineRules, parse_elements, read_marked

MAX_BYTES = 64 << 20
"""Most bytes of a glossary."""
LEAST_STEM, STEM, LONGEST_ENDING = 3, 0.7, 4
"""Letters that forms of a word share at least, their share of the shorter form, and how many may follow them."""
KINDS = {".tsv": "\t", ".csv": ","}
ENTRIES, LANGUAGES = ("termEntry", "conceptEntry"), ("langSet", "langSec")
"""Names of TBX, of version 2 and of version 3."""


class Term(NamedTuple):
    """Some words and what they are translated into."""

    source: str
    target: str


class Glossary:
    """Terms that are looked up in a text, whatever their case: whole words, the longest term first."""

    def __init__(self, terms: Iterable[Term]) -> None:
        self.terms: dict[tuple[str, ...], Term] = {}
        self._longest: dict[str, int] = {}
        for term in terms:
            words = tuple(_words(term.source))
            if words and term.target.strip():
                self.terms.setdefault(words, term)
                self._longest[words[0]] = max(len(words), self._longest.get(words[0], 0))

    def __len__(self) -> int:
        return len(self.terms)

    def find(self, text: str) -> list[tuple[Protected, Term]]:
        """The terms of a text, in order; of those that overlap, the first and longest. What is put there is the translation."""
        spans, words = find_words(text), list(_words(text))
        found, place = list[tuple[Protected, Term]](), 0
        while place < len(words):
            size = next(self._sizes(words, place), 0)
            if size:
                term = self.terms[tuple(words[place : place + size])]
                start, end = spans[place].start, spans[place + size - 1].end
                found.append((Protected(start, end, "term", term.target), term))
            place += max(1, size)
        return found

    def _sizes(self, words: list[str], place: int) -> Iterator[int]:
        """How many words the terms have that begin here, the longest first."""
        for size in range(self._longest.get(words[place], 0), 0, -1):
            if tuple(words[place : place + size]) in self.terms:
                yield size

    def find_missed(self, source: str, target: str, may_inflect: bool = False) -> list[Term]:
        """Terms of the source whose translation the target does not have, whatever its case; an ending may follow it.

        With `may_inflect`, words that begin like those of the term will do.
        """
        low = target.casefold()
        words = list(_words(target)) if may_inflect else []
        return [
            term
            for _, term in self.find(source)
            if term.target.casefold() not in low and not (may_inflect and _has_forms(list(_words(term.target)), words))
        ]

    def annotate(self, text: str) -> str:
        """A text in which every term is followed by its translation between marks, as a model that learned them reads it."""
        return annotate(text, [span for span, _ in self.find(text)])


def annotate(text: str, spans: Sequence[Protected]) -> str:
    """A text in which each of these spans, which are in order, is followed by what is to be put there, between marks."""
    begin, end = TERM_MARKS
    return replace_spans(text, [(span, f"{text[span.start : span.end]} {begin} {span.text} {end}") for span in spans])


def share_stem(word: str, other: str) -> bool:
    """Whether two words, in lower case, may be forms of one: they begin alike for most of the shorter one, and nearly end alike."""
    least = min(len(word), len(other))
    same = next((place for place in range(least) if word[place] != other[place]), least)
    return same >= LEAST_STEM and same >= STEM * least and max(len(word), len(other)) - same <= LONGEST_ENDING


def _has_forms(wanted: Sequence[str], words: Sequence[str]) -> bool:
    """Whether there are words in a row that are forms of those wanted."""
    size = len(wanted)
    rows = (words[place : place + size] for place in range(len(words) - size + 1))
    return bool(wanted) and any(all(a == b or share_stem(a, b) for a, b in zip(wanted, row, strict=True)) for row in rows)


def _words(text: str) -> Iterator[str]:
    return (text[span.start : span.end].casefold() for span in find_words(text))


def read_glossary(path: str | Path, source_lang: str = "", target_lang: str = "") -> Glossary:
    """The terms of a file; a TBX must have both languages."""
    path = Path(path)
    kind = path.suffix.lower()
    if kind not in (*KINDS, ".tbx"):
        raise InputError(f"{path}: a glossary is a .tsv, .csv or .tbx file")
    try:
        file = read_text(read_bounded(path, MAX_BYTES), str(path))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    if kind == ".tbx":
        found = Glossary(_tbx_terms(file.text, str(path), source_lang, target_lang))
    else:
        found = Glossary(_table_terms(file.text, str(path), KINDS[kind]))
    if not found.terms:
        raise InputError(f"{path}: holds no term")
    return found


def _table_terms(text: str, name: str, separator: str) -> Iterator[Term]:
    lines = text.splitlines()
    try:
        rows = csv.reader(lines) if separator == "," else (line.split(separator) for line in lines)
        for number, row in enumerate(rows, 1):
            if not any(map(str.strip, row)) or row[0].startswith("#"):
                continue
            if len(row) < 2 or not row[0].strip() or not row[1].strip():
                what = "tab" if separator == "\t" else "comma"
                raise InputError(f"{name}, line {number:,}: a term and its translation are needed, with a {what} between them")
            yield Term(row[0].strip(), row[1].strip())
    except csv.Error as error:
        raise InputError(f"{name}: cannot be read as a table: {error}") from None


def _tbx_terms(text: str, name: str, source_lang: str, target_lang: str) -> Iterator[Term]:
    if not source_lang or not target_lang:
        raise InputError(f"{name}: the model does not say its languages, so a .tbx cannot be read; use a .tsv")
    for entry in _named(parse_elements(text), ENTRIES):
        sides: tuple[list[str], list[str]] = ([], [])
        for section in _named(entry, LANGUAGES):
            language = section.attributes.get("xml:lang", section.attributes.get("lang", ""))
            marked = [read_marked(text, each.inner, each.inner_end, InlineRules()) for each in _named(section, ("term",))]
            terms = [each.text.strip() for each in marked]
            for wanted, side in zip((source_lang, target_lang), sides, strict=True):
                if matches_language(language, wanted):
                    side.extend(filter(None, terms))
        if sides[1]:
            yield from (Term(source, sides[1][0]) for source in sides[0])


def _named(top: Element, names: tuple[str, ...]) -> Iterator[Element]:
    """The elements of these names within another, not those within each other."""
    waiting = list(reversed(top.children))
    while waiting:
        element = waiting.pop()
        if element.local in names:
            yield element
        else:
            waiting += reversed(element.children)
