"""A file of any size through several workers, in shards: restartable, in order, one line for every line."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from undivided import __version__
from undivided.core import manifest
from undivided.core.console import Console, LimitedWarnings, Progress, plural
from undivided.core.errors import InputError, UndividedError
from undivided.core.files import fsync, read_json, sha256_of, write_atomic
from undivided.core.locks import lock_folder
from undivided.inference.workers.job import Job, Plan, Scan, Shard, scan, shards_done
from undivided.inference.workers.processes import Crew, Event, Processes

__all__ = ["ShardsStopped", "translate_file"]

MOST_DEATHS = 3
"""Workers that may die over the same shard before it is given up."""

MOST_STILLBORN = 5
"""Workers that may die one after the other before they began, while none of the others gets anything done."""


class ShardsStopped(UndividedError):
    """Somebody asked to stop; what is done is kept."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


def translate_file(
    model: str,
    source: str,
    output: str,
    workers: int,
    console: Console,
    search: dict[str, Any] | None = None,
    prefix: str | None = None,
    scores: bool = False,
    device: str = "auto",
    threads: int = 0,
    engine: str = "torch",
    ray: str | None = None,
) -> None:
    """Translate a file by several workers, each with `threads` CPU threads (0 is 1). Run again, it goes on where it was.

    The output does not depend on how many workers there are, nor on which of them die.
    """
    _check(model, source, output, workers, ray)
    folder = Path(f"{output}.shards")
    plan = make_plan(model, source, folder, search or {}, prefix, scores, device, max(1, threads), engine)
    with lock_folder(folder, f"{folder}: another process is translating there; wait for it, or choose another --output"):
        plan.begin()
        leader = Leader(plan, Joined(plan, Path(output)), console)
        try:
            with stopping_at_signals():
                if leader.waiting:
                    crew, size = _crew(plan.job, ray, workers)
                    leader.lead(crew, min(size, len(leader.waiting)))
                leader.joined.finish()
        except Interrupt as stop:
            console.clear()
            raise ShardsStopped(stop.number, f"stopped: {leader.done()}; the same command goes on with the others") from None
        shutil.rmtree(folder, ignore_errors=True)


def _check(model: str, source: str, output: str, workers: int, ray: str | None) -> None:
    if source == "-" or output == "-":
        raise InputError("--workers reads a file and writes a file, so that it can go on after a stop: name both, FILE and -o OUT")
    if Path(source).suffix in (".gz", ".xz", ".zst"):
        raise InputError(f"{source}: --workers reads plain text, whose parts can be read by themselves; unpack it first")
    if not Path(source).is_file():
        raise InputError(f"{source}: {'is a directory' if Path(source).is_dir() else 'no such file'}")
    if not Path(output).parent.is_dir():
        raise InputError(f"{output}: there is no such directory to write to")
    if not Path(model).is_dir():
        raise InputError(f"{model}: no such model folder")
    if workers < (0 if ray else 1):
        raise InputError(f"--workers: {workers} is less than 1")


def make_plan(
    model: str,
    source: str,
    folder: Path,
    search: dict[str, Any],
    prefix: str | None,
    scores: bool,
    device: str,
    threads: int,
    engine: str = "torch",
) -> Plan:
    """The job and its shards, and all that would change the output if it changed."""
    files = [path for path in (source, prefix) if path]
    model_sha256 = sha256_of(manifest.current_folder(Path(model)) / manifest.NAME)
    scans = [scan(path, text=path == source) for path in files]
    _check_prefixes(files, scans)
    settings = {"model": model_sha256, "scores": scores, "device": device, "threads": threads, "engine": engine}
    settings |= {"undivided": __version__, **search}
    places = [os.path.abspath(path) for path in (model, str(folder), *files)]
    stamps = [each.stamp for each in scans]
    job = Job(places[0], model_sha256, places[2:], stamps, places[1], search, scores, device, threads, engine)
    return Plan(job, scans, settings)


def _check_prefixes(files: list[str], scans: list[Scan]) -> None:
    if len(scans) > 1 and scans[1].lines < scans[0].lines:
        raise InputError(f"{files[1]}: only {plural(scans[1].lines, 'prefix line')} for {scans[0].lines:,} lines to translate")


def _crew(job: Job, ray: str | None, workers: int) -> tuple[Crew, int]:
    if ray is None:
        return Processes(job), workers
    from undivided.inference.workers.ray_actors import RayCrew

    crew = RayCrew(job, ray, workers)
    return crew, crew.size


