"""Translate 2,000,000 lines by two workers that are killed again and again; compare with a run that nobody disturbs.

    python benchmarks/shards.py [--lines 2000000] [--workers 2] [--kills 40] [--seed 1] [--no-ray] [--report docs/shards.md]

The model is made on the spot and tiny, and most lines occur again and again (a line that occurs again within 2,000 lines is
translated once), so that the work is in the shards and not in the model. Workers are killed with SIGKILL, and so is, twice, the
command itself, which is then started again. The same file then goes through Ray on this machine, where it is installed.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from damage import make_run

from undivided.core.console import duration

ROOT = Path(__file__).resolve().parent.parent
HOW = """\
How it works: the file is cut into byte ranges of whole chunks of 2,000 lines, the same for any number of workers. A worker
writes the translations of a range into a file of its own, to the disk and then by one rename into place; finished ranges are
joined in order and removed. All of it is in `OUT.shards` beside the output until the output is whole. Stopped by anything, the
same command resumes; with another text, model or setting it refuses and says what changed. A worker that dies is replaced
and its range given to another; a range that three workers die over ends the run, with its lines and bytes named, and so do five
workers that die one after the other before they are ready; the same command then resumes. With Ray the
model, the text and the output have the same paths on every machine (a shared folder). The times are no measure of speed: the
model is tiny, most lines occur again, and so the work is in reading, cutting and writing lines.
"""
WORDS = ["A", "My", "red", "blue", "green", "grey", "boat", "house", "book", "door"]


def write_text(path: Path, lines: int, seed: int) -> None:
    """Short lines, most of them out of a few hundred, with the oddities that files have: empty lines, CRLF, no end at the end."""
    chance = random.Random(seed)
    common = [" ".join(chance.choice(WORDS) for _ in range(chance.randrange(1, 4))) + "." for _ in range(200)]
    with path.open("w", encoding="utf-8", newline="") as stream:
        for number in range(lines):
            text = "" if number % 97 == 0 else chance.choice(common)
            if number % 1000 == 7:
                text = f"A red boat {number}."
            stream.write(text + ("" if number == lines - 1 else "\r\n" if number % 1013 == 0 else "\n"))


def children(pid: int) -> Iterator[int]:
    """The processes that a process has started, and those that they have."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = status.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == pid:
            yield int(name.split()[0])
            yield from children(int(name.split()[0]))


def peak(pid: int) -> int:
    """The most memory that a process has had, in MiB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM:")), 0)


def is_worker(pid: int) -> bool:
    """Whether a process is one that translates shards, of ours or of Ray's."""
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
    return b"undivided.inference.workers.worker" in command or command.startswith(b"ray::Actor")


class Measured(NamedTuple):
    """What became of one run."""

    sha256: str
    seconds: float
    leader: list[int]
    """Of the command, the memory in MiB at its peak, as it was noted in each tenth of the run."""
    worker: list[int]
    """The same of the largest worker so far."""
    worker_kills: int
    leader_kills: int
    given_up: int
    """How often the command itself gave up, since too many workers died before they began, and was started again."""


class Disturbance(NamedTuple):
    """How often workers are killed while a run takes about as long as expected."""

    seed: int
    kills: int
    expected: float
    least: float = 4.0
    """Seconds between two kills, on average at least: less than a worker takes to begin, and none ever would."""


class Watch(threading.Thread):
    """Notes the memory of a running command and its workers, and kills workers at random moments."""

    def __init__(self, process: subprocess.Popen[bytes], chance: random.Random | None, every: float) -> None:
        super().__init__(daemon=True)
        self.process, self.chance, self.every = process, chance, every
        self.notes: list[tuple[int, int]] = []
        self.kills = 0

    def run(self) -> None:
        next_kill = time.monotonic() + self.every
        while self.process.poll() is None:
            workers = [pid for pid in children(self.process.pid) if is_worker(pid)]
            self.notes.append((peak(self.process.pid), max(map(peak, workers), default=0)))
            if self.chance is not None and workers and time.monotonic() >= next_kill:
                self.kill(self.chance.choice(workers))
                next_kill = time.monotonic() + self.every * 2 * self.chance.random()
            time.sleep(0.2)

    def kill(self, pid: int) -> None:
        try:
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
        except ProcessLookupError:
            pass


