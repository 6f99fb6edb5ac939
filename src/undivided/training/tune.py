"""Settings for a small corpus, found by trying: many briefly, the better half of them longer, and so on (successive halving)."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from undivided.config import build_recipe
from undivided.config.improve import TuneConfig
from undivided.config.settings import Values, as_values, merge
from undivided.core.console import Console, LoggingConsole
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.core.locks import lock_folder
from undivided.data.subword_learning import vocab_size_for
from undivided.training.loop import train
from undivided.training.material import (
    UNLIMITED,
    Material,
    begin_with,
    lasting_settings,
    material_origin,
    measure,
    open_translator,
    read_material,
    training_facts,
    training_origin,
    training_settings,
    write_material,
)
from undivided.training.recipe import preview_recipe
from undivided.training.stages import Made, Stages

SPACE: dict[str, tuple[Any, ...]] = {
    "model.dropout": (0.0, 0.1, 0.2, 0.3, 0.4),
    "model.encoder_layers": (2, 3, 4, 6),
    "tokens.vocab_size": (0.25, 0.5, 1.0, 2.0),
    "train.label_smoothing": (0.0, 0.1, 0.2),
    "batches.tokens": (1024, 2048, 4096, 8192),
}
"""What is tried: settings that decide much where there is little text. Layers are those of both sides; subwords are a share of
what a corpus of that size usually gets."""

RARELY = 1_000_000
"""Steps between validations: trials are measured when they end."""

NOT_KEPT = ("out", "start", "minutes", "threads", "device", "max_steps", "max_epochs", "patience")
"""Settings of a training that are no part of what was found."""


RECIPE = "recipe.yaml"


class Trial(NamedTuple):
    """Some settings and how good they were, on validation, after each round that they were in."""

    number: int
    settings: Mapping[str, Any]
    """Those that differ from the first trial's."""
    scores: tuple[float, ...] = ()

    def __str__(self) -> str:
        what = ", ".join(f"{name} {value:g}" for name, value in self.settings.items()) or "as it is"
        return f"trial {self.number}\t{what}\tBLEU {', '.join(f'{score:.2f}' for score in self.scores)}"


class Tuned(NamedTuple):
    """What was tried and found."""

    recipe: Path
    trials: list[Trial]
    """Best first."""


