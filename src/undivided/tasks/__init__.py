"""What a model learns to do, all behind one contract, so that training knows no more."""

from __future__ import annotations

from pathlib import Path

import torch

from undivided.config import Recipe
from undivided.console import Console
from undivided.tasks.contract import Measured, ShardLoss, Task
from undivided.tasks.translation import TranslationTask

__all__ = ["Measured", "ShardLoss", "Task", "make_task"]


def make_task(recipe: Recipe, folder: Path, device: torch.device, console: Console) -> Task:
    """The task of a recipe, with its data ready under `folder` and a fresh model on the device."""
    return TranslationTask(recipe, folder, device, console)
