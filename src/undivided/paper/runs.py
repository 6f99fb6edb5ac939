"""Trainings of a table: each has its own model folder, resumes after a stop, and is not repeated."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from undivided.config import Recipe, build_recipe
from undivided.config.settings import Values, as_values
from undivided.core.console import Console, duration
from undivided.core.errors import InputError
from undivided.core.files import open_append, write_atomic
from undivided.training.loop import Stopped, train
from undivided.training.recipe import resolve_run

Item = TypeVar("Item")

TRIAL_SECONDS = 1.0
"""How long the speed of the machine is tried before a table."""


class Part(NamedTuple):
    """Which of the trainings a process does, where several share them: every `of_all`th, from `number` (1, 2, …) on."""

    number: int
    of_all: int

    def of(self, runs: Sequence[Item]) -> list[Item]:
        """Its share."""
        return list(runs[self.number - 1 :: self.of_all])


WHOLE = Part(1, 1)
"""One process does all."""


def announce(runs: Sequence[Values], console: Console) -> None:
    """Say how many trainings are still to do and about how long they take: as long as their budgets, or by their FLOPs."""
    recipes = [build_recipe(values) for values in runs]
    missing = [recipe for recipe in recipes if not (Path(recipe.train.out) / "manifest.json").exists()]
    if not missing or console.quiet:
        return
    seconds = estimate_seconds(missing)
    console.say(f"{len(missing)} of {len(runs)} trainings to do: about {duration(seconds)}, translation of the test aside")


def estimate_seconds(recipes: Sequence[Recipe]) -> float:
    """What trainings will take one after the other on this machine: a short trial of the first says how fast it is."""
    from undivided.training.plan import make_plan, measure

    plans = [make_plan(recipe) for recipe in recipes]
    limits = [recipe.train.minutes * 60 or math.inf for recipe in recipes]
    if not any(map(math.isinf, limits)):
        return sum(limits)
    rate = measure(plans[0], TRIAL_SECONDS).training_flops
    return sum(min(limit, plan.total_flops / rate) for limit, plan in zip(limits, plans, strict=True))


def train_or_load(values: Values, console: Console) -> Path:
    """The model folder of a recipe: trained now, resumed, or found complete."""
    run = resolve_run(values, Console(quiet=True))
    if run.resumes and is_complete(run.recipe):
        console.say(f"{run.recipe.train.out}: already trained")
        return run.folder.parent
    try:
        return train(values, console)
    except Stopped as stopped:
        raise stopped.with_message(f"stopped and saved in {run.recipe.train.out}; run the same command again to resume") from None


def is_complete(recipe: Recipe) -> bool:
    """Whether a training came to its end, and would not continue under this recipe."""
    final = [event for event in read_log(Path(recipe.train.out)) if event["event"] == "final"]
    if not final:
        return False
    config, last = recipe.train, final[-1]
    return not config.minutes or last["seconds"] >= config.minutes * 60 or last["step"] >= config.max_steps


def read_log(model: Path) -> list[dict[str, Any]]:
    """The events that a training logged, in order; a line cut by a stop is skipped."""
    path = model / "training" / "log.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]


def read_facts(model: Path) -> dict[str, Any]:
    """The facts about its training in a model folder."""
    facts: dict[str, Any] = json.loads((model / "config.json").read_text(encoding="utf-8"))["facts"]
    return facts


def pin_settings(path: Path, facts: Values, what: str) -> None:
    """Record the settings that a folder was started with; raise an error if they differ from the recorded ones."""
    text = json.dumps(facts, indent=2, sort_keys=True, ensure_ascii=False)
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, text)
    before = json.loads(path.read_text(encoding="utf-8"))
    changed = [key for key in before.keys() | facts.keys() if before.get(key) != json.loads(text).get(key)]
    if changed:
        faults = [f"{key} was {_show_value(before, key)}, now {_show_value(facts, key)}" for key in sorted(changed)]
        where = f"{path.parent}: {what} was started there with other settings; choose another --out:"
        raise InputError("\n  - ".join([where, *faults]))


def _show_value(facts: Values, key: str) -> str:
    return repr(facts[key]) if key in facts else "not set"


def fingerprint(*parts: Any) -> str:
    """A short hash of some values, for file names."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=as_values).encode()).hexdigest()[:12]


def compute_lines(path: Path, items: Sequence[Any], work: Callable[[Sequence[Any]], Iterator[str]], chunk: int) -> list[str]:
    """Compute one line of text for every item into a file; resumes after the last complete chunk."""
    if path.exists():
        return path.read_text(encoding="utf-8").split("\n")[:-1]
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    done = part.read_text(encoding="utf-8").split("\n")[:-1] if part.exists() else []
    done = done[: len(done) // chunk * chunk]
    write_atomic(part, "".join(f"{line}\n" for line in done))
    for start in range(len(done), len(items), chunk):
        lines = list(work(items[start : start + chunk]))
        with open_append(part) as stream:
            stream.write("".join(f"{line}\n" for line in lines).encode())
        done += lines
    part.replace(path)
    return done
