"""An event loop whose clock jumps to the next thing that happens: hours of load pass in a moment, and always in the same way."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any


class _Jump(selectors.SelectSelector):
    """Waits for nothing but the clock, which it sets."""

    now = 1000.0

    def select(self, timeout: float | None = None) -> list[Any]:
        self.now += max(0.0, timeout or 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """What is run in a thread takes as long as `seconds(work, arguments)` says, one after the other."""

    def __init__(self, seconds: Callable[..., float]) -> None:
        self.clock, self.seconds, self.free = _Jump(), seconds, 0.0
        super().__init__(self.clock)

    def time(self) -> float:
        return self.clock.now

    def run_in_executor(self, executor: Any, work: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        done: asyncio.Future[Any] = self.create_future()
        self.free = max(self.free, self.time()) + self.seconds(*arguments)
        self.call_at(self.free, lambda: done.cancelled() or done.set_result(work(*arguments)))
        return done
