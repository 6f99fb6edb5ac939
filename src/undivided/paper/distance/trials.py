"""Trainings of the long-range task: each model at each distance, with several seeds and rates; every result is a file."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F

from undivided.core.console import Console, duration
from undivided.core.files import write_atomic
from undivided.nn.device import one_thread
from undivided.paper.distance.recall import COMPETITORS, Reader, draw_examples, make_reader
from undivided.paper.runs import pin_settings

SOLVED = 0.99
"""A training ends early when two validations in a row are at least as accurate as this."""


@dataclass(frozen=True)
class DistanceConfig:
    """What to train, and how long."""

    names: list[str]
    distances: list[int]
    seeds: int
    rates: list[float]
    steps: int
    batch: int
    out: Path
    longest: int = 0
    """The distance that convolutions are made deep enough for; the longest of `distances` if 0."""

    def runs(self) -> list[Run]:
        """Every training, short distances first, so that a stopped table has whole columns."""
        return [
            Run(name, distance, seed, rate)
            for distance in self.distances
            for seed in range(1, self.seeds + 1)
            for name in self.names
            for rate in self.rates
        ]


class Run(NamedTuple):
    """One training."""

    name: str
    distance: int
    seed: int
    rate: float

    @property
    def file(self) -> str:
        """The name of its result."""
        return f"{self.name}-{self.distance}-{self.seed}-{self.rate:g}.json"


@dataclass(frozen=True)
class RunResult:
    """What a training came to."""

    name: str
    distance: int
    seed: int
    rate: float
    steps: int
    seconds: float
    validation: float
    test: float
    curve: list[tuple[int, float]] = field(default_factory=list)
    """Step and accuracy of each validation."""

    @property
    def is_solved(self) -> bool:
        """Whether it ended early."""
        return [accuracy >= SOLVED for _, accuracy in self.curve[-2:]] == [True, True]


def train_all(config: DistanceConfig, console: Console) -> list[RunResult]:
    """All trainings; those whose result is in the folder are not repeated."""
    longest = config.longest or max(config.distances)
    facts = {"steps": config.steps, "batch": config.batch, "convolutions made for": longest}
    pin_settings(config.out / "distance.json", facts, "a comparison")
    missing = [run for run in config.runs() if not (config.out / run.file).exists()]
    if missing:
        most = duration(sum(estimate(config, missing, longest)))
        console.say(
            f"{len(missing)} of {len(config.runs())} trainings to do: at most {most} on one core; what is learned early ends early"
        )
    for number, run in enumerate(missing, 1):
        if not (config.out / run.file).exists():  # another process may share the folder
            result = train_one(run, config, longest)
            write_atomic(config.out / run.file, json.dumps(asdict(result)))
            what = f"{COMPETITORS[run.name].name}, distance {run.distance}, seed {run.seed}, rate {run.rate:g}"
            console.say(f"{number} of {len(missing)}: {what}: {result.test:.1%} right after {result.steps:,} steps")
    return read_results(config)


def read_results(config: DistanceConfig) -> list[RunResult]:
    """The results of the config's trainings that are there."""
    paths = [path for run in config.runs() if (path := config.out / run.file).exists()]
    found = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    return [RunResult(**{**each, "curve": [tuple(point) for point in each["curve"]]}) for each in found]


def estimate(config: DistanceConfig, runs: list[Run], longest: int) -> Iterator[float]:
    """The seconds of each training if it takes all its steps, from one timed step of its kind at its distance."""
    timed: dict[tuple[str, int], float] = {}
    for run in runs:
        key = run.name, run.distance
        if key not in timed:
            with one_thread():
                trainer = _Trainer(make_reader(run.name, longest, 1), run, config)
                trainer.step(0)
                began = time.monotonic()
                trainer.step(1)
                timed[key] = time.monotonic() - began
        yield config.steps * timed[key]


class _Trainer:
    """A model on its way: Adam with warm-up and a cosine, on fresh sequences in every step."""

    def __init__(self, reader: Reader, run: Run, config: DistanceConfig) -> None:
        self.reader, self.run, self.config = reader, run, config
        self.optimizer = torch.optim.Adam(reader.parameters(), betas=(0.9, 0.98))
        self.chance = torch.Generator().manual_seed(run.seed)

    def step(self, number: int) -> None:
        done = number / self.config.steps
        for group in self.optimizer.param_groups:
            group["lr"] = self.run.rate * min(1.0, (number + 1) / 50, 0.5 * (1 + math.cos(math.pi * done)))
        examples = draw_examples(self.config.batch, self.run.distance, self.chance)
        loss = F.cross_entropy(self.reader(examples.tokens), examples.answers)
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.reader.parameters(), 1.0)
        self.optimizer.step()


def train_one(run: Run, config: DistanceConfig, longest: int) -> RunResult:
    """Train until it is learned or the steps are over, then measure on fresh sequences. A function of the run alone."""
    curve: list[tuple[int, float]] = []
    every = max(1, config.steps // 15)
    began, number = time.monotonic(), 0
    with one_thread():
        reader = make_reader(run.name, longest, run.seed)
        trainer = _Trainer(reader, run, config)
        for number in range(1, config.steps + 1):
            trainer.step(number - 1)
            if number % every == 0 or number == config.steps:
                curve.append((number, measure_accuracy(reader, run.distance, 256, 1_000_000)))
                if [accuracy >= SOLVED for _, accuracy in curve[-2:]] == [True, True]:
                    break
        test = measure_accuracy(reader, run.distance, 1024, 2_000_000)
    return RunResult(*run, number, time.monotonic() - began, curve[-1][1], test, curve)


@torch.inference_mode()
def measure_accuracy(reader: Reader, distance: int, count: int, seed: int) -> float:
    """The share of right answers to sequences that are the same for all models."""
    chance, right = torch.Generator().manual_seed(seed + distance), 0
    for start in range(0, count, 64):
        examples = draw_examples(min(64, count - start), distance, chance)
        right += int((reader(examples.tokens).argmax(dim=-1) == examples.answers).sum())
    return right / count


class Cell(NamedTuple):
    """A model at a distance, with the rate that was best on validation."""

    rate: float
    tests: list[float]
    """Of each seed."""
    steps: list[int]
    solved: list[bool]

    @property
    def mean(self) -> float:
        return float(np.mean(self.tests))


def choose_rates(results: list[RunResult]) -> dict[tuple[str, int], Cell]:
    """Of each model and distance the rate with the best mean validation over seeds; of equals, the one that took fewer steps."""
    cells: dict[tuple[str, int], Cell] = {}
    for key in dict.fromkeys((each.name, each.distance) for each in results):
        own = [each for each in results if (each.name, each.distance) == key]
        by_rate = {rate: [each for each in own if each.rate == rate] for rate in dict.fromkeys(each.rate for each in own)}

        def merit(rate: float, by_rate: dict[float, list[RunResult]] = by_rate) -> tuple[float, float]:
            runs = by_rate[rate]
            return float(np.mean([min(each.validation, SOLVED) for each in runs])), -float(np.mean([each.steps for each in runs]))

        best = by_rate[max(by_rate, key=merit)]
        cells[key] = Cell(
            best[0].rate, [each.test for each in best], [each.steps for each in best], [each.is_solved for each in best]
        )
    return cells