class Leader:
    """Deals out shards, replaces workers that die, and joins what they wrote, in order."""

    def __init__(self, plan: Plan, joined: Joined, console: Console) -> None:
        self.plan, self.joined, self.console = plan, joined, console
        self.waiting = deque(shard for shard in plan.shards[joined.count :] if shard.number not in joined.ready)
        self.busy: dict[int, Shard] = {}
        before = plan.lines - sum(shard.lines for shard in self.waiting)
        if before:
            console.say(f"going on: {self.done()}")
        self.progress = Progress(console, "translated lines", plan.lines, before=before)
        self.remarks = LimitedWarnings(console)
        self.partial: Counter[int] = Counter()
        self.deaths: Counter[int] = Counter()
        self.stillborn = 0

    def done(self) -> str:
        """`3 of 10 shards are done`."""
        return shards_done(len(self.plan.shards) - len(self.waiting) - len(self.busy), len(self.plan.shards))

    def lead(self, crew: Crew, size: int) -> None:
        """Until every shard is translated."""
        try:
            for slot in range(size):
                crew.start(slot)
            while self.waiting or self.busy:
                for event in crew.news(seconds=0.5):
                    self._hear(event, crew)
                self.joined.advance()
        finally:
            self.remarks.close()
            self.console.clear()
            crew.stop()

    def _hear(self, event: Event, crew: Crew) -> None:
        if event.failed:
            error = InputError if event.code == InputError.exit_code else UndividedError
            raise error(f"{event.failed}\n{self._remedy()}")
        if event.dead:
            self._bury(event, crew)
            return
        self.partial[event.slot] += event.lines
        self.progress.advance(event.lines)
        if event.ready or event.done is not None:
            self.stillborn = 0
        if event.done is not None:
            self._take(self.busy.pop(event.slot), event.slot)
        if event.ready or event.done is not None:
            self._give(event.slot, crew)

    def _give(self, slot: int, crew: Crew) -> None:
        if self.waiting:
            self.busy[slot] = self.waiting.popleft()
            self.partial[slot] = 0
            crew.give(slot, self.busy[slot])

    def _take(self, shard: Shard, slot: int) -> None:
        """Count a finished shard and tell what there is to tell of it."""
        facts = self.plan.facts(shard)
        if facts is None:
            raise UndividedError(f"{shard.path(self.plan.folder)}: a worker said that it is done, but it is not whole")
        self.progress.advance(shard.lines - self.partial[slot])
        self.joined.ready.add(shard.number)
        for remark in facts["remarks"]:
            self.remarks.add(remark)
        self.remarks.more += facts["more"]

    def _bury(self, event: Event, crew: Crew) -> None:
        """A worker is dead: another one takes its place and its shard, unless too many died of the same cause."""
        shard = self.busy.pop(event.slot, None)
        if shard is not None and self.plan.facts(shard) is not None:
            self._take(shard, event.slot)
        elif shard is None:
            self.stillborn += 1
            if self.stillborn >= MOST_STILLBORN:
                raise UndividedError(
                    f"{MOST_STILLBORN} workers one after the other died before they began ({event.dead})\n{self._remedy()}"
                )
        else:
            self.progress.advance(-self.partial.pop(event.slot, 0))
            self.deaths[shard.number] += 1
            if self.deaths[shard.number] >= MOST_DEATHS:
                raise UndividedError(
                    f"{self.plan.job.files[0]}, {shard}: {MOST_DEATHS} workers died over it ({event.dead})\n{self._remedy()}"
                )
            self.waiting.appendleft(shard)
            self.console.warn(f"a worker died at {shard} ({event.dead}); another one takes its place")
        if self.waiting:
            crew.start(event.slot)

    def _remedy(self) -> str:
        return f"What is done is kept in {self.plan.folder}; the same command goes on with it."


class Joined:
    """The output as far as it is done: whole shards, one behind the other. A shard that is in it is removed."""

    def __init__(self, plan: Plan, output: Path) -> None:
        self.plan, self.output = plan, output
        self.path, self.note = plan.folder / "joined", plan.folder / "joined.json"
        state = read_json(self.note) if self.note.exists() else {}
        self.count, self.size = int(state.get("shards", 0)), int(state.get("bytes", 0))
        # Stopped between the last two steps, the output was moved to its place and only the folder is left.
        self.moved = bool(state) and not self.path.exists()
        if self.moved and not (self.count == len(plan.shards) and output.exists() and output.stat().st_size == self.size):
            raise InputError(f"{plan.folder}: {self.path.name} is missing; remove the folder to begin anew")
        if not self.moved and self.path.exists() and self.path.stat().st_size < self.size:
            raise InputError(f"{plan.folder}: {self.path.name} is damaged; remove the folder to begin anew")
        # What is finished and waits for those before it. Only what the leader knows of is joined: it looks at each shard first.
        self.ready = {shard.number for shard in plan.shards[self.count :] if plan.facts(shard) is not None}
        if not self.moved:
            # What was added after the last note was not yet counted: it comes again.
            with self.path.open("ab") as out:
                out.truncate(self.size)

    def advance(self) -> None:
        """Add the shards that are next and done, make sure that they are on the disk, note it, and only then remove them."""
        added: list[Shard] = []
        if self.count not in self.ready:
            return
        with self.path.open("ab") as out:
            for shard in self.plan.shards[self.count :]:
                if shard.number not in self.ready:
                    break
                with shard.path(self.plan.folder).open("rb") as stream:
                    shutil.copyfileobj(stream, out, 1 << 20)
                added.append(shard)
            out.flush()
            os.fsync(out.fileno())
            self.size = out.tell()
        self.count += len(added)
        write_atomic(self.note, json.dumps({"shards": self.count, "bytes": self.size}).encode())
        for shard in added:
            self.ready.remove(shard.number)
            shard.path(self.plan.folder).unlink()
            shard.marker(self.plan.folder).unlink()

    def finish(self) -> None:
        """Move the whole output to where it was wanted."""
        if self.moved:
            return
        self.advance()
        if self.count != len(self.plan.shards):
            raise UndividedError(f"{self.plan.folder}: {shards_done(self.count, len(self.plan.shards))}; run the command again")
        write_atomic(self.note, json.dumps({"shards": self.count, "bytes": self.size}).encode())
        self.path.replace(self.output)
        fsync(self.output.parent)


class Interrupt(Exception):
    """A signal asked to stop."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


@contextmanager
def stopping_at_signals() -> Iterator[None]:
    """Within, SIGINT and SIGTERM raise `Interrupt`."""

    def stop(number: int, _: object) -> None:
        raise Interrupt(number)

    heard = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
    before = {number: signal.signal(number, stop) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
