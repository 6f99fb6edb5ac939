"""The data of the model that fine-tuning starts from: mixed into the new to forget less, and measured to know what was lost."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from undivided.config import CorpusFiles, Recipe, build_recipe
from undivided.config.settings import Values, as_values, merge
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.files import read_json, sha256_of
from undivided.core.manifest import current_folder
from undivided.data.corpus import Pair, check_corpora, hold_pairs
from undivided.training.resume import Record, read_record, record_path


class OldCorpus(NamedTuple):
    """Training files of the old model, and the lines of them that it was validated on."""

    files: CorpusFiles
    held_out: list[int]


class Mixture(NamedTuple):
    """Settings whose training corpora include old ones, and what these add to an epoch."""

    values: Values
    held_out: list[list[int]]
    """Of each old corpus, the lines that stay out, because the old model is measured on them."""
    pairs: int = 0
    target_bytes: int = 0


def mix_old(values: Values, draft: Recipe, new_pairs: int, console: Console) -> Mixture:
    """Settings with the old corpora behind the new ones, each with the weight that makes their share `data.mix`."""
    if not draft.data.mix and not draft.train.ewc:
        return Mixture(values, [])
    old = old_corpora(draft)
    if not old:
        flag = f"--mix {draft.data.mix:g}" if draft.data.mix else f"--ewc {draft.train.ewc:g}"
        raise InputError(
            f"{flag}: the training data of {draft.train.start} is not here, or has changed; name it: --old-train SOURCE TARGET"
        )
    named = {"old_train": [as_values(each.files) for each in old]}
    if not draft.data.mix:
        return Mixture(merge(values, {"data": named}), [])
    reports = check_corpora([each.files for each in old], draft.data)
    for report in reports:
        console.say(report.summary())
    there = sum(report.kept * each.files.weight for report, each in zip(reports, old, strict=True))
    factor = draft.data.mix / (1 - draft.data.mix) * new_pairs / max(1.0, there)
    weighted = [dataclasses.replace(each.files, weight=each.files.weight * factor) for each in old]
    pairs = sum(round(report.kept * files.weight) for report, files in zip(reports, weighted, strict=True))
    size = sum(round(report.target_bytes * files.weight) for report, files in zip(reports, weighted, strict=True))
    console.say(f"mixed in: {plural(pairs, 'old pair')} in every pass over the {plural(new_pairs, 'new pair')}")
    corpora = [as_values(files) for files in [*draft.data.train, *weighted]]
    return Mixture(merge(values, {"data": {"train": corpora, **named}}), [each.held_out for each in old], pairs, size)


def old_corpora(recipe: Recipe) -> list[OldCorpus]:
    """The training corpora of the old model: those that are named, else its own, as far as they are still in place."""
    config = _config(recipe)
    own, digests, record = _named(config, "train"), _digests(config), _record(recipe)
    lines = record.held_out if record is not None else ()
    by_content = {digests.get(files.source): list(held) for files, held in zip(own, lines, strict=False)}
    chosen = recipe.data.old_train or [found for files in own if (found := _find(files, digests, record))]
    return [OldCorpus(files, by_content.get(sha256_of(files.source), [])) for files in chosen]


def old_pairs(recipe: Recipe) -> list[Pair]:
    """The validation pairs of the old model: those that are named, else its own, if they are still here."""
    if recipe.data.old_valid:
        return [pair for files in recipe.data.old_valid for pair in _pairs(files, recipe)]
    config = _config(recipe)
    digests, valid, record = _digests(config), _named(config, "valid"), _record(recipe)
    if valid:
        there = [_find(files, digests, record) for files in valid]
        return [pair for files in there if files is not None for pair in _pairs(files, recipe)]
    kept = zip(_named(config, "train"), record.held_out if record is not None else (), strict=False)
    held_out = [(_find(files, digests, record), lines) for files, lines in kept]
    return [pair for files, lines in held_out if files is not None for pair in _pairs(files, recipe) if pair.line in lines]


def start_facts(folder: str) -> dict[str, Any]:
    """What the card of a fine-tuned model says of the one it started from: its name, its licence, where it was imported from."""
    if not folder:
        return {}
    try:
        facts = read_json(current_folder(Path(folder)) / "config.json").get("facts", {})
    except InputError:
        return {}
    kept = {name: facts[name] for name in ("license", "origin", "parity", "dequantised") if name in facts}
    return kept | {"start": Path(folder).resolve().name}


def _config(recipe: Recipe) -> dict[str, Any]:
    return read_json(current_folder(Path(recipe.train.start)) / "config.json")


def _named(config: dict[str, Any], part: str) -> Sequence[CorpusFiles]:
    """The corpora that a model folder names; none where it is not ours or damaged."""
    data = config.get("recipe", {}).get("data", {})
    try:
        named = build_recipe({"data": {"train": data.get("train", []), "valid": data.get("valid", [])}}).data
    except (InputError, AttributeError):
        return []
    return named.train if part == "train" else named.valid


def _record(recipe: Recipe) -> Record | None:
    """What the training of the old model wrote down; None where the folder was copied without it."""
    try:
        return read_record(record_path(recipe.train.start))
    except (InputError, OSError):
        return None


def _digests(config: dict[str, Any]) -> dict[str, str]:
    parts = config.get("facts", {}).get("data", {})
    return {path: sha256 for part in parts.values() for path, sha256 in part.items()} if isinstance(parts, dict) else {}


def _find(files: CorpusFiles, digests: dict[str, str], record: Record | None) -> CorpusFiles | None:
    """The files of a corpus, here or as seen from where the old model was trained; None where they no longer hold the same."""
    found = []
    for path in filter(None, (files.source, files.target)):
        places = [path, os.path.join(record.place, path)] if record is not None and record.place else [path]
        same = [place for place in places if Path(place).is_file() and sha256_of(place) == digests.get(path)]
        found += same[:1]
    if len(found) < len(list(filter(None, (files.source, files.target)))):
        return None
    return dataclasses.replace(files, source=found[0], target="".join(found[1:]))


def _pairs(files: CorpusFiles, recipe: Recipe) -> list[Pair]:
    return hold_pairs(files, recipe.data)
