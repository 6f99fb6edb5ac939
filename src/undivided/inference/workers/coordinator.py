"""Translate a file of any size by several workers: in order, one line for every line, and resumable."""

from __future__ import annotations

import os
import shutil
from collections import Counter, deque
from pathlib import Path

from undivided import __version__
from undivided.artifact import find_unfinished
from undivided.config import check_threads
from undivided.core import manifest
from undivided.core.console import Console, LimitedWarnings, Progress, plural
from undivided.core.errors import InputError, UndividedError
from undivided.core.files import sha256_of
from undivided.core.locks import lock_folder
from undivided.core.signals import Stopped, handle_stop_signals
from undivided.data.text_files import is_compressed
from undivided.inference.search_settings import SearchChanges
from undivided.inference.workers.joined_output import JoinedOutput
from undivided.inference.workers.process_pool import Event, ProcessPool, WorkerPool
from undivided.inference.workers.shards import Job, Scan, Shard, ShardPlan, scan_file, shards_done

MAX_DEATHS = 3
"""Workers that may die over one shard before the job fails."""

MAX_RAY_WORKERS = 4096

MAX_FAILED_STARTS = 5
"""Workers that may die one after the other at their start, while none of the others finishes anything."""


def translate_file(
    model: str,
    source: str,
    output: str,
    workers: int,
    console: Console,
    search: SearchChanges | None = None,
    prefix: str | None = None,
    scores: bool = False,
    device: str = "auto",
    threads: int = 0,
    engine: str = "torch",
    ray: str | None = None,
    trust: bool = False,
) -> None:
    """Translate a file by several workers, each with `threads` CPU threads (0 is 1). Run again, it resumes.

    The output does not depend on how many workers there are, nor on which of them die.
    """
    _check(model, source, output, workers, ray)
    check_threads(threads)
    folder = Path(f"{output}.shards")
    if folder.is_symlink():
        raise InputError(f"{folder}: is a link, so nothing is written there; remove it")
    plan = make_plan(model, source, folder, search or {}, prefix, scores, device, max(1, threads), engine, trust)
    with lock_folder(folder, f"{folder}: another process is translating there; wait for it, or choose another --output"):
        plan.start()
        coordinator = Coordinator(plan, JoinedOutput(plan, Path(output)), console)
        try:
            with handle_stop_signals(_stop):
                if coordinator.waiting:
                    pool, size = _make_pool(plan.job, ray, workers)
                    coordinator.run(pool, min(size, len(coordinator.waiting)))
                coordinator.output.finish()
        except Stopped as stop:
            console.clear()
            raise stop.with_message(f"stopped: {coordinator.describe_done()}; run the same command to resume") from None
        shutil.rmtree(folder, ignore_errors=True)


def _stop(number: int) -> None:
    raise Stopped(number, "")


def _check(model: str, source: str, output: str, workers: int, ray: str | None) -> None:
    if source == "-" or output == "-":
        raise InputError("--workers reads a file and writes a file, so that it can resume after a stop: name both, FILE and -o OUT")
    if is_compressed(source):
        raise InputError(f"{source}: --workers reads plain text, so that each worker can read its own part; unpack it first")
    if not Path(source).is_file():
        raise InputError(f"{source}: {'is a directory' if Path(source).is_dir() else 'no such file'}")
    if not Path(output).parent.is_dir():
        raise InputError(f"{output}: no such directory to write to")
    if not Path(model).is_dir():
        raise InputError(f"{model}: no such model folder")
    if find_unfinished(Path(model)):
        raise InputError(f"{model}: --workers needs a model, and this training has written none; make one: undivided average")
    if workers < (0 if ray else 1):
        raise InputError(f"--workers: {workers} is less than 1")
    cores = os.cpu_count() or 1
    most = MAX_RAY_WORKERS if ray else max(16, 4 * cores)
    if workers > most:
        why = "" if ray else f", for {plural(cores, 'core')}"
        raise InputError(f"--workers: {workers} is more than {most}{why}")


def make_plan(
    model: str,
    source: str,
    folder: Path,
    search: SearchChanges,
    prefix: str | None,
    scores: bool,
    device: str,
    threads: int,
    engine: str = "torch",
    trust: bool = False,
) -> ShardPlan:
    """The job, its shards, and every setting on which the output depends."""
    files = [path for path in (source, prefix) if path]
    model_sha256 = sha256_of(manifest.current_folder(Path(model)) / manifest.NAME)
    scans = [scan_file(path, text=path == source) for path in files]
    _check_prefixes(files, scans)
    settings = {"model": model_sha256, "scores": scores, "device": device, "threads": threads, "engine": engine}
    settings |= {"undivided": __version__, **search}
    places = [os.path.abspath(path) for path in (model, str(folder), *files)]
    stamps = [each.stamp for each in scans]
    job = Job(places[0], model_sha256, places[2:], stamps, places[1], search, scores, device, threads, engine, trust)
    return ShardPlan(job, scans, settings)


