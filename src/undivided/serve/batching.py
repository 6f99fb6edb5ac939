"""Requests of all clients share batches: a bounded queue, batches by tokens with a small deadline, engine work in threads.

Everything here but `_run` happens on the event loop. Jobs take turns, an eighth of a batch at most, so that a request with many
texts does not hold up one with a single text; the texts of documents only fill what others leave.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from undivided.config.serve import ServeConfig
from undivided.core.signals import ENGINE_THREAD
from undivided.formats.terms import Glossary, Term
from undivided.inference.engines.contract import ConvertedEngine
from undivided.inference.search_settings import SearchChanges
from undivided.inference.translation import Translation
from undivided.inference.translator import Translator
from undivided.serve.errors import Refusal, busy

LANES = 2
"""Batches that a parallel engine is given at once: while one ends, the next is there already."""

SOON = 0.25
"""Seconds of work that are accepted of however many requests."""

DOCUMENT_TEXTS = 16
"""Texts of documents in a batch at most, so that a sentence that comes meanwhile waits for no more than these."""

DOCUMENT_SHARE = 8
"""One text in so many is a document's, where there are enough others to fill every batch."""


class Group(NamedTuple):
    """What texts of one batch have in common; 0 is the model's own."""

    beam_size: int = 0
    glossary: tuple[Term, ...] = ()
    """Terms of a request; they are decoded again where they are missed."""

    def apply(self, translator: Translator) -> Translator:
        """The translator with the terms of this group."""
        if not self.glossary:
            return translator
        own = copy.copy(translator)
        own.glossary = Glossary(self.glossary)
        return own

    def changes(self, n_best: int) -> SearchChanges:
        """As the translator takes it."""
        changes = SearchChanges(n_best=n_best)
        if self.beam_size:
            changes["beam_size"] = self.beam_size
        return changes


class Text(NamedTuple):
    """A text to translate by itself, and how many source subwords it has."""

    text: str
    tokens: int
    prefix: str = ""


class Runner(Protocol):
    """Who translates the batches of a queue."""

    lanes: int
    """Batches that it is given at once."""
    engines: int
    """Batches that it works on at once, each as fast as if it were alone."""

    def run(self, texts: Sequence[Text], group: Group, n_best: int) -> list[Translation]:
        """Translate a batch; called in a thread."""

    def close(self) -> None:
        """No more batches come."""


class OwnEngine:
    """The engine of this process."""

    def __init__(self, translator: Translator) -> None:
        self.translator, self.lanes = translator, LANES if translator.engine.is_parallel else 1
        self.engines = 1
        if isinstance(translator.engine, ConvertedEngine):
            translator.engine.is_shared = True
            self.engines = min(self.lanes, translator.engine.threads)

    def run(self, texts: Sequence[Text], group: Group, n_best: int) -> list[Translation]:
        """Translate a batch."""
        prefixes = [each.prefix for each in texts] if any(each.prefix for each in texts) else None
        translator = group.apply(self.translator)
        return list(translator.stream([each.text for each in texts], prefixes, **group.changes(n_best)))

    def close(self) -> None:
        """Nothing is to be ended."""


@dataclass(eq=False)
class _Job:
    """The texts of a request that are translated together."""

    texts: Sequence[Text]
    group: Group
    n_best: int
    is_document: bool
    done: asyncio.Future[None]
    on_result: Callable[[int, Translation], None]
    arrived: float
    """By the clock of the event loop."""
    taken: int = 0
    finished: int = 0
    is_closed: bool = False

    @property
    def waiting_tokens(self) -> int:
        return sum(each.tokens for each in self.texts[self.taken :])

    def weight(self, most: int) -> int:
        """What it counts for in the queue. Others wait for one of its texts at a time, however many it has; documents fill gaps."""
        return 0 if self.is_document else min(most, sum(each.tokens for each in self.texts))


class _Item(NamedTuple):
    job: _Job
    place: int


