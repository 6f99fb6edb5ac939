"""Snapshots: the weights of some steps, with half their precision, to watch a model learn (`undivided look RUN --training`).

A run does not know how many steps it will take. So it keeps more than it was asked for, evenly spaced on a scale that stretches the
beginning, where a model learns fastest, and thins them out as they become too many.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from undivided.core.console import Console
from undivided.training import checkpoint

FOLDER = "snapshots"
"""Beside the checkpoints of a run."""

EARLY = 100
"""The scale is linear for about this many steps, and logarithmic later."""


def scale(step: int) -> float:
    """Where a step lies between the others."""
    return math.log1p(step / EARLY)


def is_due(step: int, count: int) -> bool:
    """Whether a run that keeps up to `count` takes one after this step."""
    if not count:
        return False
    return step == 0 or math.floor(scale(step) * count) > math.floor(scale(step - 1) * count)


def thin_out(steps: Sequence[int], count: int) -> list[int]:
    """At most `count` of some steps, evenly spaced; the first and the last stay."""
    kept = sorted(steps)
    while len(kept) > max(2, count):
        gaps = [scale(after) - scale(before) for before, after in zip(kept, kept[2:], strict=False)]
        kept.pop(1 + gaps.index(min(gaps)))
    return kept


def keep(folder: Path, step: int, weights: dict[str, Tensor], count: int, console: Console) -> None:
    """Write the weights of a step, complete or not at all, and remove those that are one too many."""
    halves = {name: tensor.half() for name, tensor in weights.items()}
    too_large = [name for name, tensor in halves.items() if not torch.isfinite(tensor).all()]
    if too_large:
        console.warn(f"step {step}: no snapshot, since weights are too large for float16: {', '.join(too_large)}")
        return
    checkpoint.write(folder, step, checkpoint.Checkpoint({"step": step}, {"model": halves}))
    there = checkpoint.paths(folder)
    kept = thin_out([int(path.name[5:]) for path in there], count)
    for path in there:
        if int(path.name[5:]) not in kept:
            checkpoint.remove(path)


def remove_later(folder: Path, step: int) -> None:
    """Remove the snapshots after a step to which a run returned: what follows may become another training."""
    for path in checkpoint.paths(folder):
        if int(path.name[5:]) > step:
            checkpoint.remove(path)
