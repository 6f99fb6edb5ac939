"""A whole document through a `Translator`: what serve, the command line and Python share. Importing this must not import torch."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Unpack

from undivided.formats.contract import Document
from undivided.formats.markup import Aligner
from undivided.formats.walk import SegmentResult, SentenceResult, WalkOptions, choose_segments, save_document, translate_segments
from undivided.inference.alignment import make_aligner
from undivided.inference.search_settings import SearchChanges
from undivided.inference.translation import Translation
from undivided.inference.translator import Translator
from undivided.inference.verdicts import Usual, Verdict, judge


@dataclass(frozen=True)
class DocumentResult:
    """A translated document, and what became of each segment."""

    document: Document
    data: bytes
    """The document with its translations."""
    results: list[SegmentResult]

    @property
    def left(self) -> int:
        """Segments that were not translated."""
        return len(self.document.segments()) - len(self.results)

    def remarks(self) -> Iterator[str]:
        """What a person should know, segment by segment."""
        for result in self.results:
            yield from describe_segment(result)


def judge_segment(result: SegmentResult, usual: Usual) -> Verdict:
    """The verdict on a segment: the gravest of its sentences, then that on its inline markup."""
    if result.is_kept:
        return Verdict("kept" if result.segment.text.strip() else "empty")
    if result.is_broken:
        return Verdict("broken-text", "the source holds bytes that are no text; they were read as \ufffd")
    verdicts = [_judge_sentence(each, usual) for each in result.sentences]
    gravest = next((each for each in verdicts if not each.is_sound), None)
    if gravest is None and not result.is_placed:
        return Verdict("tag-misplaced", "the model does not tell where the inline markup belongs")
    if gravest is None and verdicts and all(each.name in ("reused", "kept") for each in verdicts):
        return Verdict("reused", "taken from the translation memory")
    return gravest or (Verdict("copied") if result.target.text == result.segment.text else Verdict("ok"))


def _judge_sentence(result: SentenceResult, usual: Usual) -> Verdict:
    if not isinstance(result.raw, Translation):
        return Verdict("kept")
    # The engine saw symbols where something is protected; what counts is what was put back.
    return judge(dataclasses.replace(result.raw, source=result.sentence.text, text=result.text), usual)


def describe_segment(result: SegmentResult) -> Iterator[str]:
    """Warnings on the translation of a segment."""
    segment = result.segment
    where = f"line {segment.line}" if segment.line else f"segment {segment.number + 1}"
    for sentence in result.sentences:
        for fault in sentence.faults:
            what = "is lost" if not fault.found else f"is there {fault.found} times instead of {fault.wanted}"
            yield f"{where}: {fault.text} {what} in the translation"
        if isinstance(sentence.raw, Translation) and not sentence.raw.finished:
            yield f"{where}: the translation did not end by itself and was cut (--max-extra allows more)"
    if not result.is_placed:
        yield f"{where}: the model does not tell where the inline markup belongs, so it encloses the whole sentence"
    if result.is_broken:
        yield f"{where}: not valid UTF-8, the broken parts are read as \ufffd"


def translate_document(
    translator: Translator,
    document: Document,
    everything: bool = False,
    approve: bool = False,
    advance: Callable[[int], None] = lambda count: None,
    is_stopped: Callable[[], bool] = lambda: False,
    align: Aligner | None = None,
    **changes: Unpack[SearchChanges],
) -> DocumentResult | None:
    """Translate what a document has untranslated, or everything; None where it was stopped before it was done.

    Inline markup goes where `align` says, by default the heads of the model that align best.
    """
    options = WalkOptions(everything, approve, translator.artifact.recipe.data.source_lang, codes=bool(translator.symbols))

    def translate(texts: Sequence[str]) -> list[Translation]:
        results = list(translator.stream(texts, advance=advance, is_stopped=is_stopped, **changes))
        if len(results) < len(texts):
            raise _Interrupted
        return results

    try:
        aligner = align or make_aligner(translator.artifact)
        results = translate_segments(choose_segments(document, everything), translate, options, aligner, document.format)
    except _Interrupted:
        return None
    return DocumentResult(document, save_document(document, results, approve), results)


class _Interrupted(Exception):
    """The search was stopped."""
