"""Lines in windows that are translated together, and work begun before what came before it is done."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import Full, Queue
from typing import TypeVar

from undivided.config import CHUNK_LINES

T = TypeVar("T")


def windows(lines: Iterable[str], size: int = CHUNK_LINES) -> Iterator[list[str]]:
    """Lines in lists of at most `size`; a list is closed early where the next line has not yet come.

    So a file is translated in large windows, and a person or program that waits for each answer gets it.
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
        window = [line]
        while len(window) < size and not _idle(waiting, reader):
            following = waiting.get()
            if following is None or isinstance(following, BaseException):
                yield window
                if following is None:
                    return
                raise following
            window.append(following)
        yield window


def _idle(waiting: Queue[str | BaseException | None], reader: threading.Thread) -> bool:
    """Whether no line has come for a moment."""
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


def ahead(items: Iterable[T], count: int = 1) -> Iterator[T]:
    """Some items, made by a thread of their own, at most so many ahead of whoever takes them."""
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
    """Nobody takes any more items."""
