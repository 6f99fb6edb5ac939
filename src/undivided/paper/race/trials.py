"""Short trainings that choose the rate and the dropout of each model of the race on validation, as many for each. [paper 6.1]"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from undivided.config import build_recipe
from undivided.config.settings import Values, merge
from undivided.core.console import Console
from undivided.paper.race.curves import read_curve
from undivided.paper.runs import train_or_load

NO_VALIDATION: Values = {"train": {"validate_every": 1_000_000_000, "seed": 1}}
"""A trial is validated at its end alone."""


@dataclass(frozen=True)
class TrialPlan:
    """What is tried: the recipe's rate times each factor, with each dropout."""

    minutes: float
    factors: tuple[float, ...] = (0.5, 1.0, 2.0)
    dropouts: tuple[float, ...] = (0.1, 0.3)


class Trial(NamedTuple):
    """One combination and what validation said of it."""

    rate: float
    dropout: float
    bleu: float
    perplexity: float


def trial_settings(plan: TrialPlan, values: Values, folder: Path) -> list[Values]:
    """The full settings of all trials of a model."""
    rate = build_recipe(values).train.rate
    found = []
    for factor in plan.factors:
        for dropout in plan.dropouts:
            tried = float(f"{rate * factor:.3g}")
            place = {"rate": tried, "minutes": plan.minutes, "out": str(folder / f"{tried:g}-{dropout:g}")}
            found.append(merge(merge(values, NO_VALIDATION), {"model": {"dropout": dropout}, "train": place}))
    return found


def run_trials(plan: TrialPlan, values: Values, folder: Path, console: Console) -> list[Trial]:
    """Train all trials of a model, or find them trained."""
    found = []
    for settings in trial_settings(plan, values, folder):
        rate, dropout = settings["train"]["rate"], settings["model"]["dropout"]
        console.say(f"trial: rate {rate:g}, dropout {dropout:g}")
        last = read_curve(train_or_load(settings, console))[-1]
        found.append(Trial(rate, dropout, last.bleu, last.perplexity))
    return found


def best_trial(trials: list[Trial]) -> Trial:
    """The one with the highest validation BLEU; of equals, as at 0, the one with the lower perplexity."""
    return max(trials, key=lambda trial: (round(trial.bleu, 2), -trial.perplexity))


def with_trial(values: Values, trial: Trial) -> Values:
    """Settings with what was chosen."""
    return merge(values, {"model": {"dropout": trial.dropout}, "train": {"rate": trial.rate}})


def describe_trials(trials: list[Trial]) -> str:
    """All of them, the chosen one in bold."""
    chosen = best_trial(trials)
    said = [f"rate {each.rate:g}, dropout {each.dropout:g}: {each.bleu:.2f} ({each.perplexity:.2f})" for each in trials]
    return "; ".join(f"**{text}**" if each == chosen else text for each, text in zip(trials, said, strict=True))