def tenths(notes: list[int]) -> list[int]:
    """The largest note of each tenth."""
    size = max(1, -(-len(notes) // 10))
    return [max(notes[start : start + size]) for start in range(0, len(notes), size)]


def translate(model: Path, text: Path, out: Path, flags: list[str], disturb: Disturbance | None = None) -> Measured:
    """One run from beginning to end, disturbed or not."""
    out.unlink(missing_ok=True)
    command = [sys.executable, "-m", "undivided", "translate", str(model), str(text), "-o", str(out), "--beam-size", "1", *flags]
    chance = random.Random(disturb.seed) if disturb else None
    began, notes, kills, stops = time.monotonic(), [], 0, [0.3, 0.6] if disturb else []
    expected, given_up = disturb.expected if disturb else 0.0, 0
    while True:
        process = subprocess.Popen(command, stderr=subprocess.PIPE)
        watch = Watch(process, chance, max(disturb.least, expected / disturb.kills) if disturb else 0.0)
        watch.start()
        stopped = wait(process, began + stops[0] * expected if stops else None)
        watch.join()
        notes += watch.notes
        kills += watch.kills
        if stopped:
            stops.pop(0)
        elif process.returncode == 1 and disturb and given_up < 10:
            given_up += 1
        else:
            break
    if process.returncode:
        raise SystemExit(f"the command failed with {process.returncode}")
    sha256 = hashlib.file_digest(out.open("rb"), "sha256").hexdigest()
    leader, worker = (tenths([note[which] for note in notes]) for which in (0, 1))
    return Measured(sha256, time.monotonic() - began, leader, worker, kills, (2 if disturb else 0) - len(stops), given_up)


def wait(process: subprocess.Popen[bytes], until: float | None) -> bool:
    """Wait for a command, at most until it is to be killed; whether it was."""
    drain = threading.Thread(target=lambda: [sys.stderr.buffer.write(line) for line in process.stderr], daemon=True)
    drain.start()
    try:
        process.wait(None if until is None else max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return True
    return False


def is_flat(measured: Measured) -> bool:
    """Whether memory had its peak early: at the end it is at most a sixth above that of the first three tenths.

    Of a run of less than two minutes nothing can be said: it is starting most of the time.
    """
    return measured.seconds < 120 or all(peaks[-1] <= max(peaks[:3]) * 7 / 6 for peaks in (measured.leader, measured.worker))


def row(name: str, measured: Measured) -> str:
    leader, worker = max(measured.leader), max(measured.worker)
    kills = f"{measured.worker_kills} workers, {measured.leader_kills} times the command"
    kills += f"; gave up and started again: {measured.given_up}" if measured.given_up else ""
    return f"| {name} | {kills} | {duration(measured.seconds)} | {leader} MiB | {worker} MiB | `{measured.sha256[:16]}…` |"


def growth(measured: Measured) -> str:
    return f"{', '.join(map(str, measured.leader))} (command); {', '.join(map(str, measured.worker))} (largest worker)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2_000_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--kills", type=int, default=40, help="about how many workers to kill in a run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-ray", action="store_true")
    parser.add_argument("--report", default=str(ROOT / "docs" / "shards.md"))
    options = parser.parse_args()
    runs: dict[str, Measured] = {}
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        model, text = make_run(home), home / "text"
        write_text(text, options.lines, options.seed)
        size = text.stat().st_size
        many = ["--workers", str(options.workers)]
        runs["one worker, undisturbed"] = translate(model, text, home / "one", ["--workers", "1"])
        runs[f"{options.workers} workers, undisturbed"] = calm = translate(model, text, home / "two", many)
        runs[f"{options.workers} workers, killed at random"] = translate(
            model, text, home / "killed", many, Disturbance(options.seed, options.kills, calm.seconds)
        )
        if not options.no_ray and importlib.util.find_spec("ray"):
            ray = ["--ray", "local", *many]
            runs[f"Ray, {options.workers} workers, undisturbed"] = calm = translate(model, text, home / "ray", ray)
            disturb = Disturbance(options.seed, options.kills, calm.seconds, least=15.0)
            killed = translate(model, text, home / "ray-killed", ray, disturb)
            runs[f"Ray, {options.workers} workers, killed at random"] = killed
        out_lines = sum(1 for _ in (home / "killed").open("rb"))
    equal = len({each.sha256 for each in runs.values()}) == 1 and out_lines == options.lines
    flat = all(map(is_flat, runs.values()))
    report = describe(runs, options, size, equal, flat)
    print(report)
    Path(options.report).write_text(report + "\n", encoding="utf-8")
    raise SystemExit(not (equal and flat))


def describe(runs: dict[str, Measured], options: Any, size: int, equal: bool, flat: bool) -> str:
    verdict = "All outputs are byte-identical, one line for every line." if equal else "THE OUTPUTS DIFFER."
    if min(each.seconds for each in runs.values()) >= 120:
        verdict += " Memory is flat." if flat else " MEMORY GROWS."
    without = "" if any(name.startswith("Ray") for name in runs) else " Ray was not installed or not asked for."
    return "\n".join(
        [
            "# Shards: workers that die",
            "",
            f"Written by `benchmarks/shards.py --lines {options.lines} --workers {options.workers} --seed {options.seed}` "
            f"(`make prove-shards`) on {date.today().isoformat()}, {os.cpu_count()} CPU cores.",
            "",
            f"{options.lines:,} lines ({size:,} bytes) with empty lines, CRLF and no newline at the end, through a tiny model. "
            f"**{verdict}**{without}",
            "",
            "| run | killed with SIGKILL | took | most memory of the command | of a worker | sha256 of the output |",
            "|---|---|---|---|---|---|",
            *(row(name, measured) for name, measured in runs.items()),
            "",
            HOW,
            "The peak of memory in MiB as it stood in each tenth of a run; flat means that it does not grow with the file:",
            "",
            *(f"- {name}: {growth(measured)}" for name, measured in runs.items()),
        ]
    )


if __name__ == "__main__":
    main()
