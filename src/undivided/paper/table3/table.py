"""Table 3: train variations of a recipe with equal budgets, and score them. [paper 6.2, Table 3]"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeAlias

import numpy as np
from sacrebleu.metrics import BLEU

from undivided.config import CorpusFiles, Recipe
from undivided.config.settings import Values, merge
from undivided.core.console import Console, Progress
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.corpus import corpus_digests, hold_pairs
from undivided.inference.score import bleu_metric
from undivided.inference.translator import Translator
from undivided.paper.runs import WHOLE, Part, announce, fingerprint, pin_settings, read_facts, train_or_load
from undivided.paper.table3.variations import Row, describe_changes
from undivided.training.recipe import resolve_run

BUDGET: Values = {"train": {"validate_every": 1_000_000_000, "patience": 0}}
"""By default, no validation before the end."""
NO_AVERAGE: Values = {"train": {"average": 1}}
"""No averaged checkpoints, as in the paper, whatever the recipe says."""


@dataclass(frozen=True)
class Table3Config:
    """What to train: rows, seeds, data and folder."""

    values: Values
    rows: list[Row]
    base_seeds: int
    other_seeds: int
    test: CorpusFiles
    out: Path
    part: Part = WHOLE

    def runs(self) -> list[tuple[Row, int]]:
        """Every training as (row, seed), base first."""
        return [
            (row, seed) for row in self.rows for seed in range(1, 1 + (self.base_seeds if row.name == "base" else self.other_seeds))
        ]


Figure: TypeAlias = Callable[[np.ndarray], float]


class Result(NamedTuple):
    """One training measured on held-out pairs, as additive counts for each sentence."""

    parameters: int
    steps: int
    epochs: int
    seconds: float
    bleu_counts: list[list[int]]
    """For each sentence: matches and totals of n-grams of 1 to 4 words, length, reference length."""
    nll_counts: list[list[float]]
    """For each sentence: negative log-likelihood of the reference, and its tokens."""


@dataclass(frozen=True)
class RowResult:
    """A row with the results of all its seeds."""

    row: Row
    change: str
    results: list[Result]

    @property
    def bleu_counts(self) -> np.ndarray:
        """`seeds × sentences × counts`."""
        return np.array([result.bleu_counts for result in self.results])

    @property
    def nll_counts(self) -> np.ndarray:
        """`seeds × sentences × counts`."""
        return np.array([result.nll_counts for result in self.results])

    @property
    def bleus(self) -> list[float]:
        """One value for each seed."""
        return [bleu_of(sums) for sums in self.bleu_counts.sum(axis=1)]

    @property
    def exact(self) -> float:
        """The share of sentences of which every n-gram is right, mean over seeds: those that are said exactly as the reference."""
        counts = self.bleu_counts
        right = (counts[:, :, 0:4] == counts[:, :, 4:8]).all(axis=2) & (counts[:, :, 8] == counts[:, :, 9])
        return float(right.mean())

    @property
    def perplexities(self) -> list[float]:
        """One value for each seed."""
        return [math.exp(log_perplexity_of(sums)) for sums in self.nll_counts.sum(axis=1)]


def bleu_of(sums: np.ndarray) -> float:
    """BLEU from summed counts, as sacreBLEU computes it."""
    counts = [int(value) for value in sums]
    value = BLEU.compute_bleu(counts[0:4], counts[4:8], counts[8], counts[9], smooth_method="exp").score
    return float(value)


def log_perplexity_of(sums: np.ndarray) -> float:
    """The mean negative log-likelihood per token."""
    return float(sums[0] / max(1.0, float(sums[1])))


def sentence_counts(outputs: Sequence[str], references: Sequence[str], lang: str) -> list[list[int]]:
    """The counts of each sentence that BLEU adds up."""
    metric = bleu_metric(lang)
    metric.effective_order = True
    scores = [metric.sentence_score(output, [reference]) for output, reference in zip(outputs, references, strict=True)]
    return [[*score.counts, *score.totals, score.sys_len, score.ref_len] for score in scores]


def table3(config: Table3Config, console: Console) -> list[RowResult]:
    """Train and measure every row. Resumes after a stop: finished trainings are kept."""
    base = base_recipe(config)
    digests = corpus_digests([*base.data.train, *base.data.valid, config.test])
    pin_settings(config.out / "table3.json", {"corpora": sorted(digests.values()), "preset": base.preset}, "a table")
    results: dict[str, list[Result]] = {}
    for row in (each for each in config.rows if each.name != "base" and not describe_changes(each.vary(base), base)):
        console.warn(f"row {row.name} changes nothing in this recipe; left out")
    runs = [(row, seed) for row, seed in config.runs() if row.name == "base" or describe_changes(row.vary(base), base)]
    announce([settings_for(config, base, row, seed) for row, seed in config.part.of(runs)], console)
    for number, (row, seed) in config.part.of(list(enumerate(runs, 1))):
        console.say(f"row {row.name}, seed {seed}: training {number} of {len(runs)}")
        model = train_or_load(settings_for(config, base, row, seed), console)
        results.setdefault(row.name, []).append(measure(model, config.test, digests, console))
    return [RowResult(row, describe_changes(row.vary(base), base), results[row.name]) for row in config.rows if row.name in results]


def settings_for(config: Table3Config, base: Recipe, row: Row, seed: int) -> Values:
    """The full settings of a training. Rows differ in model and rate alone: with the same seed all see the same batches."""
    place = {"train": {"seed": seed, "out": str(config.out / f"{row.name}-{seed}")}}
    return merge(merge(config.values, {"preset": base.preset}), merge(row.vary(base), place))


def base_recipe(config: Table3Config) -> Recipe:
    """The full recipe that rows vary; without a preset, the one chosen for the size of the corpus."""
    if not config.values.get("data", {}).get("valid"):
        raise InputError("no validation data to choose models by: add --valid SOURCE TARGET")
    place = {"train": {"out": str(config.out / "base-1")}}
    return resolve_run(merge(config.values, place), Console(quiet=True)).recipe


def measure(model: Path, test: CorpusFiles, digests: dict[str, str], console: Console) -> Result:
    """Translate and score the test pairs, or read the earlier measurement.

    Always by PyTorch: 8-bit weights cost some models more than others, and not every row supports them.
    """
    translator = Translator(model, engine="torch")
    key = fingerprint((model / "manifest.json").read_text(), translator.search_config(), sorted(digests.values()), "whole lines")
    path = model.parent / f"{model.name}-{key}.json"
    if not path.exists():
        recipe, facts = translator.artifact.recipe, read_facts(model)
        pairs = hold_pairs(test, recipe.data)
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        progress = Progress(console, "translated lines", len(sources))
        outputs = [result.text for result in translator.stream(sources, advance=progress.advance, n_best=1, sentences=False)]
        console.clear()
        counts = sentence_counts(outputs, targets, recipe.data.target_lang)
        nll = [[-sum(row), float(len(row))] for row in translator.score(sources, targets)]
        result = Result(facts["parameters"], facts["steps"], facts["epochs"], facts["seconds"], counts, nll)
        write_atomic(path, json.dumps(result._asdict()))
    result = Result(**json.loads(path.read_text(encoding="utf-8")))
    console.say(f"{model.name}: BLEU {bleu_of(np.array(result.bleu_counts).sum(axis=0)):.2f}")
    return result
