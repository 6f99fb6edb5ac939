"""Lines to translate, numbered and in chunks, and the count of those that are done. Importing this must not import torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from undivided.formats.protection import Masked
from undivided.inference.chunks import Cancelled, chunk_lines


class NumberedChunk(NamedTuple):
    """Lines that are translated together, and the number of lines before them."""

    start: int
    lines: list[str]


def number_chunks(lines: Iterable[str]) -> Iterator[NumberedChunk]:
    """Chunks of lines, each with where it starts."""
    start = 0
    for chunk in chunk_lines(lines):
        yield NumberedChunk(start, chunk)
        start += len(chunk)


class Request(NamedTuple):
    """A line to translate."""

    text: str
    prefix: str
    key: int
    """What a sample depends on beside the seed; 0 where nothing is sampled."""
    masked: Masked
    """The line as the model is given it."""


class LineCounter:
    """Reports translated lines, from one thread at a time, and in total as many as there are."""

    def __init__(self, advance: Callable[[int], None], total: int, lock: threading.Lock, is_cancelled: Callable[[], bool]) -> None:
        self.advance, self.left, self.lock, self.is_cancelled = advance, total, lock, is_cancelled

    def add(self, count: int) -> None:
        """Report this many more; `Cancelled` where nobody waits for them any more."""
        if self.is_cancelled():
            raise Cancelled
        self.left -= count
        with self.lock:
            self.advance(count)

    def finish(self) -> None:
        """Report all that are left: empty and repeated lines."""
        self.add(self.left)
