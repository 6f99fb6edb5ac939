"""A better translator from what people have: translations by models of both directions, and new models that learn from them.

A round: the model translates text of its source language, a reverse model learns from that too and translates text of the target
language back, and a new model learns from the pairs and both (back-translation, Sennrich et al., 2016, tagged as by Caswell et al.,
2019; data diversification, Nguyen et al., 2020). Another round begins with the better models.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from undivided.artifact import load_artifact, save_artifact
from undivided.config.improve import ImproveConfig
from undivided.config.settings import Values, merge
from undivided.core.console import Console, LoggingConsole, plural
from undivided.core.errors import InputError
from undivided.core.files import sha256_of
from undivided.core.locks import lock_folder
from undivided.core.manifest import current_folder
from undivided.data.corpus import corpus_digests
from undivided.inference.translator import Translator
from undivided.training.loop import train
from undivided.training.material import (
    Begin,
    Material,
    begin_with,
    fine_tuning_settings,
    material_origin,
    measure,
    open_translator,
    read_material,
    seal_of,
    training_facts,
    training_origin,
    training_settings,
    write_material,
)
from undivided.training.stages import Budget, Made, Stages
from undivided.training.synthetic import (
    Synthetic,
    choose_lines,
    describe_counts,
    keep_good,
    make_pairs,
    mix_pairs,
    text_lines,
    usable_lines,
)

FORWARD_TEXT, BACK_TEXT, VERSIONS = "forward-translated", "back-translated", "versions"
"""Kinds of pairs with a side that a model made: of text of the source language, of the target language, of the training pairs."""

SAMPLE = 256
"""Lines by which it is measured how fast a model translates."""


class Row(NamedTuple):
    """What a stage brought, on validation."""

    stage: str
    direction: str
    bleu: float
    chrf: float
    minutes: float

    def __str__(self) -> str:
        return f"{self.stage}\t{self.direction}\tBLEU {self.bleu:.2f}\tchrF2 {self.chrf:.2f}\t{self.minutes:.1f} min"


class Improved(NamedTuple):
    """The best model and how it came about."""

    out: Path
    rows: list[Row]
    best: str
    """The stage that it is of."""


def plan_stages(config: ImproveConfig, has_model: bool) -> Iterator[tuple[str, float]]:
    """All stages that take long, in order, with their weights."""
    if not has_model:
        yield "round-0-forward", 3.0
    for number in range(1, config.rounds + 1):
        has_forward, has_back = bool(config.source_text), bool(config.target_text)
        yield from [(f"round-{number}-forward-translations", 1.0)] if config.diversify or has_forward else []
        yield f"round-{number}-reverse", 3.0
        yield from [(f"round-{number}-back-translations", 1.0)] if config.diversify or has_back else []
        yield f"round-{number}-forward", 4.0 if number < config.rounds else 8.0
    yield "fine-tuned", 1.0


def improve(model: str, values: Values, config: ImproveConfig, console: Console | None = None) -> Improved:
    """Make a translator better, or resume that. `model` is its folder, a recipe file, or empty where `values` say all."""
    console = console or LoggingConsole()
    out = Path(str((values.get("train") or {}).get("out", "")))
    if out == Path():
        raise InputError("where should the better model go? Name a directory: --out DIR")
    if model and Path(model).exists() and out.exists() and out.samefile(model):
        raise InputError(f"{out}: is the model to improve; name another folder with --out")
    if (out / "manifest.json").exists() and not (out / "improve").is_dir():
        raise InputError(f"{out}: the model would replace what is there; name a new folder with --out")
    for name in [*config.target_text, *config.source_text]:
        if not Path(name).is_file():
            raise InputError(f"{name}: no such file")
    if not (config.target_text or config.source_text or config.diversify):
        raise InputError("nothing to learn from but the pairs: add --target-text, --source-text or --diversify")
    begin = begin_with(model, values, config.minutes)
    with lock_folder(out / "improve", f"{out}: another process is at work there; wait for it, or choose another --out"):
        return Improvement(begin, config, out, console).run()


class Improvement:
    """One run of `improve`, from its text to the model folder."""

    def __init__(self, begin: Begin, config: ImproveConfig, out: Path, console: Console) -> None:
        self.begin, self.config, self.out, self.console = begin, config, out, console
        self.stages = Stages(out / "improve", console)
        self.budget = Budget(config.minutes, list(plan_stages(config, begin.model is not None)))
        self.rows: list[Row] = []
        self.models: dict[str, Path] = {}
        """The forward models, by stage."""
        self.made: dict[str, list[Synthetic]] = {}
        """Pairs with a made side, by kind."""
        self.left_out: set[str] = set()
        """Kinds that trials have shown to bring nothing."""
        self.material: Material

    def run(self) -> Improved:
        """All stages in order."""
        self.console.say(f"stages, kept in {self.stages.folder}; the same command resumes:\n{self.budget}")
        facts = self.stages.run("text", material_origin(self.begin.values), self._write_material)
        self.material = read_material(self.stages.folder / "text", facts)
        forward = self._first_model()
        for number in range(1, self.config.rounds + 1):
            before = self._best().bleu
            forward = self._round(number, forward)
            if self._best().bleu <= before:
                self.console.say(f"round {number} brought no better validation BLEU than {before:.2f}")
                break
        best = self._fine_tune(self._best())
        self._publish(self.models[best.stage], best)
        return Improved(self.out, self.rows, best.stage)

    def _write_material(self, folder: Path) -> Made:
        return write_material(self.begin.values, folder, self.console)

    def _open(self, model: Path) -> Translator:
        return open_translator(model, self.begin.recipe.train, self.console)

    def _best(self) -> Row:
        """The best forward model so far; of equal ones the first."""
        return max((row for row in self.rows if row.stage in self.models), key=lambda row: row.bleu)

    def _first_model(self) -> Path:
        """The model that is there, measured; or one that learns from the pairs alone."""
        if self.begin.model is None:
            return self._train("round-0-forward", self.material, [], self.begin.values)
        folder = self.begin.model

        def make(_: Path) -> Made:
            return Made(measure(self._open(folder), self.material.valid))

        origin = {"model": seal_of(folder), "valid": list(corpus_digests([self.material.valid]).values())}
        self._add_row("given", self.material, self.stages.run("given", origin, make))
        self.models["given"] = folder
        return folder

    def _round(self, number: int, forward: Path) -> Path:
        """Translate forward, learn the reverse direction, translate back, learn the direction that is wanted."""
        material, name = self.material, f"round-{number}"
        own, other = self.config.source_text, self.config.target_text
        self._translate(f"{name}-forward-translations", forward, material, own, FORWARD_TEXT)
        made = [each.swapped() for each in self._usable()]
        reverse = self._train(f"{name}-reverse", material.swapped(), made, _reverse(self.begin.values))
        self._translate(f"{name}-back-translations", reverse, material.swapped(), other, BACK_TEXT)
        if number == 1 and self.config.trials:
            self._try_kinds(name)
        return self._train_forward(f"{name}-forward")

    def _usable(self) -> list[Synthetic]:
        return [each for kind in self.made.values() for each in kind]

    def _train_forward(self, stage: str) -> Path:
        """A model from all pairs: from random weights and, where there is one to start from, also fine-tuned; the better one."""
        start = self.begin.start
        if not start:
            return self._train(stage, self.material, self._usable(), self.begin.values)
        tuned = fine_tuning_settings(self.begin.values, start)
        found = [
            self._train(f"{stage}{suffix}", self.material, self._usable(), values, stage, share)
            for suffix, values, share in (("-tuned", tuned, 0.5), ("", self.begin.values, 1.0))
        ]
        return found[0] if self.rows[-2].bleu > self.rows[-1].bleu else found[1]

    def _fine_tune(self, best: Row) -> Row:
        """The best model after it has learned from the pairs alone once more, if that made it better."""
        if best.stage in ("given", "round-0-forward"):
            return best
        values = fine_tuning_settings(self.begin.values, str(self.models[best.stage]))
        self._train(f"{best.stage}-fine-tuned", self.material, [], values, "fine-tuned")
        return self._best()

    def _train(
        self, stage: str, material: Material, made: Sequence[Synthetic], values: Values, budget: str = "", share: float = 1.0
    ) -> Path:
        """Train a model in a stage of its own, and measure it."""
        minutes = share * self.budget.minutes_of(budget or stage, self.stages.seconds)
        return self._train_for(stage, material, made, values, minutes)

    def _train_for(self, stage: str, material: Material, made: Sequence[Synthetic], values: Values, minutes: float) -> Path:
        folder = self.stages.folder / stage
        folder.mkdir(parents=True, exist_ok=True)
        corpora = mix_pairs(material.originals, material.pairs, made, self.config.originals, folder)
        settings = training_settings(values, material, corpora, folder / "model", minutes)

        def make(_: Path) -> Made:
            model = train(settings, self.console)
            facts = measure(self._open(model), material.valid) | training_facts(model)
            return Made(facts, [current_folder(model) / "manifest.json"])

        self._add_row(stage, material, self.stages.run(stage, training_origin(settings), make))
        if material is self.material:
            self.models[stage] = folder / "model"
        return folder / "model"

    def _add_row(self, stage: str, material: Material, facts: Values) -> None:
        direction = " → ".join(name or "?" for name in material.languages)
        self.rows.append(Row(stage, direction, facts["BLEU"], facts["chrF2"], float(facts.get("minutes", 0.0))))
        self.console.say(f"validation: {self.rows[-1]}".replace("\t", ", "))

    def _translate(self, stage: str, model: Path, material: Material, texts: Sequence[str], kind: str) -> None:
        """Translate text and the training pairs with a model: what later models learn from."""
        data = self.begin.recipe.data
        jobs: dict[str, Callable[[], Iterator[str]]] = {}
        if texts and kind not in self.left_out:
            jobs[kind] = lambda: usable_lines(texts, data)
        if self.config.diversify and VERSIONS not in self.left_out:
            jobs[VERSIONS] = lambda: (line for files in material.originals for line in text_lines(Path(files.source)))
        share = self._share(stage, model, material, jobs) if jobs else 1.0
        for name, lines in jobs.items():
            found = self._translate_one(f"{stage}/{name}", model, material, lines, texts if name == kind else (), share)
            kept = self.made.setdefault(name, []) if name == VERSIONS else []
            self.made[name] = [*kept, found._replace(kind=name, is_tagged=self.config.tag and name != VERSIONS)]

    def _share(self, stage: str, model: Path, material: Material, jobs: dict[str, Callable[[], Iterator[str]]]) -> float:
        """The share of the lines that can be translated in the minutes of a stage, by the speed of the model."""
        minutes = self.budget.minutes_of(stage, self.stages.seconds)
        if not minutes:
            return 1.0

        def make(folder: Path) -> Made:
            lines = sum(1 for each in jobs.values() for _ in each())
            sample = list(text_lines(Path(material.valid.source)))[:SAMPLE]
            translator = self._open(model)
            list(translator.stream(sample[:16], n_best=1))
            began = time.monotonic()
            list(translator.stream(sample, n_best=1))
            speed = len(sample) / max(1e-6, time.monotonic() - began)
            share = min(1.0, speed * 60 * minutes / max(1, lines))
            return Made({"lines": lines, "lines a second": round(speed, 1), "share": round(share, 4)})

        return float(self.stages.run(f"{stage}/speed", {"model": seal_of(model)}, make)["share"])

    def _translate_one(
        self, stage: str, model: Path, material: Material, lines: Callable[[], Iterator[str]], texts: Sequence[str], share: float
    ) -> Synthetic:
        """The pairs of some lines and their translations, in two files; for the forward direction, whoever translated."""
        config, is_back = self.config, material is not self.material
        is_sampled = is_back and bool(texts) and config.back_translation == "sample"
        origin: Values = {
            "model": seal_of(model),
            "text": [sha256_of(name) for name in texts],
            "keep": config.keep,
            "sampled": is_sampled,
        }
        origin["pairs"] = list(corpus_digests([*self.material.originals, self.material.valid]).values())

        def make(folder: Path) -> Made:
            chosen, rows = folder / "lines.txt", folder / "rows.tsv"
            if not chosen.exists():
                choose_lines(lines(), share, chosen)
            translator = self._open(model)
            make_pairs(translator, chosen, rows, self.console, f"{stage}: lines", is_sampled)
            forward = self.material
            paths, counts = keep_good(chosen, rows, folder, forward.languages, is_back, config.keep, forward.valid)
            self.console.say(f"{stage}: {describe_counts(counts)}")
            return Made({**counts, "files": [str(path.relative_to(folder)) for path in paths]}, paths)

        facts = self.stages.run(stage, origin, make)
        source, target = (str(self.stages.folder / stage / name) for name in facts["files"])
        return Synthetic(source, target, "", facts["pairs"], is_source_made=is_back)

    def _try_kinds(self, name: str) -> None:
        """Leave out the kinds of pairs that bring nothing in short trainings of equal length."""
        minutes = self.config.trials if self.config.minutes else 0.0
        self._train_for(f"{name}-trial-pairs-alone", self.material, [], self.begin.values, minutes)
        alone = self.rows[-1].bleu
        for kind in list(self.made):
            self._train_for(f"{name}-trial-{kind}", self.material, self.made[kind], self.begin.values, minutes)
            if self.rows[-1].bleu <= alone:
                self.console.say(f"{kind}: brought no better validation BLEU, so they are left out")
                self.left_out.add(kind)
                del self.made[kind]

    def _publish(self, model: Path, best: Row) -> None:
        """Write the best model as a model folder, with what each stage brought on its card."""
        artifact = load_artifact(model)
        named = self.begin.recipe.data
        facts = dict(artifact.facts)
        digests = facts.get("data") or {}
        here = [files for files in [*named.train, *named.valid] if Path(files.source).is_file()]
        facts["data"] = {"pairs": corpus_digests(here), **digests} if here else digests
        facts["improved"] = [str(row).replace("\t", ", ") for row in self.rows]
        recipe = dataclasses.replace(artifact.recipe, train=dataclasses.replace(artifact.recipe.train, out=str(self.out)))
        if named.train and best.stage != "given":
            recipe = dataclasses.replace(recipe, data=dataclasses.replace(recipe.data, train=named.train, valid=named.valid))
        save_artifact(dataclasses.replace(artifact, recipe=recipe, facts=facts), self.out)
        gained = best.bleu - self.rows[0].bleu
        self.console.say(
            f"the best model is that of stage {best.stage}, {gained:+.2f} BLEU in {plural(len(self.rows), 'stage')}: {self.out}"
        )


def _reverse(values: Values) -> Values:
    """The settings of a model of the other direction."""
    tokens = values.get("tokens") or {}
    ready = ",".join(reversed(str(tokens.get("ready", "")).split(",")))
    return merge(values, {"data": {"language_code": ""}, "tokens": {"ready": ready}})
