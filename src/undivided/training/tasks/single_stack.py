"""What the tasks of all relatives share: a model that can be made again, its folder, what its card says."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import torch
from torch import nn

from undivided.artifact import SingleStackArtifact, save_artifact
from undivided.config import Recipe
from undivided.data.corpus import corpus_digests
from undivided.data.subwords import Subwords, Tokenizer
from undivided.models import DecoderOnly, Drawing, EncoderOnly, Vision, make_single_stack

Model = TypeVar("Model", DecoderOnly, EncoderOnly, Vision, Drawing, EncoderOnly | Vision)


class SingleStackTask(Generic[Model]):
    """The half of a task that knows the model, not the data."""

    def __init__(self, recipe: Recipe, tokenizer: Tokenizer | None, device: torch.device) -> None:
        self.recipe, self.tokenizer, self.device = recipe, tokenizer, device
        self.model: Model = self.fresh_model()

    @property
    def subwords(self) -> Subwords:
        """Of a task with text."""
        if self.tokenizer is None:
            raise TypeError(f"{self.recipe.model.kind} models have no text")
        return self.tokenizer.source

    def fresh_model(self) -> Model:
        """Another model of the same shapes."""
        vocabulary = 0 if self.tokenizer is None else len(self.tokenizer.source)
        return cast("Model", make_single_stack(self.recipe.model, vocabulary, len(self.recipe.data.classes)).to(self.device))

    def use(self, model: nn.Module) -> None:
        """From now on, measure and export this model."""
        self.model = cast("Model", model)

    def finished(self, facts: dict[str, Any] | None = None) -> SingleStackArtifact:
        """The model as others use it."""
        return SingleStackArtifact(self.recipe, self.tokenizer, self.model, facts or {})

    def facts(self) -> dict[str, Any]:
        """The digests of the data, and the vocabulary where there is one."""
        data = self.recipe.data
        digests = {"train": corpus_digests(data.train), "valid": corpus_digests(data.valid)}
        return {"vocabulary": 0 if self.tokenizer is None else len(self.tokenizer.source), "data": digests}

    def export(self, out: Path, facts: dict[str, Any]) -> None:
        """Write the model folder."""
        save_artifact(self.finished(facts), out)
