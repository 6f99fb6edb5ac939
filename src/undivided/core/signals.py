"""SIGINT and SIGTERM stop long jobs after they have saved what is done."""

from __future__ import annotations

import signal
import threading
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
