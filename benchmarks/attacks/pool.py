"""Run trials, each in a fork of its own, a few at a time, each with a deadline."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from attacks.command import patient
from attacks.trial import FAULTS, Attack, Broken, Trial, Verdict
from attacks.world import World


@dataclass
class Result:
    """How the trials of an attack ended."""

    attack: Attack
    verdicts: Counter[str] = field(default_factory=Counter)
    ways: Counter[str] = field(default_factory=Counter)
    """How they held."""
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def broken(self) -> int:
        return sum(self.verdicts[each] for each in FAULTS)


@dataclass
class _Running:
    attack: Attack
    number: int
    folder: Path
    deadline: float
    began: float


def name_seed(seed: int, attack: Attack, number: int) -> str:
    """What the chance of a trial is a function of, and how it is repeated."""
    return f"{seed}/{attack.name}/{number}"


def run_trials(attacks: Iterable[tuple[Attack, Iterable[int]]], world: World, scratch: Path, seed: int, jobs: int) -> list[Result]:
    """Run the numbered trials of each attack, `jobs` at a time."""
    waiting = [(attack, number) for attack, numbers in attacks for number in numbers]
    results: dict[str, Result] = {attack.name: Result(attack) for attack, _ in waiting}
    running: dict[int, _Running] = {}
    done = 0
    while waiting or running:
        while waiting and _is_room(waiting[0][0], running, jobs):
            attack, number = waiting.pop(0)
            pid, trial = _start(attack, number, world, scratch, seed)
            running[pid] = trial
        for pid in list(running):
            ended = _collect(pid, running[pid], results[running[pid].attack.name], seed)
            if ended:
                shutil.rmtree(running.pop(pid).folder, ignore_errors=True)
                done += 1
                if done % 100 == 0:
                    broken = sum(each.broken for each in results.values())
                    print(
                        f"{done} trials, {broken} did not hold, next: {waiting[0][0].name if waiting else 'none'}", file=sys.stderr
                    )
        time.sleep(0.004)
    return list(results.values())


def _is_room(attack: Attack, running: dict[int, _Running], jobs: int) -> bool:
    if attack.alone or any(each.attack.alone for each in running.values()):
        return not running
    return len(running) < jobs


def _start(attack: Attack, number: int, world: World, scratch: Path, seed: int) -> tuple[int, _Running]:
    name = name_seed(seed, attack, number)
    folder = scratch / f"{attack.name.replace(' ', '-')}-{number}"
    folder.mkdir()
    now = time.monotonic()
    pid = os.fork()
    if not pid:
        os.setsid()
        _try(attack, Trial(random.Random(name), folder, world))
    return pid, _Running(attack, number, folder, now + patient(attack.seconds), now)


def _try(attack: Attack, trial: Trial) -> None:
    """In a fork: one trial; its verdict goes into a file beside its folder."""
    verdict, text = Verdict.WRONG, "the trial itself failed"
    try:
        with open(trial.folder.with_suffix(".log"), "w") as log:
            os.dup2(log.fileno(), 2)
            os.dup2(log.fileno(), 1)
        text = attack.run(trial)
        verdict = Verdict.SKIPPED if text.startswith("skipped") else Verdict.HELD
    except Broken as broken:
        verdict, text = broken.verdict, str(broken)
    except BaseException:
        verdict, text = Verdict.TRACEBACK, traceback.format_exc()
    try:
        trial.folder.with_suffix(".verdict").write_text(json.dumps([verdict, text]))
    finally:
        # Never back into the code of the parent, which would remove its folders.
        os._exit(0)


def _collect(pid: int, trial: _Running, result: Result, seed: int) -> bool:
    """Whether a trial has ended; if so, its verdict is counted, and all that it started is gone."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found and time.monotonic() < trial.deadline:
        return False
    note, log = trial.folder.with_suffix(".verdict"), trial.folder.with_suffix(".log")
    if not found:
        _kill(pid)
        os.waitpid(pid, 0)
        verdict, text = Verdict.HANG, f"no end after {patient(trial.attack.seconds):.0f} s"
    elif note.exists():
        verdict, text = json.loads(note.read_text())
    else:
        verdict, text = Verdict.ABORT, f"status {status}: {log.read_text(errors='replace')[-1500:] if log.exists() else ''}"
    _kill(pid)
    result.verdicts[verdict] += 1
    result.seconds += time.monotonic() - trial.began
    if verdict in (Verdict.HELD, Verdict.SKIPPED):
        result.ways[text] += 1
    else:
        result.failures.append(f"{verdict}: {name_seed(seed, trial.attack, trial.number)}: {text}")
        print(result.failures[-1], file=sys.stderr, flush=True)
    for path in (note, log):
        path.unlink(missing_ok=True)
    return True


def _kill(group: int) -> None:
    """End whatever a trial left running in its own group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
