"""Training that begins with the weights of another model folder."""

from __future__ import annotations

import torch
from torch import nn

from undivided.artifact import load_relative
from undivided.config import Recipe
from undivided.console import Console, InputError
from undivided.weights import weights


def start_from(model: nn.Module, recipe: Recipe, console: Console) -> None:
    """Fill a fresh model with the weights of another model folder, all but its head; an error where the bodies differ."""
    if not recipe.train.start:
        return
    there = load_relative(recipe.train.start)
    found, wanted = weights(there.model), dict(model.named_parameters())
    same = {name for name in found.keys() & wanted.keys() if found[name].shape == wanted[name].shape}
    bodies = {name for name in found.keys() | wanted.keys() if not name.startswith(("head.", "output."))}
    if there.recipe.model.kind != recipe.model.kind or bodies - same:
        faults = ", ".join(sorted(bodies - same)[:3]) or f"model.kind {there.recipe.model.kind}"
        raise InputError(f"train.start: {recipe.train.start} is not of the same shape as this model: {faults}")
    with torch.no_grad():
        for name in same:
            wanted[name].copy_(found[name])
    fresh = sorted({name.split(".")[0] for name in wanted.keys() - same})
    console.say(f"weights from {recipe.train.start}" + (f"; fresh: {', '.join(fresh)}" if fresh else ""))
