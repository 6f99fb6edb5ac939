"""SIGINT and SIGTERM stop long jobs after they have saved what is done."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from undivided.core.errors import UndividedError


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
