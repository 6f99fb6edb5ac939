"""What fine-tuning gained on the new data and lost on the old: BLEU of the model before and after."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undivided.config import CorpusFiles, Recipe, build_recipe
from undivided.config.model import PAIRED
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.files import read_json, sha256_of
from undivided.core.manifest import current_folder
from undivided.data.corpus import CorpusReport, Pair, corpus_name, read_pairs
from undivided.inference.score import bleu
from undivided.inference.translator import Translator
from undivided.training.prepare import Prepared
from undivided.training.resume import read_record, record_path


def report_fine_tuning(prepared: Prepared, console: Console) -> None:
    """Say what a fine-tuned translator gained and lost, on the new validation data and on that of the model it started from."""
    recipe = prepared.recipe
    if not recipe.train.start or recipe.model.kind not in PAIRED:
        return
    old = old_pairs(recipe)
    if not old:
        console.say(
            f"what it forgot is not measured: the validation data of {recipe.train.start} is not here (name it: "
            "--old-valid SOURCE TARGET)"
        )
    models = [Translator(folder, console=console) for folder in (recipe.train.start, prepared.out)]
    for name, pairs in (("new", prepared.validation_pairs()), ("old", old)):
        if pairs:
            before, after = (_bleu(model, pairs[: recipe.train.validate_lines], recipe) for model in models)
            console.say(
                f"on the {name} data ({plural(len(pairs), 'pair')}): BLEU {before:.2f} before fine-tuning, {after:.2f} after"
            )


def _bleu(model: Translator, pairs: Sequence[Pair], recipe: Recipe) -> float:
    beam = recipe.train.validate_beam
    outputs = [result.text for result in model.stream([pair.source for pair in pairs], beam_size=beam, n_best=1)]
    return bleu(outputs, [pair.target for pair in pairs], recipe.data.target_lang).score


def old_pairs(recipe: Recipe) -> list[Pair]:
    """The validation pairs of the model that training starts from: those that are named, else its own, if they are still here."""
    if recipe.data.old_valid:
        return [pair for files in recipe.data.old_valid for pair in _pairs(files, recipe)]
    config = read_json(current_folder(Path(recipe.train.start)) / "config.json")
    data = config.get("recipe", {}).get("data", {})
    digests = _digests(config)
    try:
        named = build_recipe({"data": {"train": data.get("train", []), "valid": data.get("valid", [])}}).data
        if named.valid:
            return [pair for files in named.valid if _is_here(files, digests) for pair in _pairs(files, recipe)]
        record = read_record(record_path(recipe.train.start))
    except (InputError, OSError):
        return []
    kept = zip(named.train, record.held_out, strict=False)
    return [pair for files, lines in kept if _is_here(files, digests) for pair in _pairs(files, recipe) if pair.line in lines]


def _digests(config: dict[str, Any]) -> dict[str, str]:
    parts = config.get("facts", {}).get("data", {})
    return {path: sha256 for part in parts.values() for path, sha256 in part.items()} if isinstance(parts, dict) else {}


def _is_here(files: CorpusFiles, digests: dict[str, str]) -> bool:
    """Whether the files of a corpus still hold what the model folder says."""
    paths = [path for path in (files.source, files.target) if path]
    return all(Path(path).is_file() and sha256_of(path) == digests.get(path) for path in paths)


def _pairs(files: CorpusFiles, recipe: Recipe) -> list[Pair]:
    return list(read_pairs(files, recipe.data, CorpusReport(corpus_name(files))))
