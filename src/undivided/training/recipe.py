"""The full recipe of a run: from settings, preset, data and the folder it starts from; or that of the run it resumes."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from undivided.config import Recipe, build_recipe, preset_for, preset_values
from undivided.config.model import PAIRED, VISION
from undivided.config.settings import Values, as_values, merge
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.files import check_folder_name, read_json
from undivided.core.manifest import current_folder
from undivided.data.corpus import corpus_digests
from undivided.data.holdout import choose_held_out, count_held_out
from undivided.data.subword_learning import vocab_size_for
from undivided.training.budget import (
    describe_fit,
    estimate_workload,
    expect,
    fit_budget,
    fit_clock,
    fit_fine_tuning,
    warn_if_too_few,
    warn_if_too_short,
)
from undivided.training.corpora import corpora_folder, with_text_corpora
from undivided.training.old_data import mix_old
from undivided.training.resume import Record, check_same_kind, read_record, record_path, resume_recipe, working_directory
from undivided.training.subwords import ready_tokenizer, untie_vocabularies
from undivided.training.survey import Survey, survey_data, wanted_data

MODEL_FILES = ("config.json", "manifest.json", "model.safetensors", "README.md")
"""What every model folder holds."""


class ResolvedRun(NamedTuple):
    """A run as it is to be, before anything is written."""

    recipe: Recipe
    record: Record
    """What a new run writes down; of one that resumes, what it wrote."""
    resumes: bool

    @property
    def folder(self) -> Path:
        """Where the run keeps what is not the model itself."""
        return Path(self.recipe.train.out) / "training"

    def with_micro_batches(self, workers: int, processes: int = 1) -> ResolvedRun:
        """With a number of micro-batches that suits so many workers, if none is set; the run keeps it.

        Processes share the batches of a step, and the workers of a process share each: a process needs memory for one batch.
        """
        if self.recipe.batches.parts:
            return self
        parts = workers * processes // math.gcd(processes, self.recipe.batches.accumulate)
        recipe = dataclasses.replace(self.recipe, batches=dataclasses.replace(self.recipe.batches, parts=parts))
        return self._replace(recipe=recipe, record=self.record._replace(recipe=as_values(recipe)))


def resolve_run(values: Values, console: Console) -> ResolvedRun:
    """The full recipe of a new run or, where one was started in its folder, of that run; corpora are hashed here, once."""
    draft = build_recipe(values)
    _check_out(draft.train.out)
    values = with_text_corpora(values, corpora_folder(draft.train.out), console)
    saved = record_path(draft.train.out)
    if saved.exists():
        record = read_record(saved)
        check_same_kind(values, record.recipe.get("model", {}), f"{draft.train.out}: holds the training of", "choose another --out")
        return ResolvedRun(*resume_recipe(record, values), resumes=True)
    foreign = [name for name in MODEL_FILES if (Path(draft.train.out) / name).exists()]
    if foreign:
        there = f"what is there ({', '.join(foreign)})"
        raise InputError(f"{draft.train.out}: the model would replace {there}; name a new folder with --out")
    return _resolve_new(_with_start(values), console)


def _check_out(out: str) -> None:
    if not out:
        raise InputError("where should the model go? Name a directory: --out DIR")
    check_folder_name(out)
    if Path(out).exists() and not Path(out).is_dir():
        raise InputError(f"{out}: is a file; name a folder with --out")


def _resolve_new(values: Values, console: Console) -> ResolvedRun:
    draft = build_recipe(values)
    wanted = wanted_data(draft.model.kind)
    if not draft.data.train:
        raise InputError(f"what should it learn from? Name {wanted.data}: --train {wanted.files}")
    survey = survey_data(draft, console)
    held_out = _hold_out(draft, survey, console)
    survey, values, held_out = _mix(values, draft, survey, held_out, console)
    recipe = _complete(merge(values, survey.settings), draft, survey, console)
    _check_ready_subwords(recipe, console)
    if recipe.model.tie != draft.model.tie:
        console.say("separate vocabularies: the source embedding has a matrix of its own (model.tie: target)")
    digests = corpus_digests([*recipe.data.train, *recipe.data.valid])
    sizes = {path: Path(path).stat().st_size for path in digests}
    pairs = survey.examples - sum(map(len, held_out))
    return ResolvedRun(recipe, Record(as_values(recipe), digests, sizes, pairs, working_directory(), held_out), resumes=False)


def _mix(
    values: Values, draft: Recipe, survey: Survey, held_out: list[list[int]], console: Console
) -> tuple[Survey, Values, list[list[int]]]:
    """With the data of the model to fine-tune mixed in, if that is asked for."""
    mixture = mix_old(values, draft, survey.examples - sum(map(len, held_out)), console)
    survey = survey._replace(examples=survey.examples + mixture.pairs, target_bytes=survey.target_bytes + mixture.target_bytes)
    if any(mixture.held_out):
        held_out = [*(held_out or [[] for _ in draft.data.train]), *mixture.held_out]
    elif held_out:
        held_out = [*held_out, *([] for _ in mixture.held_out)]
    return survey, mixture.values, held_out


def _complete(values: Values, draft: Recipe, survey: Survey, console: Console) -> Recipe:
    """The recipe with what nobody has set: from the preset that is named or, of translators, fitted to data and budget."""
    if draft.preset or draft.model.kind not in PAIRED:
        preset = _choose_preset(draft, survey.examples, console)
        recipe = untie_vocabularies(build_recipe(values, preset))
        if not draft.preset:
            recipe = untie_vocabularies(build_recipe(merge(fit_clock(values, recipe), values), preset))
        if recipe.model.kind in PAIRED and recipe.train.minutes and not recipe.train.start:
            _warn_of_warmup(recipe, survey, console)
        return recipe
    work = estimate_workload(survey.examples, survey.target_bytes)
    if draft.train.start:
        fit = fit_fine_tuning(values, work, len(ready_tokenizer(draft).source))
    else:
        fit = fit_budget(values, work, len(ready_tokenizer(draft).source) if draft.tokens.ready else 0)
    recipe = untie_vocabularies(build_recipe(merge(fit.settings, values)))
    console.say(describe_fit(fit, recipe, work))
    warn_if_too_short(fit, recipe, console)
    if not recipe.train.minutes:
        warn_if_too_few(fit, recipe, work, console)
    return recipe


def _warn_of_warmup(recipe: Recipe, survey: Survey, console: Console) -> None:
    """Of a recipe that is fixed: warn if its minutes end while the learning rate still rises."""
    warn_if_too_short(expect(recipe, estimate_workload(survey.examples, survey.target_bytes)), recipe, console)


def _hold_out(draft: Recipe, survey: Survey, console: Console) -> list[list[int]]:
    """Of each training corpus, the lines that are held out for validation, where no files are named for it."""
    if draft.data.valid:
        return []
    wanted = wanted_data(draft.model.kind)
    count = count_held_out(survey.examples, draft.data.hold_out) if draft.model.kind in PAIRED else 0
    held_out = choose_held_out(draft.data.train, draft.data, count) if count else ()
    found = sum(map(len, held_out))
    if not found:
        console.warn(f"no validation data (--valid {wanted.files}): quality will not be measured during training")
        return []
    console.say(
        f"validation: {plural(found, 'pair')} of the training data {'is' if found == 1 else 'are'} held out, always the same ones; "
        "neither side of them is in the rest (your own: --valid SOURCE TARGET; another number: --hold-out N)"
    )
    return [sorted(lines) for lines in held_out]


def _check_ready_subwords(recipe: Recipe, console: Console) -> None:
    """Warn of a vocabulary size that is not used, because subwords are taken over."""
    if recipe.tokens.ready or (recipe.train.start and recipe.model.kind not in VISION):
        size = len(ready_tokenizer(recipe).source)
        if recipe.tokens.vocab_size not in (0, size):
            there = recipe.tokens.ready or recipe.train.start
            console.warn(f"tokens.vocab_size {recipe.tokens.vocab_size:,} is not used: the {size:,} subwords are those of {there}")


def preview_recipe(values: Values, console: Console) -> Recipe:
    """The recipe that a training would have, as far as its data is there to tell."""
    with TemporaryDirectory() as folder:
        return _preview(with_text_corpora(_with_start(values), Path(folder), console), console)


def _preview(values: Values, console: Console) -> Recipe:
    draft = build_recipe(values)
    files = [name for files in draft.data.train + draft.data.valid for name in (files.source, files.target) if name]
    pairs = 0
    if draft.data.train and draft.model.kind in PAIRED and all(Path(name).exists() for name in files):
        survey, values, _ = _mix(values, draft, survey_data(draft, console), [], console)
        pairs, recipe = survey.examples, _complete(values, draft, survey, console)
    else:
        recipe = untie_vocabularies(build_recipe(values, draft.preset))
    size = recipe.tokens.vocab_size or (vocab_size_for(pairs) if pairs else 0)
    if recipe.tokens.ready or recipe.train.start:
        size = len(ready_tokenizer(recipe).source)
    return dataclasses.replace(recipe, tokens=dataclasses.replace(recipe.tokens, vocab_size=size))


def _choose_preset(draft: Recipe, examples: int, console: Console) -> str:
    """The preset that is named, or the one that suits the data, which is reported."""
    if draft.preset:
        return draft.preset
    preset, what = preset_for(examples), plural(examples, wanted_data(draft.model.kind).example)
    but = f"; the model is as in {draft.train.start}" if draft.train.start else ""
    console.say(f"preset {preset}: suits a corpus of {what} (another: --preset NAME){but}")
    return preset


def _with_start(values: Values) -> Values:
    """Settings, above those of the folder that training starts from, if it does; a preset that is named stands in between."""
    draft = build_recipe(values)
    if not draft.train.start:
        return values
    begin = start_settings(draft.train.start)
    check_same_kind(values, begin["model"], f"--from {draft.train.start} holds", "start from another")
    return merge(merge(begin, preset_values(draft.preset, begin)), values)


def start_settings(folder: str) -> Values:
    """The settings of the folder that training starts from: they hold where neither a person nor a preset says otherwise."""
    if not Path(folder).is_dir():
        raise InputError(f"--from {folder}: no such folder")
    recipe = read_json(current_folder(Path(folder)) / "config.json").get("recipe")
    if not isinstance(recipe, dict) or not isinstance(recipe.get("model"), dict):
        raise InputError(f"--from {folder}: config.json describes no model")
    wanted = {
        "tokens": ("joint",),
        "data": ("source_lang", "target_lang", "language_code"),
        "search": ("beam_size", "length_penalty", "length_norm"),
    }
    there = {section: recipe.get(section) for section in wanted}
    kept = {
        section: {name: found[name] for name in wanted[section] if name in found}
        for section, found in there.items()
        if isinstance(found, dict)
    }
    return {"model": recipe["model"]} | kept