def plan_rounds(trials: int) -> list[int]:
    """How many trials each round has: half as many as the one before, until there are two."""
    rounds = [trials]
    while rounds[-1] > 3:
        rounds.append(-(-rounds[-1] // 2))
    return rounds


def minutes_of_rounds(minutes: float, rounds: Sequence[int]) -> list[float]:
    """Minutes that a trial has trained for at the end of each round; each doubles those before it."""
    cost = sum(count * (2**number - (2 ** (number - 1) if number else 0)) for number, count in enumerate(rounds))
    return [minutes / cost * 2**number for number in range(len(rounds))]


def choose_trials(count: int, pairs: int, given: Values, seed: int) -> list[Trial]:
    """The settings as they are, and others that differ from it by chance in what nobody has set; none twice."""
    free = {name: values for name, values in SPACE.items() if not _is_given(name, given)}
    if not free:
        raise InputError("nothing to tune: all of its settings are given")
    chance, found = random.Random(seed), [Trial(0, {})]
    for _ in range(100 * count):
        if len(found) == count:
            break
        settings = {name: chance.choice(values) for name, values in free.items()}
        if "tokens.vocab_size" in settings:
            settings["tokens.vocab_size"] = int(settings["tokens.vocab_size"] * vocab_size_for(pairs))
        if settings not in [trial.settings for trial in found]:
            found.append(Trial(len(found), settings))
    return found


def _is_given(name: str, given: Values) -> bool:
    section, _, key = name.partition(".")
    taken_over = key == "vocab_size" and bool((given.get("tokens") or {}).get("ready"))
    return key in (given.get(section) or {}) or taken_over


def tune(model: str, values: Values, config: TuneConfig, console: Console | None = None) -> Tuned:
    """Find settings for a corpus, or resume that. `model` is a recipe file or a model folder, or empty where `values` say all."""
    console = console or LoggingConsole()
    out = Path(str((values.get("train") or {}).get("out", "")))
    if out == Path():
        raise InputError("where should trials and recipe go? Name a directory: --out DIR")
    if (out / RECIPE).exists() and not (out / "tune").is_dir():
        raise InputError(f"{out / RECIPE}: would be replaced; name a new folder with --out")
    if (values.get("train") or {}).get("start"):
        raise InputError("--from: a model that is fine-tuned keeps its sizes, so there is nothing to tune")
    rounds = plan_rounds(config.trials)
    if not config.minutes and "max_steps" not in (values.get("train") or {}):
        raise InputError("--minutes 0: say how many steps the last trials take: --max-steps N")
    with lock_folder(out / "tune", f"{out}: another process is at work there; wait for it, or choose another --out"):
        return Tuning(model, values, config, out, rounds, console).run()


class Tuning:
    """One run of `tune`, from its text to the recipe."""

    def __init__(self, model: str, values: Values, config: TuneConfig, out: Path, rounds: Sequence[int], console: Console) -> None:
        self.given, self.config, self.out, self.rounds, self.console = values, config, out, rounds, console
        self.stages = Stages(out / "tune", console)
        self.minutes = minutes_of_rounds(config.minutes, rounds)
        self.begin = begin_with(model, values, 0.0)

    def run(self) -> Tuned:
        """All rounds, then the recipe."""
        self.console.say(f"rounds, kept in {self.stages.folder}; the same command resumes:\n{self._describe()}")
        facts = self.stages.run("text", material_origin(self.begin.values), self._write_material)
        material = read_material(self.stages.folder / "text", facts)
        base = self.stages.run("base", {"given": lasting_settings(self.begin.values)}, self._fit_base)["recipe"]
        seed = build_recipe(base).train.seed
        trials, done = choose_trials(self.config.trials, material.pairs, self.given, seed), list[Trial]()
        for number, count in enumerate(self.rounds):
            trials, dropped = trials[:count], trials[count:]
            done = dropped + done
            trials = [self._try(trial, number, base, material) for trial in trials]
            trials.sort(key=lambda trial: -trial.scores[-1])
        recipe = self._write_recipe(merge(base, _nested(trials[0].settings)), trials[0], material)
        return Tuned(recipe, trials + done)

    def _describe(self) -> str:
        lines = []
        for number, count in enumerate(self.rounds):
            each = f"up to {self.minutes[number]:.1f} minutes" if self.config.minutes else "up to a share of the steps"
            lines.append(f"  round {number + 1}: {count} trials, each {each}")
        return "\n".join(lines)

    def _write_material(self, folder: Path) -> Made:
        return write_material(self.begin.values, folder, self.console)

    def _fit_base(self, _: Path) -> Made:
        """The full recipe that a training of as many minutes as the last round's would have."""
        limit = {"train": {"minutes": self.minutes[-1]}} if self.config.minutes else {}
        recipe = as_values(preview_recipe(merge(self.begin.values, limit), self.console))
        if not recipe["batches"]["parts"]:  # A training chooses it, and keeps it.
            del recipe["batches"]["parts"]
        return Made({"recipe": recipe})

    def _try(self, trial: Trial, number: int, base: Values, material: Material) -> Trial:
        """Train a trial on to the end of a round, and measure it."""
        folder = self.stages.folder / f"trial-{trial.number}" / "model"
        limits = self._limits(number)
        varied = merge(merge(base, _nested(trial.settings)), {"preset": "", "train": {"validate_every": RARELY, **limits}})
        settings = training_settings(
            varied, material, material.originals, folder, self.minutes[number] if self.config.minutes else 0
        )

        def make(_: Path) -> Made:
            found = train(settings, self.console)
            return Made(
                measure(open_translator(found, build_recipe(settings).train, self.console), material.valid) | training_facts(found),
                (),
            )

        name = f"trial-{trial.number}/round-{number + 1}"
        facts = self.stages.run(name, training_origin(settings), make)
        trial = trial._replace(scores=(*trial.scores, facts["BLEU"]))
        self.console.say(str(trial).replace("\t", ": "))
        return trial

    def _limits(self, number: int) -> Values:
        """When the trainings of a round end, where no minutes say so."""
        if self.config.minutes:
            return {**UNLIMITED, "patience": 0}
        steps = build_recipe(self.begin.values).train.max_steps
        return {"max_steps": max(1, steps // 2 ** (len(self.rounds) - 1 - number)), "patience": 0}

    def _write_recipe(self, found: Values, best: Trial, material: Material) -> Path:
        """The settings of the winner as a recipe, without what only this run has."""
        recipe = {section: dict(keys) for section, keys in found.items() if section in ("tokens", "batches", "model", "search")}
        recipe["data"] = dict(zip(("source_lang", "target_lang"), material.languages, strict=True))
        recipe["train"] = {key: value for key, value in found["train"].items() if key not in NOT_KEPT}
        text = yaml.safe_dump(json.loads(json.dumps(recipe)), allow_unicode=True, sort_keys=False)
        score = f"BLEU {best.scores[-1]:.2f} on validation"
        path = self.out / RECIPE
        write_atomic(path, f"# The best of {self.config.trials} trials on {material.pairs:,} pairs: {score}.\n{text}")
        self.console.say(f"wrote {path}; use it with: undivided train {path} --train SOURCE TARGET --minutes N --out DIR")
        return path


def _nested(settings: Mapping[str, Any]) -> Values:
    """The settings of a trial by section; a decoder has as many layers as the encoder."""
    found: Values = {}
    for name, value in _with_decoder(settings):
        section, _, key = name.partition(".")
        found.setdefault(section, {})[key] = value
    return found


def _with_decoder(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        yield name, value
        if name == "model.encoder_layers":
            yield "model.decoder_layers", value
