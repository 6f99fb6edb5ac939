"""What a model learns to do: one task for each kind, all behind one contract, which is all that the trainer knows."""

from __future__ import annotations

from typing import Any

import torch

from undivided.config import Recipe
from undivided.core.console import Console
from undivided.training.prepare import Prepared
from undivided.training.tasks.classes import ImageClassTask, TextClassTask
from undivided.training.tasks.contract import BatchLoss, Task, Validation
from undivided.training.tasks.drafting import DraftingTask
from undivided.training.tasks.drawing import DrawingTask
from undivided.training.tasks.language import LanguageTask
from undivided.training.tasks.masked import MaskedTask
from undivided.training.tasks.start import start_from
from undivided.training.tasks.translation import TranslationTask

__all__ = ["BatchLoss", "Task", "Validation", "make_task"]


def make_task(prepared: Prepared, device: torch.device, console: Console) -> Task[Any]:
    """The task of a prepared run, its model on the device: new, or with the weights of the folder it starts from."""
    task = _task_type(prepared.recipe)(prepared, device, console)
    train, resumes = prepared.recipe.train, any((prepared.folder / "checkpoints").glob("step-*"))
    # A run that resumes has its weights from a checkpoint, but what pulls it back is where it began.
    if train.start and not train.drafts and (train.pull or train.ewc or not resumes):
        start_from(task.model, prepared.recipe, console)
    return task


def _task_type(
    recipe: Recipe,
) -> type[TranslationTask | DraftingTask | LanguageTask | MaskedTask | TextClassTask | ImageClassTask | DrawingTask]:
    if recipe.train.drafts:
        return DraftingTask
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
