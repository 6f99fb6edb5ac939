"""What a model learns to do, all behind one contract, so that training knows no more."""

from __future__ import annotations

from pathlib import Path

import torch

from undivided.config import Recipe
from undivided.core.console import Console
from undivided.training.tasks.classes import ImageClassTask, TextClassTask
from undivided.training.tasks.contract import BatchLoss, Task, Validation
from undivided.training.tasks.drawing import DrawingTask
from undivided.training.tasks.language import LanguageTask
from undivided.training.tasks.masked import MaskedTask
from undivided.training.tasks.start import start_from
from undivided.training.tasks.translation import TranslationTask

__all__ = ["BatchLoss", "Task", "Validation", "make_task"]


def make_task(recipe: Recipe, folder: Path, device: torch.device, console: Console) -> Task:
    """The task of a recipe, with its data ready under `folder` and a fresh or given model on the device."""
    task = _kind_of_task(recipe)(recipe, folder, device, console)
    if recipe.train.start and not any((folder / "checkpoints").glob("step-*")):
        start_from(task.model, recipe, console)
    return task


def _kind_of_task(
    recipe: Recipe,
) -> type[TranslationTask | LanguageTask | MaskedTask | TextClassTask | ImageClassTask | DrawingTask]:
    match recipe.model.kind:
        case "decoder_only":
            return LanguageTask
        case "encoder_only":
            return TextClassTask if recipe.data.classes else MaskedTask
        case "vision":
            return ImageClassTask
        case "drawing":
            return DrawingTask
        case _:
            return TranslationTask
