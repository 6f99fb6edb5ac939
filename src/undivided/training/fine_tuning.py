"""What fine-tuning gained on the new data and lost on the old: BLEU of the model before and after, said and kept on its card."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from undivided.artifact import load_any, save_artifact
from undivided.config import Recipe
from undivided.config.model import PAIRED
from undivided.core.console import Console, plural
from undivided.data.corpus import Pair
from undivided.inference.score import Score, bleu
from undivided.inference.translator import Translator
from undivided.training.old_data import old_pairs
from undivided.training.prepare import Prepared


def report_fine_tuning(prepared: Prepared, console: Console) -> None:
    """Say what a fine-tuned translator gained and lost, on the new validation data and on that of the model it started from."""
    recipe = prepared.recipe
    if not recipe.train.start or recipe.train.drafts or recipe.model.kind not in PAIRED:
        return
    if not Path(recipe.train.start).is_dir():
        console.say(f"what it gained and forgot is not measured: {recipe.train.start}, the model before, is not here any more")
        return
    old = old_pairs(recipe)
    if not old:
        console.say(
            f"what it forgot is not measured: the validation data of {recipe.train.start} is not here (name it: "
            "--old-valid SOURCE TARGET)"
        )
    models = [Translator(folder, console=console) for folder in (recipe.train.start, prepared.out)]
    measured: dict[str, Any] = {}
    for name, pairs in (("new", prepared.validation_pairs()), ("old", old)):
        if pairs:
            before, after = (_bleu(model, pairs[: recipe.train.validate_lines], recipe) for model in models)
            console.say(
                f"on the {name} data ({plural(len(pairs), 'pair')}): BLEU {before.score:.2f} before fine-tuning, "
                f"{after.score:.2f} after"
            )
            measured[name] = {"before": round(before.score, 2), "after": round(after.score, 2), "signature": after.signature}
    if measured:
        found = load_any(prepared.out)
        found.facts["fine_tuning"] = measured
        save_artifact(found, prepared.out)


def _bleu(model: Translator, pairs: Sequence[Pair], recipe: Recipe) -> Score:
    beam = recipe.train.validate_beam
    outputs = [result.text for result in model.stream([pair.source for pair in pairs], beam_size=beam, n_best=1)]
    return bleu(outputs, [pair.target for pair in pairs], recipe.data.target_lang)
