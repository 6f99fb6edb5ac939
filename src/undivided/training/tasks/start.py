"""Training that starts from the weights of another model folder."""

from __future__ import annotations

from collections.abc import Iterable, Set
from pathlib import Path

import torch
from torch import nn

from undivided.artifact import load_any
from undivided.artifact.weights import weights
from undivided.config import Recipe
from undivided.core.console import Console
from undivided.core.errors import IncompatibleSettings, InputError


def start_from(model: nn.Module, recipe: Recipe, console: Console) -> None:
    """Fill a fresh model with the weights of another model folder, all but a head; layers that one of them lacks stay as they are.

    An error where they differ in more than depth.
    """
    if not Path(recipe.train.start).is_dir():
        raise InputError(f"--from {recipe.train.start}: no such folder any more, and its weights are needed; copy it back")
    there = load_any(recipe.train.start)
    found, wanted = weights(there.model), dict(model.named_parameters())
    same = {name for name in found.keys() & wanted.keys() if found[name].shape == wanted[name].shape}
    lacking = found.keys() ^ wanted.keys()
    strange = _places(name for name in (found.keys() | wanted.keys()) - same if not _may_differ(name, lacking))
    if there.recipe.model.kind != recipe.model.kind or strange:
        faults = ", ".join(strange[:3]) or f"model.kind {there.recipe.model.kind}"
        raise IncompatibleSettings(f"--from {recipe.train.start} is not of the same shape as this model: {faults}")
    with torch.no_grad():
        for name in same:
            wanted[name].copy_(found[name])
    fresh, left = _places(wanted.keys() - same), _places(found.keys() - same)
    parts = [f"weights from {recipe.train.start}"]
    parts += [f"newly initialised: {', '.join(fresh)}"] if fresh else []
    parts += [f"not used: {', '.join(left)}"] if left else []
    console.say("; ".join(parts))


def _may_differ(name: str, lacking: Set[str]) -> bool:
    """Whether a weight is that of a head, or of a layer that one of two models lacks."""
    return name.startswith(("head.", "output.")) or (name in lacking and _place(name) != name.split(".", maxsplit=1)[0])


def _places(names: Iterable[str]) -> list[str]:
    return sorted({_place(name) for name in names})


def _place(name: str) -> str:
    """The part of a model, or one layer of it, that a weight belongs to: `encoder.7`."""
    parts = name.split(".")
    number = next((place for place, part in enumerate(parts) if part.isdigit()), 0)
    return ".".join(parts[: number + 1])
