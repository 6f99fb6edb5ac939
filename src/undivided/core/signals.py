"""SIGINT and SIGTERM stop long jobs after they have saved what is done, and the process ends in time."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from undivided.core.errors import UndividedError
from undivided.core.files import remove_open_parts

ENGINE_THREAD = "undivided-engine"
"""What the names of threads begin with that run native code which nothing can interrupt."""

GRACE = 1.0
"""Seconds that a process which ends waits for such threads."""

DEADLINE = 1.7
"""Seconds from a signal to the end of the process, whatever it is doing."""


class Stopped(UndividedError):
    """A signal stopped the job; what is done is saved. The exit code is that of the signal."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number, self.exit_code = number, 128 + number

    def with_message(self, message: str) -> Stopped:
        """The same, with another message."""
        return Stopped(self.number, message)


@contextmanager
def handle_stop_signals(ask: Callable[[int], None]) -> Iterator[None]:
    """Within, SIGINT and SIGTERM call `ask` with their number; only the main thread can listen."""

    def handle(number: int, _: object) -> None:
        ask(number)

    heard = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, handle) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class WorkClock:
    """Seconds of work since `start`: those in which the process was stopped (Ctrl-Z, SIGSTOP) do not count.

    Nobody is told when a process is stopped, only when it is continued. Then its processor time is what it worked.
    """

    def __init__(self) -> None:
        self._continued, self._began, self._worked = False, 0.0, 0.0

    @contextmanager
    def listen(self) -> Iterator[None]:
        """Within, stops are noticed; only the main thread can listen, and not on Windows."""
        number = getattr(signal, "SIGCONT", None)
        if number is None or threading.current_thread() is not threading.main_thread():
            yield
            return
        before = signal.signal(number, self._note)
        try:
            yield
        finally:
            signal.signal(number, before)

    def _note(self, *_: object) -> None:
        self._continued = True

    def start(self) -> None:
        """Count from now on."""
        self._continued, self._began, self._worked = False, time.monotonic(), time.process_time()

    def seconds(self) -> float:
        """Seconds of work since the start."""
        passed = time.monotonic() - self._began
        return min(passed, time.process_time() - self._worked) if self._continued else passed


@contextmanager
def stop_in_time(ask: Callable[[int], None]) -> Iterator[None]:
    """Within, the first SIGINT or SIGTERM calls `ask`, later ones are ignored, and the process ends within `DEADLINE`."""
    asked: list[int] = []

    def stop(number: int) -> None:
        if asked:
            return
        asked.append(number)
        timer = threading.Timer(DEADLINE, _end_at_once, (128 + number,))
        timer.daemon = True
        timer.start()
        ask(number)

    try:
        with handle_stop_signals(stop):
            yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM) if asked else ():
            signal.signal(number, signal.SIG_IGN)


def _end_at_once(code: int) -> None:
    """End the process in the middle of whatever it does, without half a file."""
    remove_open_parts()
    os._exit(code)


def end_in_order(code: int) -> None:
    """Wait a moment for the threads of engines; if one is still busy, end the process at once, because Python cannot without it."""
    deadline = time.monotonic() + GRACE
    for thread in _engine_threads():
        thread.join(max(0.0, deadline - time.monotonic()))
    if _engine_threads():
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        os._exit(code)


def _engine_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(ENGINE_THREAD)]
