"""Lines in chunks that are translated together, and chunks prefetched while the one before is worked on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Full, Queue
from typing import TypeVar

from undivided.config import CHUNK_LINES

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


def prefetch(items: Iterable[T], count: int = 1) -> Iterator[T]:
    """Items, computed in a thread of their own, at most `count` ahead of the consumer."""
    waiting: Queue[tuple[T] | BaseException | None] = Queue(maxsize=count)
    gone = threading.Event()

    def put(item: tuple[T] | BaseException | None) -> None:
        while not gone.is_set():
            try:
                return waiting.put(item, timeout=0.2)
            except Full:
                continue
        raise _GoneError

    def make() -> None:
        with contextlib.suppress(_GoneError):
            _fill(((item,) for item in items), put)

    threading.Thread(target=make, daemon=True).start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        gone.set()


class _GoneError(Exception):
    """The consumer is gone."""
