"""A trial: one seeded attempt to do harm, and its verdict."""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from attacks.command import Ended, run_forked
from attacks.world import World


class Verdict(StrEnum):
    """How a trial ended. Everything but `HELD` and `SKIPPED` is a fault."""

    HELD = "held"
    LOST = "lost"
    """Something that was there is gone, or was written where it must not be."""
    WRONG = "wrong"
    """A result differs from the right one, a refusal has no sentence, or a limit was passed."""
    ABORT = "abort"
    """A process ended by a signal that nobody sent."""
    TRACEBACK = "traceback"
    HANG = "hang"
    SKIPPED = "skipped"
    """It cannot be tried on this machine; the report says why."""


FAULTS = [Verdict.LOST, Verdict.WRONG, Verdict.ABORT, Verdict.TRACEBACK, Verdict.HANG]


class Broken(Exception):
    """What did not hold."""

    def __init__(self, verdict: Verdict, detail: str) -> None:
        super().__init__(detail)
        self.verdict = verdict


class Trial:
    """What an attack is given: seeded chance, an empty folder, and the world that was made before."""

    def __init__(self, chance: random.Random, folder: Path, world: World) -> None:
        self.chance, self.folder, self.world = chance, folder, world

    def run(self, *arguments: str | bytes | Path, **how: Any) -> Ended:
        """Run the command in a fork of this process, and judge how it ended."""
        return judge(run_forked(arguments, self.folder, **how))

    def check(self, holds: bool, detail: str, verdict: Verdict = Verdict.WRONG) -> None:
        if not holds:
            raise Broken(verdict, detail)

    def refused(self, ended: Ended, *words: str) -> str:
        """Check that a command was refused with one sentence, which holds one of these words, if any are given."""
        self.check(ended.code == 2, f"exit code {ended.code}, not 2: {ended.err[-500:]}")
        self.check("undivided: " in ended.err, f"refused without a sentence: {ended.err[-300:]!r}")
        self.check(not words or any(word in ended.err for word in words), f"the sentence has none of {words}: {ended.err[-500:]}")
        return "refused"


EXPECTED = (0, 1, 2, 3, 130, 143)


def judge(ended: Ended) -> Ended:
    """Tracebacks, aborts and hangs are faults whatever was tried."""
    shown = f"{ended.command}: {ended.err[-1500:]}"
    if ended.hung:
        raise Broken(Verdict.HANG, shown)
    if "Traceback (most recent" in ended.err or "Exception ignored" in ended.err or "Fatal Python error" in ended.err:
        raise Broken(Verdict.TRACEBACK, shown)
    if ended.code < 0 and -ended.code not in ended.sent:
        raise Broken(Verdict.ABORT, f"signal {-ended.code}: {shown}")
    if ended.code >= 0 and ended.code not in EXPECTED:
        raise Broken(Verdict.WRONG, f"exit code {ended.code}: {shown}")
    if ended.code in (1, 2) and not ended.silent and "undivided: " not in ended.err:
        raise Broken(Verdict.WRONG, f"exit code {ended.code} without a sentence: {shown}")
    return ended


class Attack(NamedTuple):
    """A kind of harm that is tried so often, each time with another seed."""

    name: str
    faults: str
    """The numbers of the faults that it covers, as in docs/adversary.md."""
    about: str
    """What is done and what must hold, for the report."""
    count: int
    run: Callable[[Trial], str]
    """Try it once: in a word how it held; raises `Broken` where it did not."""
    seconds: float = 60
    """After so long a trial hangs."""
    alone: bool = False
    """Whether nothing else may run beside it: it measures time or uses all cores."""
