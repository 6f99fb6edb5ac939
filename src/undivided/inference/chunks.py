"""Lines in chunks that are translated together, and chunks prefetched while the one before is worked on."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import Empty, Queue, SimpleQueue
from typing import Any, TypeVar

from undivided.config import CHUNK_LINES
from undivided.core.signals import ENGINE_THREAD

S = TypeVar("S")
T = TypeVar("T")


def chunk_lines(lines: Iterable[str], size: int = CHUNK_LINES) -> Iterator[list[str]]:
    """Lines in lists of at most `size`; a chunk is closed early where the next line has not arrived yet.

    So a file is translated in large chunks, and a person or program that waits for each answer gets it at once.
    """
    if isinstance(lines, Sequence):
        for start in range(0, len(lines), size):
            yield list(lines[start : start + size])
        return
    waiting: Queue[str | BaseException | None] = Queue(maxsize=size)
    reader = threading.Thread(target=_fill, args=(lines, waiting.put), daemon=True)
    reader.start()
    while (line := waiting.get()) is not None:
        if isinstance(line, BaseException):
            raise line
        chunk = [line]
        while len(chunk) < size and not _is_idle(waiting, reader):
            following = waiting.get()
            if following is None or isinstance(following, BaseException):
                yield chunk
                if following is None:
                    return
                raise following
            chunk.append(following)
        yield chunk


def _is_idle(waiting: Queue[str | BaseException | None], reader: threading.Thread) -> bool:
    """Whether no line arrives for a moment."""
    for _ in range(20):
        if not waiting.empty():
            return False
        reader.join(timeout=0.001)
    return waiting.empty()


def _fill(items: Iterable[T], put: Callable[[T | BaseException | None], None]) -> None:
    try:
        for item in items:
            put(item)
        put(None)
    except BaseException as error:
        put(error)


def prefetch(
    items: Iterable[S],
    work: Callable[[S, Callable[[], bool]], T],
    is_stopped: Callable[[], bool] = lambda: False,
    count: int = 3,
) -> Iterator[T]:
    """The results of `work` on each item, in order, two at a time, with at most `count` items ahead of the consumer.

    Once `is_stopped`, what is finished is still yielded, and nothing more. `work` is given a function that says when nobody
    waits for it any more. Only `work` may use native code: the thread that reads the items may wait for ever, so it is left
    behind when Python ends, which would abort the process in the middle of native code.
    """
    events: SimpleQueue[tuple[S] | BaseException | _Finished | None] = SimpleQueue()
    room, gone = threading.Semaphore(count), threading.Event()
    threading.Thread(target=_read_ahead, args=(items, events.put, room, gone), daemon=True).start()
    pool = ThreadPoolExecutor(2, thread_name_prefix=ENGINE_THREAD)
    pending: deque[Future[T]] = deque()
    last: BaseException | _Finished | None = _Finished()
    try:
        while pending or isinstance(last, _Finished):
            while pending and pending[0].done():
                room.release()
                yield pending.popleft().result()
            if is_stopped():
                return
            try:
                event = events.get(timeout=0.1) if pending or isinstance(last, _Finished) else _Finished()
            except Empty:
                continue
            if isinstance(event, tuple):
                pending.append(pool.submit(work, event[0], gone.is_set))
                pending[-1].add_done_callback(lambda _: events.put(_Finished()))
            elif not isinstance(event, _Finished):
                last = event
        if isinstance(last, BaseException):
            raise last
    finally:
        gone.set()
        pool.shutdown(wait=False, cancel_futures=True)


def _read_ahead(items: Iterable[S], put: Callable[[Any], None], room: threading.Semaphore, gone: threading.Event) -> None:
    """Pass on items as there is room for them, until the consumer is gone."""

    def wait_and_put(item: tuple[S] | BaseException | None) -> None:
        while isinstance(item, tuple) and (gone.is_set() or not room.acquire(timeout=0.2)):
            if gone.is_set():
                raise Cancelled
        put(item)

    _fill(((item,) for item in items), wait_and_put)


class _Finished:
    """Some work is finished."""


class Cancelled(Exception):
    """Nobody waits for the result any more."""