class Batcher:
    """The queue of one model and the threads that empty it."""

    def __init__(self, runner: Runner, config: ServeConfig) -> None:
        self.runner, self.config, self.lanes = runner, config, runner.lanes
        self.most = max(1, config.batch_tokens // 8)
        """What one job counts for at most, and what a batch takes of it in one turn."""
        self._pool = ThreadPoolExecutor(self.lanes, thread_name_prefix=ENGINE_THREAD)
        self._jobs: dict[bool, deque[_Job]] = {False: deque(), True: deque()}
        self._busy = self._under_way = 0
        self._half_done = 0.0
        """When half of what is under way is probably done: a batch that starts sooner would be smaller, and no answer earlier."""
        self.queued_tokens = 0
        """Source subwords that wait, those of documents aside: these wait for their turn before they come here."""
        self.load = 0
        """The weight of all jobs that wait or are under way."""
        self.requests = 0
        """How many these are, documents aside."""
        self.rate = 0.0
        """Source subwords in a second, as measured; 0 is not yet."""
        self.batches = self.translated_texts = self.translated_tokens = 0
        self._timer: asyncio.TimerHandle | None = None

    def check_room(self) -> None:
        """Refuse where too much is to be done already: beyond so many requests each waits longer, and no more are answered."""
        is_crowded = self.requests >= self.config.queue_requests and self.load >= self.least
        if is_crowded or self.load >= self.room:
            raise busy(self.load / max(1.0, self.rate))

    @property
    def least(self) -> int:
        """The load that is accepted however many requests it is of: half a batch, or what is done in a moment."""
        return max(self.config.batch_tokens // 2, round(self.rate * SOON))

    @property
    def room(self) -> int:
        """The load that is accepted: what takes not too long, as measured, but enough for a batch."""
        measured = max(self.config.batch_tokens // 2, round(self.rate * self.config.queue_seconds))
        return min(self.config.queue_tokens, measured) if self.rate else self.config.queue_tokens

    async def translate(
        self,
        texts: Sequence[Text],
        group: Group,
        n_best: int = 1,
        is_document: bool = False,
        on_result: Callable[[int, Translation], None] = lambda index, result: None,
    ) -> list[Translation]:
        """One translation for each text, in order. `Refusal` where the queue is full; whoever stops waiting leaves the queue."""
        if not texts:
            return []
        if not is_document:
            self.check_room()
        results: dict[int, Translation] = {}

        def collect(index: int, result: Translation) -> None:
            results[index] = result
            on_result(index, result)

        loop = asyncio.get_running_loop()
        job = _Job(texts, group, n_best, is_document, loop.create_future(), collect, loop.time())
        self._jobs[is_document].append(job)
        self.queued_tokens += 0 if is_document else job.waiting_tokens
        self.load += job.weight(self.most)
        self.requests += not is_document
        self._wake()
        try:
            await job.done
        finally:
            self._close(job)
        return [results[index] for index in range(len(texts))]

    def _close(self, job: _Job) -> None:
        """Take a job out of the queue, finished or not."""
        if not job.is_closed:
            job.is_closed = True
            self.load -= job.weight(self.most)
            self.requests -= not job.is_document
            if job.taken < len(job.texts):
                self.queued_tokens -= 0 if job.is_document else job.waiting_tokens
                self._jobs[job.is_document].remove(job)

    def _wake(self) -> None:
        """Start a batch if one is due, or see to it that this is asked again in time."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loop = asyncio.get_running_loop()
        while self._busy < self.lanes and any(self._jobs.values()):
            oldest = min(jobs[0].arrived for jobs in self._jobs.values() if jobs)
            due = max(oldest + self.config.batch_delay, self._half_done if self._busy >= self.runner.engines else 0.0)
            if due > loop.time() and self.queued_tokens < self.config.batch_tokens:
                self._timer = loop.call_at(due, self._wake)
                return
            self._start(self._take())

    def _take(self) -> list[_Item]:
        """The texts of the next batch: of others than documents first, but for a small share."""
        first = self._jobs[False] or self._jobs[True]
        group, items, room = first[0].group, list[_Item](), self.config.batch_tokens
        share = room // DOCUMENT_SHARE if self._jobs[True] else 0
        self._take_turns(self._jobs[False], group, room - share, room, items)
        count = DOCUMENT_TEXTS // DOCUMENT_SHARE if self._jobs[False] else DOCUMENT_TEXTS
        self._take_turns(self._jobs[True], group, max(share, room // 4 - _tokens(items)), count, items)
        return items

    def _take_turns(self, jobs: deque[_Job], group: Group, tokens: int, count: int, items: list[_Item]) -> None:
        """Take a turn of each job of a group, while there is room: the last text may be larger than what is left."""
        passed = 0
        while jobs and passed < len(jobs) and count > 0 and tokens > 0:
            job, turn = jobs[0], self.most
            if job.group != group:
                jobs.rotate(-1)
                passed += 1
                continue
            passed = 0
            while job.taken < len(job.texts) and count > 0 and tokens > 0:
                size = job.texts[job.taken].tokens
                if size > turn < self.most:
                    jobs.rotate(-1)
                    break
                items.append(_Item(job, job.taken))
                job.taken += 1
                tokens, count, turn = tokens - size, count - 1, turn - size
                self.queued_tokens -= 0 if job.is_document else size
            if job.taken == len(job.texts):
                jobs.popleft()

    def _start(self, items: list[_Item]) -> None:
        """Give a batch to a thread."""
        loop = asyncio.get_running_loop()
        self._busy += 1
        self._under_way += _tokens(items, documents=False)
        started = loop.time()
        self._half_done = started + self._under_way / (2 * self.rate) if self.rate else 0.0
        future = loop.run_in_executor(self._pool, self._run, [item.job.texts[item.place] for item in items], *_what(items))
        future.add_done_callback(lambda found: self._finish(items, started, found))

    def _finish(self, items: list[_Item], started: float, found: asyncio.Future[list[Translation | Exception]]) -> None:
        """Hand out the results of a batch."""
        self._busy -= 1
        self._under_way -= _tokens(items, documents=False)
        seconds, tokens = max(1e-4, asyncio.get_running_loop().time() - started), _tokens(items)
        rate = tokens / seconds * (1 + self._busy)
        self.rate += (0.2 if self.rate else 1.0) * (rate - self.rate)
        self.batches, self.translated_texts = self.batches + 1, self.translated_texts + len(items)
        self.translated_tokens += tokens
        for (job, index), result in zip(items, found.result(), strict=True):
            if job.is_closed or job.done.done():
                continue
            try:
                if isinstance(result, Exception):
                    raise result
                job.on_result(index, result)
            except Exception as error:  # A fault in one request must not keep the results of others back.
                job.done.set_exception(error)
                continue
            job.finished += 1
            if job.finished == len(job.texts):
                job.done.set_result(None)
        self._wake()

    def _run(self, texts: list[Text], group: Group, n_best: int) -> list[Translation | Exception]:
        """In a thread: translate a batch. Where it fails, one by one, so that only what is at fault fails."""
        try:
            return list[Translation | Exception](self.runner.run(texts, group, n_best))
        except Refusal as refusal:
            return [refusal] * len(texts)
        except Exception as error:
            return [error] if len(texts) == 1 else [self._run([each], group, n_best)[0] for each in texts]

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits or is under way."""
        return not self._busy and not any(self._jobs.values())

    async def close(self) -> None:
        """End the threads once nothing waits any more; new requests must go elsewhere by then."""
        while not self.is_idle:
            await asyncio.sleep(0.05)
        self._pool.shutdown(wait=False)
        await asyncio.to_thread(self.runner.close)


def _tokens(items: Sequence[_Item], documents: bool = True) -> int:
    return sum(item.job.texts[item.place].tokens for item in items if documents or not item.job.is_document)


def _what(items: Sequence[_Item]) -> tuple[Group, int]:
    """The group of a batch, and the most translations that one of its texts asks for."""
    return items[0].job.group, max(item.job.n_best for item in items)
