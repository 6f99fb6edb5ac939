"""What the tasks of all single-stack models share: the model, its folder, what its card says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import torch
from torch import nn

from undivided.artifact import SingleStackArtifact, save_artifact
from undivided.data.subwords import Subwords
from undivided.models import DecoderOnly, Drawing, EncoderOnly, Vision, make_single_stack
from undivided.training.prepare import Prepared

Model = TypeVar("Model", DecoderOnly, EncoderOnly, Vision, Drawing, EncoderOnly | Vision)


class SingleStackTask(Generic[Model]):
    """The half of a task that knows the model, not the data."""

    size_unit = "tokens"

    def __init__(self, prepared: Prepared, device: torch.device) -> None:
        self.prepared, self.recipe, self.tokenizer, self.device = prepared, prepared.recipe, prepared.tokenizer, device
        self.model: Model = self.make_model()

    @property
    def subwords(self) -> Subwords:
        """Of a task with text."""
        if self.tokenizer is None:
            raise TypeError(f"{self.recipe.model.kind} models have no text")
        return self.tokenizer.source

    def make_model(self) -> Model:
        """A new model with random weights."""
        vocabulary = 0 if self.tokenizer is None else len(self.tokenizer.source)
        return cast("Model", make_single_stack(self.recipe.model, vocabulary, len(self.recipe.data.classes)).to(self.device))

    def use(self, model: nn.Module) -> None:
        """Measure and export this model from now on."""
        self.model = cast("Model", model)

    def as_artifact(self, facts: dict[str, Any] | None = None) -> SingleStackArtifact:
        """The model as others use it."""
        return SingleStackArtifact(self.recipe, self.tokenizer, self.model, facts or {})

    def facts(self) -> dict[str, Any]:
        """The digests of the data, and the vocabulary where there is one."""
        vocabulary = 0 if self.tokenizer is None else len(self.tokenizer.source)
        return {"vocabulary": vocabulary, "data": self.prepared.data_digests()}

    def export(self, out: Path, facts: dict[str, Any]) -> None:
        """Write the model folder."""
        save_artifact(self.as_artifact(facts), out)
