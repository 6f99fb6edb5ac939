"""Stages of a long command: what is done is kept, what was stopped resumes, and what was made of something else is refused."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from undivided.config.settings import Values
from undivided.core.console import Console, duration
from undivided.core.errors import InputError
from undivided.core.files import read_json, sha256_of, write_atomic
from undivided.core.signals import Stopped


class Made(NamedTuple):
    """What a stage has made."""

    facts: Values
    """What later stages and people are told."""
    files: Sequence[Path] = ()
    """Files that later stages read: their digests are kept."""


class Budget:
    """Minutes for all stages together: each takes its share of what is left when it begins."""

    def __init__(self, minutes: float, stages: Sequence[tuple[str, float]]) -> None:
        self.minutes, self.stages = minutes, list(stages)

    def minutes_of(self, stage: str, seconds: float) -> float:
        """The minutes of a stage that begins after so many seconds; 0 is no limit."""
        if not self.minutes:
            return 0.0
        weights = dict(self.stages)
        names = list(weights)
        later = sum(weights[name] for name in names[names.index(stage) :])
        return max(0.05, round((self.minutes - seconds / 60) * weights[stage] / later, 2))

    def __str__(self) -> str:
        if not self.minutes:
            return "\n".join(f"  {name}: as long as its own settings say" for name, _ in self.stages)
        total = sum(weight for _, weight in self.stages)
        return "\n".join(f"  {name}: about {self.minutes * weight / total:.0f} min" for name, weight in self.stages)


class Stages:
    """The stages of a command, each with a folder of its own."""

    def __init__(self, folder: Path, console: Console) -> None:
        self.folder, self.console = folder, console
        self.seconds = 0.0
        """What all stages so far took, those of earlier starts of the command included."""

    def run(self, name: str, origin: Values, make: Callable[[Path], Made]) -> Values:
        """The facts of a stage: those it left, if it was done before, or it is done now; `origin` is all that it depends on.

        `make` resumes by itself what is in its folder, if it was stopped there.
        """
        folder = self.folder / name
        folder.mkdir(parents=True, exist_ok=True)
        self._check_origin(folder, json.loads(json.dumps(origin)))
        done = folder / "stage.json"
        if done.exists():
            found = read_json(done)
            self._check_files(folder, found["files"])
        else:
            self.console.say(f"stage {name} …")
            began = time.monotonic()
            try:
                facts, files = make(folder)
            except (Stopped, KeyboardInterrupt) as stop:
                number = stop.number if isinstance(stop, Stopped) else signal.SIGINT
                raise Stopped(number, f"stopped in stage {name}; run the same command again to resume") from None
            except InputError:
                # Nothing stays that a corrected command would have to agree with.
                (folder / "origin.json").unlink(missing_ok=True)
                raise
            digests = {str(path.relative_to(folder)): sha256_of(path) for path in files}
            # Of a training that was stopped and resumed, all of its time.
            spent = max(time.monotonic() - began, 60 * float(facts.get("minutes", 0)))
            found = {"facts": facts, "files": digests, "seconds": round(spent, 1)}
            write_atomic(done, json.dumps(found, indent=2, ensure_ascii=False))
        self.seconds += float(found["seconds"])
        said = filter(None, (_in_words(found["facts"]), duration(float(found["seconds"]))))
        self.console.say(f"stage {name}: {', '.join(said)}")
        return dict(found["facts"])

    def _check_origin(self, folder: Path, origin: Values) -> None:
        """Refuse to mix what was made of one thing with what would be made of another."""
        path = folder / "origin.json"
        if not path.exists():
            write_atomic(path, json.dumps(origin, indent=2, ensure_ascii=False))
            return
        before = read_json(path)
        differing = sorted(key for key in before.keys() | origin.keys() if before.get(key) != origin.get(key))
        if differing:
            raise InputError(
                f"{folder}: this stage was begun with other {', '.join(differing)}; undo the change, choose another --out, or "
                f"remove {folder} and the stages after it"
            )

    def _check_files(self, folder: Path, digests: dict[str, str]) -> None:
        for name, digest in digests.items():
            if not (folder / name).is_file() or sha256_of(folder / name) != digest:
                raise InputError(f"{folder / name}: missing or changed since it was made; remove {folder} to make it again")


def _in_words(facts: Values) -> str:
    """The plain facts of a stage."""
    shown = {name: value for name, value in facts.items() if isinstance(value, int | float)}
    return ", ".join(f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}" for name, value in shown.items())
