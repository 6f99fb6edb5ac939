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
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from attacks.command import patient
from attacks.journal import Journal
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

    def add(self, verdict: str, text: str) -> None:
        """Count a trial."""
        self.verdicts[verdict] += 1
        if verdict in (Verdict.HELD, Verdict.SKIPPED):
            self.ways[text] += 1
        else:
            self.failures.append(text)

    @property
    def broken(self) -> int:
        return sum(self.verdicts[each] for each in FAULTS)


@dataclass
class Plan:
    """How trials are run."""

    seed: int
    jobs: int
    journal: Journal
    deadline: float
    """No trial is started after this moment of the monotonic clock."""


@dataclass
class _Running:
    attack: Attack
    number: int
    folder: Path
    deadline: float


def name_seed(seed: int, attack: Attack, number: int) -> str:
    """What the chance of a trial is a function of, and how it is repeated."""
    return f"{seed}/{attack.name}/{number}"


def run_trials(
    attacks: Iterable[tuple[Attack, Sequence[int]]], world: World, scratch: Path, plan: Plan
) -> tuple[list[Result], bool]:
    """Run the numbered trials of each attack, all attacks in step; their results, and whether all were run."""
    numbered = [(attack, number, number / max(1, len(numbers))) for attack, numbers in attacks for number in numbers]
    results: dict[str, Result] = {attack.name: Result(attack) for attack, _, _ in numbered}
    known = set()
    for facts in plan.journal.read():
        if facts.get("attack") in results:
            known.add((facts["attack"], facts["number"]))
            results[facts["attack"]].add(facts["verdict"], facts["text"])
    # Those that nothing may run beside come last.
    ordered = sorted(numbered, key=lambda each: (each[0].alone, each[2]))
    waiting = [(attack, number) for attack, number, _ in ordered if (attack.name, number) not in known]
    running: dict[int, _Running] = {}
    while (waiting and time.monotonic() < plan.deadline) or running:
        while waiting and time.monotonic() < plan.deadline and _is_room(waiting[0][0], running, plan.jobs):
            attack, number = waiting.pop(0)
            pid, trial = _start(attack, number, world, scratch, plan.seed)
            running[pid] = trial
        for pid in list(running):
            if ended := _collect(pid, running[pid]):
                _record(running.pop(pid), *ended, results, plan)
        time.sleep(0.004)
    return list(results.values()), not waiting


def _record(trial: _Running, verdict: str, text: str, results: dict[str, Result], plan: Plan) -> None:
    """Count a verdict and write it down."""
    name = trial.attack.name
    if verdict not in (Verdict.HELD, Verdict.SKIPPED):
        text = f"{verdict}: {name_seed(plan.seed, trial.attack, trial.number)}: {text}"
        print(text, file=sys.stderr, flush=True)
    results[name].add(verdict, text)
    plan.journal.add(attack=name, number=trial.number, verdict=verdict, text=text)
    shutil.rmtree(trial.folder, ignore_errors=True)
    done = sum(sum(each.verdicts.values()) for each in results.values())
    if done % 100 == 0:
        print(f"{done} trials, {sum(each.broken for each in results.values())} did not hold", file=sys.stderr, flush=True)


def _is_room(attack: Attack, running: dict[int, _Running], jobs: int) -> bool:
    if attack.alone or any(each.attack.alone for each in running.values()):
        return not running
    return len(running) < jobs


def _start(attack: Attack, number: int, world: World, scratch: Path, seed: int) -> tuple[int, _Running]:
    name = name_seed(seed, attack, number)
    folder = scratch / f"{attack.name.replace(' ', '-')}-{number}"
    folder.mkdir()
    pid = os.fork()
    if not pid:
        os.setsid()
        _try(attack, Trial(random.Random(name), folder, world))
    return pid, _Running(attack, number, folder, time.monotonic() + patient(attack.seconds))


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


def _collect(pid: int, trial: _Running) -> tuple[str, str] | None:
    """The verdict of a trial that has ended, and its text; all that it started is gone."""
    found, status = os.waitpid(pid, os.WNOHANG)
    if not found and time.monotonic() < trial.deadline:
        return None
    note, log = trial.folder.with_suffix(".verdict"), trial.folder.with_suffix(".log")
    if not found:
        _kill(pid)
        os.waitpid(pid, 0)
        verdict, text = str(Verdict.HANG), f"no end after {patient(trial.attack.seconds):.0f} s"
    elif note.exists():
        verdict, text = json.loads(note.read_text())
    else:
        text = log.read_text(errors="replace")[-1500:] if log.exists() else ""
        verdict, text = str(Verdict.ABORT), f"status {status}: {text}"
    _kill(pid)
    for path in (note, log):
        path.unlink(missing_ok=True)
    return verdict, text


def _kill(group: int) -> None:
    """End whatever a trial left running in its own group."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
