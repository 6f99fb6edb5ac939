"""Several processes on one port: started, watched, replaced when one dies, told to reload or to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from undivided.core.console import Console
from undivided.core.errors import UndividedError
from undivided.serve.server import Job

READY = b"ready\n"
SOON = 2.0
"""Seconds: a worker that dies sooner after its start is not replaced at once."""


class Supervisor:
    """Workers listen on the same port. A worker that dies loses only the requests that it had."""

    def __init__(self, job: Job, console: Console) -> None:
        self.job, self.console = job, console
        self.workers: dict[int, subprocess.Popen[bytes]] = {}
        self.started: dict[int, float] = {}
        self.stopped_by = 0

    def run(self, announce: Callable[[], None]) -> int:
        """Serve until a signal; its number."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGHUP, self._pass_on)
        for slot in range(self.job.config.workers):
            self._start(slot)
        for slot in list(self.workers):
            if not self._wait_ready(slot):
                self._stop(signal.SIGTERM)
                self._end()
                raise UndividedError("a worker could not be started; see the message above")
        announce()
        while not self.stopped_by:
            self._replace_dead()
            time.sleep(0.1)
        return self._end()

    def _start(self, slot: int) -> None:
        """Start a worker: it reads what to do from its stdin, which also tells it when we are gone."""
        command = [sys.executable, "-P", "-m", "undivided.serve"]
        worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
        assert worker.stdin is not None
        quiet = self.job._replace(quiet=True) if slot else self.job
        worker.stdin.write(quiet.to_json().encode() + b"\n")
        worker.stdin.flush()
        self.workers[slot], self.started[slot] = worker, time.monotonic()

    def _wait_ready(self, slot: int) -> bool:
        out = self.workers[slot].stdout
        return out is not None and out.readline() == READY

    def _replace_dead(self) -> None:
        for slot, worker in list(self.workers.items()):
            if worker.poll() is None:
                continue
            how = f"signal {-worker.returncode}" if worker.returncode < 0 else f"code {worker.returncode}"
            self.console.warn(f"worker {slot + 1} (process {worker.pid}) ended with {how}; its requests are lost, a new one starts")
            if time.monotonic() - self.started[slot] < SOON:
                time.sleep(1)
            self._start(slot)
            threading.Thread(target=self._wait_ready, args=(slot,), daemon=True).start()

    def _stop(self, number: int, _: object = None) -> None:
        self.stopped_by = self.stopped_by or number

    def _pass_on(self, number: int, _: object) -> None:
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.send_signal(number)

    def _end(self) -> int:
        """Let the workers finish what they accepted; those that take too long are ended."""
        for worker in self.workers.values():
            if worker.poll() is None:
                worker.terminate()
        deadline = time.monotonic() + self.job.config.drain_timeout + 5
        for worker in self.workers.values():
            try:
                worker.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.console.warn(f"process {worker.pid} did not finish in time and is ended")
                worker.kill()
                worker.wait()
        return self.stopped_by


def end_with_parent() -> None:
    """In a worker: once the supervisor is gone, end as by SIGTERM."""

    def watch() -> None:
        while sys.stdin.buffer.read(1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()
