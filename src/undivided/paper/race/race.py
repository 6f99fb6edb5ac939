"""The race: the Transformer and older models with the same number of parameters, data and budget. [paper 4, 6.1]"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from undivided.config import CorpusFiles, ModelConfig, build_recipe
from undivided.config.model import CONVOLUTIONAL, RECURRENT
from undivided.config.settings import Values, merge, suggest
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.corpus import corpus_digests, hold_pairs
from undivided.inference.translator import Translator
from undivided.models import make_model
from undivided.paper.race.curves import Curve, read_curve
from undivided.paper.race.reach import Reach, measure_reach
from undivided.paper.race.trials import Trial, TrialPlan, best_trial, run_trials, trial_settings, with_trial
from undivided.paper.runs import WHOLE, Part, announce, fingerprint, pin_settings, read_facts, train_or_load
from undivided.paper.table3.table import Result, measure


@dataclass(frozen=True)
class Entrant:
    """A model of the race: its kind, and how it differs from the recipe of that kind."""

    name: str
    kind: str
    changes: Values


def _recurrent(cell: str, attention: str) -> Entrant:
    name = f"{cell.upper()}, {'fixed context' if attention == 'none' else 'attention'}"
    return Entrant(name, "recurrent", {"cell": cell, "attention": attention, "input_feeding": False})


ENTRANTS = {
    "rnn": _recurrent("rnn", "none"),
    "rnn-attention": _recurrent("rnn", "additive"),
    "lstm": _recurrent("lstm", "none"),
    "lstm-attention": _recurrent("lstm", "additive"),
    "gru": _recurrent("gru", "none"),
    "gru-attention": _recurrent("gru", "additive"),
    "convolutional": Entrant("convolutional", "convolutional", {}),
    "transformer": Entrant("Transformer", "transformer", {}),
}
"""By their names in `--models` and of their folders."""

BUDGET: Values = {"train": {"average": 1, "patience": 0}}
"""No averaging, and nobody ends early."""

VALIDATE_EVERY = 500
"""Steps between the points of a curve, where neither recipe nor command says; the time of a validation is none of training's."""

SPEED_LINES = 200
"""Test sentences whose translation is timed."""


class RaceResult(NamedTuple):
    """The measurements of one training: those of Table 3, speed and reach."""

    result: Result
    target_tokens: int
    """Seen in training."""
    translated_tokens: int
    translated_seconds: float
    reach: Reach
    source_words: list[int]
    """Of each test sentence."""
    curve: Curve
    """Its validations."""


@dataclass(frozen=True)
class RaceConfig:
    """Who runs, on what, how often, where."""

    recipes: dict[str, Values]
    """The settings by kind of model; `transformer` is there, and others are derived from it where they have none."""
    names: list[str]
    seeds: int
    test: CorpusFiles
    out: Path
    seeded: tuple[str, ...] = ()
    """The entrants that have all seeds, others one; all if none is named."""
    trials: TrialPlan | None = None
    part: Part = WHOLE

    def runs(self, names: Sequence[str]) -> list[tuple[str, int]]:
        """The trainings of some entrants, the first seed of each first."""
        last = {name: self.seeds if not self.seeded or name in self.seeded else 1 for name in names}
        return [(name, seed) for seed in range(1, self.seeds + 1) for name in names if seed <= last[name]]


class Race(NamedTuple):
    """What came of it: the results of each entrant by seed, and the trials that chose its rate and dropout."""

    runs: dict[str, list[RaceResult]]
    trials: dict[str, list[Trial]]


def select_models(text: str, flag: str = "--models") -> list[str]:
    """`rnn,transformer` as names of entrants, in the order of the race."""
    if text == "all":
        return list(ENTRANTS)
    wanted = [part.strip() for part in text.split(",")]
    faults = [
        f"{flag}: {name!r} is none of {', '.join(ENTRANTS)}{suggest(name, ENTRANTS)}" for name in wanted if name not in ENTRANTS
    ]
    if faults:
        raise InputError("\n".join(faults))
    return [name for name in ENTRANTS if name in wanted]


def by_kind(recipes: Sequence[Values]) -> dict[str, Values]:
    """Recipes by the kind of their model; all faults at once."""
    found: dict[str, Values] = {}
    faults = []
    for values in recipes:
        model = values.get("model")
        kind = str(model.get("kind", "transformer")) if isinstance(model, Mapping) else "transformer"
        if kind in found:
            faults.append(f"two recipes have a {kind} model; the race takes one of each kind")
        if kind not in ("transformer", "recurrent", "convolutional"):
            faults.append(f"model.kind: {kind} models do not translate, so they cannot race")
        found[kind] = values
    if "transformer" not in found:
        faults.append("one recipe must be that of the Transformer: the others are made as large as it")
    if faults:
        raise InputError("\n".join(faults))
    return found


def settings_for(config: RaceConfig, name: str) -> Values:
    """The full settings of an entrant: those of its kind's recipe, or the Transformer's without what its kind has not."""
    entrant, base = ENTRANTS[name], config.recipes["transformer"]
    own = config.recipes.get(entrant.kind)
    preset = str(base.get("preset") or "tiny")
    if own is None:
        applicable = {field.name for field in dataclasses.fields(ModelConfig) if _has(field, entrant.kind)}
        model = {key: value for key, value in base.get("model", {}).items() if key in applicable}
        own = merge(base, {}) | {"model": model}
    # Text, subwords, batches, search and budget are the same for all; only the model and its learning rate may differ.
    shared: Values = {key: value for key, value in base.items() if key in ("data", "tokens", "batches", "search")}
    limits = ("minutes", "max_steps", "max_epochs", "threads", "device", "validate_every", "validate_lines")
    budget = {"validate_every": VALIDATE_EVERY} | {key: base["train"][key] for key in limits if key in base.get("train", {})}
    values = merge(merge(own, shared), {"preset": preset, "model": {"kind": entrant.kind, **entrant.changes}})
    values = merge(merge(BUDGET, values), {"train": {**budget, **BUDGET["train"]}})
    if entrant.kind == "transformer":
        return values
    target = count_parameters(build_recipe(merge(BUDGET, merge(base, {"preset": preset}))).model)
    return merge(values, {"model": {"d_hidden": match_width(build_recipe(values).model, target)}})


