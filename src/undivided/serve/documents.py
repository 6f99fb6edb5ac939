"""Whole documents, and HTML, through the queue: the walk of `formats` in a thread, its sentences as texts of all other requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.formats import DocumentOptions, open_document
from undivided.formats.walk import SegmentResult, WalkOptions, choose_segments, save_document, translate_segments
from undivided.inference.alignment import make_aligner
from undivided.inference.documents import describe_segment
from undivided.inference.translation import Translation
from undivided.serve.errors import Refusal, busy
from undivided.serve.models import Route
from undivided.serve.texts import Translated, Translating

MOST_REMARKS = 50


class TranslatedDocument(NamedTuple):
    """A document with its translations, and what is to be said of it."""

    data: bytes
    translated: int
    left: int
    remarks: list[str]


class Documents:
    """Translates documents, a few at once."""

    def __init__(self, translating: Translating, most: int) -> None:
        self.translating, self.most, self.under_way = translating, most, 0
        self._pool = ThreadPoolExecutor(most + 4, thread_name_prefix="undivided-document")

    async def translate(
        self, data: bytes, format: str, name: str, route: Route, everything: bool = False, is_document: bool = True
    ) -> TranslatedDocument:
        """Translate what a document has untranslated, or everything; `Refusal` where it cannot be read or too many are at it."""
        if is_document and self.under_way >= self.most:
            raise busy(10)
        if not is_document and route.models:
            route.models[0].batcher.check_room()
        walk = _Walk(self.translating, route, asyncio.get_running_loop(), is_document)
        self.under_way += is_document
        try:
            work = asyncio.get_running_loop().run_in_executor(self._pool, walk.run, data, format, name, everything)
            return await work
        except InputError as error:
            raise Refusal(400, str(error)) from None
        finally:
            walk.cancel()
            self.under_way -= is_document

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)


class _Walk:
    """One document on its way, in a thread."""

    def __init__(self, translating: Translating, route: Route, loop: asyncio.AbstractEventLoop, is_document: bool) -> None:
        self.translating, self.route, self.loop, self.is_document = translating, route, loop, is_document
        self._waiting: Future[list[Translated]] | None = None
        self._cancelled = False

    def cancel(self) -> None:
        """Nobody waits any more."""
        self._cancelled = True
        if self._waiting is not None:
            self._waiting.cancel()

    def run(self, data: bytes, format: str, name: str, everything: bool) -> TranslatedDocument:
        """Open, translate, save."""
        document = open_document(data, format, DocumentOptions(self.route.source, self.route.target), name)
        options = WalkOptions(everything, source_lang=self.route.source)
        models = self.route.models
        align = make_aligner(models[0].translator.artifact) if len(models) == 1 else None
        results = translate_segments(choose_segments(document, everything), self._translate, options, align, document.format)
        remarks = list(_remarks(results, len(document.segments())))
        return TranslatedDocument(save_document(document, results), len(results), len(document.segments()) - len(results), remarks)

    def _translate(self, texts: Sequence[str]) -> list[Translation]:
        if self._cancelled:
            raise CancelledError
        work = self.translating.translate(self.route, texts, is_document=self.is_document)
        self._waiting = asyncio.run_coroutine_threadsafe(work, self.loop)
        return [_joined(each) for each in self._waiting.result()]


def _joined(result: Translated) -> Translation:
    """The pieces of a sentence as one translation."""
    found = [each.found for each in result.segments if each.found is not None]
    finished = all(each.finished for each in found)
    return Translation(result.source, result.text, result.score, finished)


def _remarks(results: Sequence[SegmentResult], segments: int) -> list[str]:
    if not results:
        return [f"nothing was translated: of {segments} segments none is without a translation"]
    found = [remark for result in results for remark in describe_segment(result)]
    more = [f"and {len(found) - MOST_REMARKS} more"] if len(found) > MOST_REMARKS else []
    kept = ["nothing was translated: no segment has words"] if all(result.is_kept for result in results) else []
    return kept + found[:MOST_REMARKS] + more
