"""What a person sees while a command works: messages, warnings and progress on stderr, or in the log of Python."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

CONTROL_CHARACTERS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""What commands a terminal: control characters but tab and newline, line and paragraph separators, lone surrogates,
bidirectional embeddings, overrides and isolates. Marks of direction and joiners are left out: they are part of writing."""


def printable(text: str) -> str:
    """A text that no terminal obeys: control characters are spelled out, such as `\\x1b`."""
    return CONTROL_CHARACTERS.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)


class SafeTerminal:
    """A terminal as a stream that only `printable` text reaches. All else is that of the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write a text, control characters spelled out."""
        return self._stream.write(printable(text))

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several."""
        for line in lines:
            self.write(line)


@contextmanager
def safe_stdout() -> Iterator[None]:
    """Within, results that go to a terminal are `printable`, whoever prints them; a file or pipe gets them as they are."""
    before = sys.stdout
    if before is not None and before.isatty():
        sys.stdout = SafeTerminal(before)
    try:
        yield
    finally:
        sys.stdout = before


def plural(count: int, noun: str) -> str:
    """`1 line`, `2,000 lines`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def duration(seconds: float) -> str:
    """`42 s`, `3:05 min`, `2:03 h`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


class Console:
    """Messages on stderr; on a terminal also one status line that is rewritten in place.

    What a message quotes, a file name or a text, may come from anybody: only what is `printable` reaches a terminal.
    """

    def __init__(self, quiet: bool = False, stream: TextIO | None = None) -> None:
        self.quiet = quiet
        self.stream = stream if stream is not None else sys.stderr
        self.live = not quiet and self.stream.isatty() and os.environ.get("TERM") != "dumb"
        self.colour = self.live and not os.environ.get("NO_COLOR")
        self._status_shown = False
        self._last_status = 0.0

    def say(self, text: str) -> None:
        """Print a message, unless `--quiet`."""
        if not self.quiet:
            self._write(printable(text))

    def warn(self, text: str) -> None:
        """Print a warning, also with `--quiet`."""
        self._write(f"\x1b[33m{printable(text)}\x1b[0m" if self.colour else printable(text))

    def status(self, text: str, every: float = 0.1) -> None:
        """Rewrite the status line on a terminal; do nothing elsewhere."""
        now = time.monotonic()
        if not self.live or now - self._last_status < every:
            return
        self._last_status = now
        width = os.get_terminal_size(self.stream.fileno()).columns if self.stream.isatty() else 80
        self.stream.write("\r\x1b[2K" + printable(text).replace("\n", " ")[: width - 1])
        self.stream.flush()
        self._status_shown = True

    def clear(self) -> None:
        """Remove the status line."""
        if self._status_shown:
            self.stream.write("\r\x1b[2K")
            self.stream.flush()
            self._status_shown = False

    def _write(self, text: str) -> None:
        self.clear()
        print(text, file=self.stream, flush=True)


class LoggingConsole(Console):
    """Messages for those who use this package as a library: they go to `logging.getLogger("undivided")`.

    Messages have the level INFO, warnings WARNING; there is no status line. It is what is used where no console is given.
    """

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.logger = logging.getLogger("undivided")

    def say(self, text: str) -> None:
        """Log a message."""
        self.logger.info("%s", printable(text))

    def warn(self, text: str) -> None:
        """Log a warning."""
        self.logger.warning("%s", printable(text))


class LimitedWarnings:
    """Warnings on single lines of a file: the first are shown, the others counted."""

    LIMIT = 50

    def __init__(self, console: Console) -> None:
        self.console, self.shown, self.more = console, 0, 0

    def add(self, text: str) -> None:
        """Show a warning, or count it."""
        if self.shown < self.LIMIT:
            self.shown += 1
            self.console.warn(text)
        else:
            self.more += 1

    def close(self) -> None:
        """Say how many were only counted."""
        if self.more:
            self.console.warn(f"and {plural(self.more, 'more warning')} of these kinds")
        self.more = 0


class Progress:
    """How far a job is, with its rate and the time that is left."""

    def __init__(self, console: Console, what: str, total: int | None, plain_every: float = 10.0, before: int = 0) -> None:
        self.console, self.what, self.total, self.plain_every = console, what, total, plain_every
        self.done = self.before = before
        self.started = self._last_plain = time.monotonic()

    def advance(self, count: int) -> None:
        """Count work done (negative: lost again) and show it: on the status line, or now and then as a message."""
        self.done += count
        now = time.monotonic()
        if self.console.live:
            self.console.status(self.line(now))
        elif now - self._last_plain >= self.plain_every:
            self._last_plain = now
            self.console.say(self.line(now))

    def line(self, now: float) -> str:
        """`translating: 1,200 of 5,000 lines, 60/s, 1:03 min left`."""
        rate = (self.done - self.before) / max(now - self.started, 1e-9)
        text = f"{self.what}: {self.done:,}"
        if self.total is not None:
            text += f" of {self.total:,}"
        text += f", {rate:,.0f}/s"
        if self.total is not None and rate > 0:
            text += f", {duration((self.total - self.done) / rate)} left"
        return text