def _has(field: dataclasses.Field[Any], kind: str) -> bool:
    return not field.metadata["of"] or kind in field.metadata["of"]


def count_parameters(config: ModelConfig) -> int:
    """The parameters of a model without its embeddings, which are the same for all models of a race."""
    with torch.device("meta"):
        return sum(p.numel() for name, p in make_model(config, 8, 8).named_parameters()) - 8 * config.d_model * _matrices(config)


def _matrices(config: ModelConfig) -> int:
    return {"all": 1, "target": 2, "none": 3}[config.tie]


def match_width(config: ModelConfig, target: int) -> int:
    """The even `d_hidden` with which a recurrent or convolutional model comes closest to a number of parameters."""
    if config.kind not in RECURRENT + CONVOLUTIONAL:
        raise ValueError(f"{config.kind} models have no d_hidden")

    def off(width: int) -> int:
        return abs(count_parameters(dataclasses.replace(config, d_hidden=width)) - target)

    low, high = 2, 4
    while count_parameters(dataclasses.replace(config, d_hidden=high)) < target:
        low, high = high, 2 * high
    while high - low > 2:
        middle = (low + high) // 4 * 2
        low, high = (middle, high) if count_parameters(dataclasses.replace(config, d_hidden=middle)) < target else (low, middle)
    return min((low, high), key=off)


def race(config: RaceConfig, console: Console) -> Race:
    """Train and measure every entrant of this part. Resumes after a stop: finished trainings are kept."""
    names = config.part.of(config.names)
    settings = {name: settings_for(config, name) for name in names}
    if not names:
        return Race({}, {})
    data = build_recipe(settings[names[0]]).data
    digests = corpus_digests([*data.train, *data.valid, config.test])
    pin_settings(config.out / "race.json", {"corpora": sorted(digests.values())}, "a race")
    announce(
        [*_all_trials(config, settings), *(_at(config, settings[name], name, seed) for name, seed in config.runs(names))], console
    )
    trials: dict[str, list[Trial]] = {}
    if config.trials:
        for name in names:
            console.say(f"{ENTRANTS[name].name}: {len(trial_settings(config.trials, settings[name], config.out))} trials")
            trials[name] = run_trials(config.trials, settings[name], config.out / "trials" / name, console)
            settings[name] = with_trial(settings[name], best_trial(trials[name]))
    found: dict[str, list[RaceResult]] = {}
    for number, (name, seed) in enumerate(config.runs(names), 1):
        console.say(f"{ENTRANTS[name].name}, seed {seed}: training {number} of {len(config.runs(names))}")
        model = train_or_load(_at(config, settings[name], name, seed), console)
        found.setdefault(name, []).append(measure_for_race(model, config.test, digests, console))
    return Race({name: found[name] for name in names}, trials)


def _at(config: RaceConfig, values: Values, name: str, seed: int) -> Values:
    """Settings with seed and folder."""
    return merge(values, {"train": {"seed": seed, "out": str(config.out / f"{name}-{seed}")}})


def _all_trials(config: RaceConfig, settings: dict[str, Values]) -> list[Values]:
    plan = config.trials
    return [
        each
        for name, values in settings.items()
        for each in (trial_settings(plan, values, config.out / "trials" / name) if plan else [])
    ]


def measure_for_race(model: Path, test: CorpusFiles, digests: dict[str, str], console: Console) -> RaceResult:
    """Measure a model, or read its earlier measurement."""
    result = measure(model, test, digests, console)
    translator = Translator(model, engine="torch")
    key = fingerprint((model / "manifest.json").read_text(), sorted(digests.values()), "race")
    path = model.parent / f"{model.name}-race-{key}.json"
    if not path.exists():
        pairs = hold_pairs(test, translator.artifact.recipe.data)
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        tokens, seconds = _translate_timed(translator, sources[:SPEED_LINES])
        found = {
            "target_tokens": read_facts(model)["target_tokens"],
            "translated_tokens": tokens,
            "translated_seconds": seconds,
            "reach": measure_reach(translator.artifact, sources, targets),
            "source_words": [len(source.split()) for source in sources],
        }
        write_atomic(path, json.dumps(found))
    found = json.loads(path.read_text(encoding="utf-8"))
    return RaceResult(result, **{**found, "reach": Reach(*found["reach"]), "curve": read_curve(model)})


def _translate_timed(translator: Translator, sources: Sequence[str]) -> tuple[int, float]:
    """Translate some sentences: tokens of the translations, and seconds."""
    translator.translate(sources[:2])
    began = time.monotonic()
    outputs = translator.translate(sources)
    seconds = time.monotonic() - began
    return sum(len(row) for row in translator.artifact.tokenizer.target.encode(outputs)), seconds


def length_bins(words: Sequence[int], count: int = 5) -> list[tuple[int, int]]:
    """Ranges of sentence lengths with about equally many sentences."""
    edges = sorted({int(edge) for edge in np.quantile(words, np.linspace(0, 1, count + 1))})
    if len(edges) == 1:
        return [(edges[0], edges[0])]
    return [(low if at == 0 else low + 1, high) for at, (low, high) in enumerate(pairwise(edges))]
