"""A training that was stopped before it wrote a model: its last complete checkpoint, recipe and subwords are one.

Importing this must not import torch.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

from undivided.core import manifest
from undivided.core.errors import InputError
from undivided.core.files import read_json

WEIGHTS = "model.safetensors"


class Unfinished(NamedTuple):
    """What a stopped training left."""

    checkpoint: Path
    subwords: Path
    recipe: dict[str, Any]
    step: int


def find_unfinished(folder: Path) -> Unfinished | None:
    """The last complete checkpoint of a training that has written no model; None where there is a model, or no checkpoint."""
    training = folder / "training"
    here = manifest.current_folder(folder)
    # Where a part of a model is, one was written: what is missing of it is damage.
    is_damaged = here == folder and any((folder / part).exists() for part in ("config.json", WEIGHTS))
    if (here / manifest.NAME).is_file() or is_damaged or not (training / "recipe.json").is_file():
        return None
    checkpoint = _last_complete(training / "checkpoints")
    if checkpoint is None:
        return None
    recipe = read_json(training / "recipe.json").get("recipe")
    if not isinstance(recipe, dict):
        raise InputError(f"{training / 'recipe.json'}: damaged: it describes no model")
    if isinstance(train := recipe.get("train"), dict) and train.get("drafts"):
        # Its checkpoints hold a draft decoder alone.
        return None
    if not (checkpoint / WEIGHTS).is_file():
        raise InputError(
            f"{folder}: training has not written a model yet, and its checkpoints are in parts, one for each process; resume it"
        )
    return Unfinished(checkpoint, training / "subwords", recipe, int(checkpoint.name[5:]))


def _last_complete(checkpoints: Path) -> Path | None:
    names = os.listdir(checkpoints) if checkpoints.is_dir() else []
    for name in sorted((name for name in names if name.startswith("step-") and name[5:].isdigit()), reverse=True):
        try:
            manifest.verify(checkpoints / name, ["state.json"])
        except (InputError, OSError):
            continue
        return checkpoints / name
    return None
