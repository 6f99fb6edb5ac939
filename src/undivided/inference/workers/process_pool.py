"""Workers as processes of this machine, and the contract of every worker pool."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol

from undivided.core.files import create_file
from undivided.inference.workers.shards import Job, Shard, as_json


@dataclass(frozen=True)
class Event:
    """A worker is ready, has translated some lines, has finished a shard, has failed for good, or is dead."""

    slot: int
    ready: bool = False
    lines: int = 0
    done: int | None = None
    failed: str = ""
    code: int = 1
    dead: str = ""


class WorkerPool(Protocol):
    """Workers in numbered slots. The coordinator knows no more, so processes and a Ray cluster do the same work."""

    def start(self, slot: int) -> None:
        """Start a new worker in a slot."""

    def assign(self, slot: int, shard: Shard) -> None:
        """Let a worker translate a shard."""

    def poll(self, seconds: float) -> list[Event]:
        """What happened, after waiting for it at most so long."""

    def stop(self) -> None:
        """End all workers at once."""


class ProcessPool:
    """Local processes that exchange lines of JSON. Nothing is pickled, and none outlives the process that started them."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self._workers: dict[int, subprocess.Popen[str]] = {}
        self._listeners: list[threading.Thread] = []
        self._events: queue.Queue[Event] = queue.Queue()

    def start(self, slot: int) -> None:
        """Start a new worker in a slot; its stderr is kept for the message if it dies."""
        log_path = Path(self.job.folder) / f"worker-{slot}.log"
        with create_file(log_path) as log:
            worker = subprocess.Popen(
                [sys.executable, "-P", "-m", "undivided.inference.workers.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                encoding="utf-8",
            )
        self._workers[slot] = worker
        self._write(slot, {"job": as_json(self.job), "slot": slot})
        listener = threading.Thread(target=self._listen, args=(slot, worker, log_path), daemon=True)
        self._listeners.append(listener)
        listener.start()

    def assign(self, slot: int, shard: Shard) -> None:
        """Let a worker translate a shard."""
        self._write(slot, as_json(shard))

    def _write(self, slot: int, message: dict[str, Any]) -> None:
        stdin: IO[str] | None = self._workers[slot].stdin
        # If it is dead, the thread that listens to it reports that.
        with suppress(OSError, ValueError):
            print(json.dumps(message), file=stdin, flush=True)

    def _listen(self, slot: int, worker: subprocess.Popen[str], log_path: Path) -> None:
        """Pass on what a worker reports until it ends."""
        # At the end what was not yet sent has no reader any more, and a worker that is killed may leave half a line.
        with suppress(OSError), worker:
            for line in worker.stdout or ():
                if line.endswith("}\n"):
                    self._events.put(Event(slot, **json.loads(line)))
        self._events.put(Event(slot, dead=_describe_exit(worker.wait(), log_path)))

    def poll(self, seconds: float) -> list[Event]:
        """What happened, after waiting for it at most so long."""
        try:
            found = [self._events.get(timeout=seconds)]
        except queue.Empty:
            return []
        while not self._events.empty():
            found.append(self._events.get())
        return found

    def stop(self) -> None:
        """End all workers at once."""
        for worker in self._workers.values():
            worker.kill()
        for listener in self._listeners:
            listener.join()


def _describe_exit(code: int, log_path: Path) -> str:
    """How a process ended, with the last line of its stderr."""
    if code < 0:
        name = signal.Signals(-code).name
        return f"{name}; perhaps memory ran out: try fewer --workers" if -code == signal.SIGKILL else name
    last = log_path.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
    return f"exit code {code}" + (f": {last[0]}" if last else "")
