"""A document's way through translation, each step one function:

document → segments → sentences → protected text → (ids → hypotheses →) text → checked text → segments → document.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from undivided.formats.contract import Document, Marked, Segment
from undivided.formats.inline import BREAK, Lifted, blank_out, leave_out, lift, put_back
from undivided.formats.markup import Aligner, Link, Span, place_tags
from undivided.formats.protection import STAND_IN, Fault, check_protected, has_words, mask, put_shortcut, take_shortcut, unmask
from undivided.formats.sentences import Sentence, split_sentences
from undivided.formats.text_file import has_broken_bytes, readable

MAX_TAGS = 1000
"""A segment with more inline markup than that is no text: it is kept."""
LABELS = {"ts", "po"}
"""Formats in whose labels an `&` marks a keyboard shortcut."""


class Translated(Protocol):
    """What an engine made of a text; `undivided.inference.translation.Translation` is one."""

    @property
    def text(self) -> str: ...


@dataclass(frozen=True)
class SentenceResult:
    """A sentence, what the model was given and what came of it."""

    sentence: Sentence
    masked: str
    """What the model was given: protected text as symbols, if it has any."""
    raw: Translated | None
    """As the engine returned it; None where there was nothing to translate."""
    text: str
    """The translation, with what is protected put back."""
    faults: tuple[Fault, ...] = ()
    """What is protected and was lost or repeated."""


@dataclass(frozen=True)
class SegmentResult:
    """A segment and its translation: what a verdict is given on."""

    segment: Segment
    target: Marked
    sentences: tuple[SentenceResult, ...]
    is_placed: bool = True
    """Whether alignment told where all inline markup goes."""
    is_broken: bool = False
    """Whether the source holds bytes that are not valid text; they were read as \\ufffd."""

    @property
    def is_kept(self) -> bool:
        """Whether there was nothing to translate."""
        return all(each.raw is None for each in self.sentences)


@dataclass(frozen=True)
class WalkOptions:
    """How a document is translated."""

    everything: bool = False
    """Also what has a translation already."""
    approve: bool = False
    """Do not mark translations as in need of review."""
    source_lang: str = ""
    symbols: Sequence[str] = ()
    """Reserved subwords of the model that stand for protected text; a model may have none."""
    split: bool = True
    """Split segments into sentences."""
    codes: bool = False
    """Give the model letters for inline codes; one that has symbols puts them where they belong."""


def choose_segments(document: Document, everything: bool = False) -> list[Segment]:
    """Document → segments that are to be translated."""
    return [each for each in document.segments() if (everything or each.state == "new") and each.text.strip()]


@dataclass(frozen=True)
class _Prepared:
    segment: Segment
    lifted: Lifted
    sentences: list[Sentence]
    shortcut: str
    is_broken: bool


def prepare_segment(segment: Segment, options: WalkOptions, format: str = "") -> _Prepared:
    """Segment → sentences, without the mark of a shortcut and without broken bytes."""
    lifted = lift(segment.source)
    text, shortcut = take_shortcut(segment.text) if format in LABELS and not segment.source.tags else (lifted.marked.text, "")
    broken = has_broken_bytes(text) or "\0" in text
    sentences = split_sentences(text, options.source_lang) if options.split else [*map(_line, text.splitlines(keepends=True))]
    return _Prepared(segment, lifted, sentences, shortcut, broken)


def _line(line: str) -> Sentence:
    text = line.strip()
    start = line.index(text) if text else len(line)
    return Sentence(line[:start], text, line[start + len(text) :])


def finish_segment(
    prepared: _Prepared, results: Sequence[SentenceResult], links: Sequence[Sequence[Link] | None] | None = None
) -> SegmentResult:
    """Sentences → segment: joined with their own spaces, the inline markup carried over."""
    segment, lifted, parts = prepared.segment, prepared.lifted, list[str]()
    blocks, found, breaks = list[Link](), list[Link](), dict[int, int]()
    at, to = 0, 0
    for number, result in enumerate(results):
        before, text, after = result.sentence
        breaks.update((at + place, to + place) for place in range(len(before)))
        at, to = at + len(before), to + len(before)
        parts += [before, result.text, after]
        if text:
            blocks.append(Link(Span(at, at + len(text)), Span(to, to + len(result.text))))
        for ours, theirs, weight in (links[number] or ()) if links else ():
            found.append(Link(Span(ours.start + at, ours.end + at), Span(theirs.start + to, theirs.end + to), weight))
        at, to = at + len(text), to + len(result.text)
        breaks.update((at + place, to + place) for place in range(len(after)))
        at, to = at + len(after), to + len(after)
    target = put_shortcut("".join(parts), prepared.shortcut)
    if not segment.source.tags:
        return SegmentResult(segment, Marked(target), tuple(results), is_broken=prepared.is_broken)
    for place in lifted.letters:
        # A code is its own translation.
        if (letter := lifted.marked.text[place]) != BREAK and letter in target:
            stand = target.index(letter)
            found.append(Link(Span(place, place + 1), Span(stand, stand + 1)))
    placed = place_tags(lifted.without(target), target, found, blocks)
    sentences = tuple(map(_without_letters, results)) if lifted.letters else tuple(results)
    return SegmentResult(segment, put_back(placed.marked, lifted, breaks), sentences, placed.is_certain, prepared.is_broken)


def _without_letters(result: SentenceResult) -> SentenceResult:
    """As a person reads it, without the letters that stood for codes."""
    before, text, after = result.sentence
    faults = tuple(fault for fault in result.faults if not STAND_IN.search(fault.text))
    return replace(result, sentence=Sentence(before, leave_out(text), after), text=leave_out(result.text), faults=faults)


def translate_segments(
    segments: Sequence[Segment],
    translate: Callable[[Sequence[str]], Iterable[Translated]],
    options: WalkOptions | None = None,
    align: Aligner | None = None,
    format: str = "",
) -> list[SegmentResult]:
    """Segments → results, one for each, in order. `translate` is given all sentences at once."""
    options = options or WalkOptions()
    prepared = [prepare_segment(segment, options, format) for segment in segments]
    flat = [(sentence, len(each.segment.source.tags) <= MAX_TAGS) for each in prepared for sentence in each.sentences]
    wanted = [has_tags and has_words(sentence.text) for sentence, has_tags in flat]
    given = [sentence.text if options.codes else leave_out(sentence.text) for sentence, _ in flat]
    masked = [mask(readable(text), options.symbols) for text in given]
    answers = iter(translate([text.text for text, is_wanted in zip(masked, wanted, strict=True) if is_wanted]))
    sentences: list[SentenceResult] = []
    for (sentence, _), asked, text, is_wanted in zip(flat, given, masked, wanted, strict=True):
        if not is_wanted:
            sentences.append(SentenceResult(sentence, text.text, None, sentence.text))
            continue
        raw = next(answers)
        restored = unmask(raw.text, text.items)
        faults = tuple(check_protected(readable(asked), restored))
        sentences.append(SentenceResult(sentence, text.text, raw, restored, faults))
    links = _align(prepared, sentences, align)
    results, place = list[SegmentResult](), 0
    for each in prepared:
        stop = place + len(each.sentences)
        results.append(finish_segment(each, sentences[place:stop], links[place:stop] if links else None))
        place = stop
    return results


def _align(
    prepared: Sequence[_Prepared], sentences: Sequence[SentenceResult], align: Aligner | None
) -> list[Sequence[Link] | None] | None:
    """The links of the sentences whose segments have inline markup."""
    if align is None:
        return None
    needed = [bool(each.segment.source.tags) for each in prepared for _ in each.sentences]
    places = [number for number, each in enumerate(sentences) if needed[number] and each.raw is not None]
    links: list[Sequence[Link] | None] = [None] * len(sentences)
    if places:
        pairs = [_as_pair(sentences[number]) for number in places]
        for number, found in zip(places, align(pairs), strict=True):
            links[number] = found
    return links


def _as_pair(result: SentenceResult) -> tuple[str, str]:
    """A sentence and its translation, for alignment: what is in both aligns by itself, what is lost is blank."""
    source = readable(result.sentence.text)
    return (source, result.text) if STAND_IN.search(result.text) else (blank_out(source), result.text)


def save_document(document: Document, results: Iterable[SegmentResult], approve: bool = False) -> bytes:
    """Results → document. What had nothing to translate is written too where the format has a place for a target."""
    translations: Mapping[int, Marked | str] = {each.segment.number: each.target for each in results}
    return document.save(translations, approve)