def _check_prefixes(files: list[str], scans: list[Scan]) -> None:
    if len(scans) > 1 and scans[1].lines < scans[0].lines:
        raise InputError(f"{files[1]}: only {plural(scans[1].lines, 'prefix line')} for {scans[0].lines:,} lines to translate")


def _make_pool(job: Job, ray: str | None, workers: int) -> tuple[WorkerPool, int]:
    if ray is None:
        return ProcessPool(job), workers
    from undivided.inference.workers.ray_pool import RayPool

    pool = RayPool(job, ray, workers)
    return pool, pool.size


class Coordinator:
    """Assigns shards to workers, replaces workers that die, and joins the results in order."""

    def __init__(self, plan: ShardPlan, output: JoinedOutput, console: Console) -> None:
        self.plan, self.output, self.console = plan, output, console
        self.waiting = deque(shard for shard in plan.shards[output.count :] if shard.number not in output.ready)
        self.busy: dict[int, Shard] = {}
        before = plan.lines - sum(shard.lines for shard in self.waiting)
        if before:
            console.say(f"resuming: {self.describe_done()}")
        self.progress = Progress(console, "translated lines", plan.lines, before=before)
        self.warnings = LimitedWarnings(console)
        self.partial: Counter[int] = Counter()
        self.deaths: Counter[int] = Counter()
        self.failed_starts = 0

    def describe_done(self) -> str:
        """`3 of 10 shards are done`."""
        return shards_done(len(self.plan.shards) - len(self.waiting) - len(self.busy), len(self.plan.shards))

    def run(self, pool: WorkerPool, size: int) -> None:
        """Work until every shard is translated."""
        try:
            for slot in range(size):
                pool.start(slot)
            while self.waiting or self.busy:
                for event in pool.poll(seconds=0.5):
                    self._handle(event, pool)
                self.output.advance()
        finally:
            self.warnings.close()
            self.console.clear()
            pool.stop()

    def _handle(self, event: Event, pool: WorkerPool) -> None:
        if event.failed:
            error = InputError if event.code == InputError.exit_code else UndividedError
            raise error(f"{event.failed}\n{self._remedy()}")
        if event.dead:
            self._replace(event, pool)
            return
        self.partial[event.slot] += event.lines
        self.progress.advance(event.lines)
        if event.ready or event.done is not None:
            self.failed_starts = 0
        if event.done is not None:
            self._collect(self.busy.pop(event.slot), event.slot)
        if event.ready or event.done is not None:
            self._assign(event.slot, pool)

    def _assign(self, slot: int, pool: WorkerPool) -> None:
        if self.waiting:
            self.busy[slot] = self.waiting.popleft()
            self.partial[slot] = 0
            pool.assign(slot, self.busy[slot])

    def _collect(self, shard: Shard, slot: int) -> None:
        """Count a finished shard and show its warnings."""
        facts = self.plan.read_marker(shard)
        if facts is None:
            raise UndividedError(f"{shard.path(self.plan.folder)}: a worker reported it as done, but it is damaged")
        self.progress.advance(shard.lines - self.partial[slot])
        self.output.ready.add(shard.number)
        for text in facts["remarks"]:
            self.warnings.add(text)
        self.warnings.more += facts["more"]

    def _replace(self, event: Event, pool: WorkerPool) -> None:
        """A worker is dead: start another one for its shard, unless too many died in the same place."""
        shard = self.busy.pop(event.slot, None)
        if shard is not None and self.plan.read_marker(shard) is not None:
            self._collect(shard, event.slot)
        elif shard is None:
            self.failed_starts += 1
            if self.failed_starts >= MAX_FAILED_STARTS:
                raise UndividedError(
                    f"{MAX_FAILED_STARTS} workers one after the other died before they were ready ({event.dead})\n{self._remedy()}"
                )
        else:
            self.progress.advance(-self.partial.pop(event.slot, 0))
            self.deaths[shard.number] += 1
            if self.deaths[shard.number] >= MAX_DEATHS:
                raise UndividedError(
                    f"{self.plan.job.files[0]}, {shard}: {MAX_DEATHS} workers died over it ({event.dead})\n{self._remedy()}"
                )
            self.waiting.appendleft(shard)
            self.console.warn(f"a worker died at {shard} ({event.dead}); starting another one")
        if self.waiting:
            pool.start(event.slot)

    def _remedy(self) -> str:
        return f"Finished shards are kept in {self.plan.folder}; run the same command to resume."
