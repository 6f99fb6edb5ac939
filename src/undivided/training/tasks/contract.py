"""The contract that every task keeps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from torch import Tensor, nn

from undivided.data.batches import Batch, BatchStream
from undivided.inference.score import Score


class BatchLoss(NamedTuple):
    """The loss of a batch and its negative log-likelihood, both as sums over `tokens` predictions."""

    loss: Tensor
    likelihood: Tensor
    tokens: int


UNITS = {"probability": " % (geometric mean over the tokens of the validation text)", "accuracy": " %"}
"""What a number is, where its name does not say it."""


class Validation(NamedTuple):
    """What validation found: the quality that decides which model is best (more is better), and other numbers."""

    quality: Score
    numbers: dict[str, float]
    details: Mapping[str, float] = MappingProxyType({})
    """Numbers for the log file alone."""

    def __str__(self) -> str:
        others = "".join(f", {name} {value:.2f}" for name, value in self.numbers.items())
        return f"{self.quality.name} {self.quality.score:.2f}{UNITS.get(self.quality.name, '')}{others}"

    def log_entry(self) -> dict[str, float | str]:
        """The same for the log file."""
        return {self.quality.name.lower(): self.quality.score, "signature": self.quality.signature, **self.numbers, **self.details}


BatchType = TypeVar("BatchType", bound=Batch)


class Task(Protocol[BatchType]):
    """Data in an order that can be resumed, a model, a loss, a measure."""

    stream: BatchStream
    epoch_tokens: int
    """Predictions in one pass over the data."""
    size_unit: str
    """What the size of a batch counts."""

    @property
    def model(self) -> nn.Module:
        """What is trained."""

    def __str__(self) -> str:
        """How much there is to learn from, for people."""

    def load(self, draws: np.ndarray) -> BatchType:
        """The examples of some draws."""

    def loss(self, batch: BatchType) -> BatchLoss:
        """Their loss."""

    def measure(self) -> Validation | None:
        """The quality on held-out data, or None where there is none."""

    def make_model(self) -> nn.Module:
        """A new model with random weights."""

    def use(self, model: nn.Module) -> None:
        """Measure and export this model from now on."""

    def facts(self) -> dict[str, Any]:
        """What a model card says of the data."""

    def export(self, out: Path, facts: dict[str, Any]) -> None:
        """Write the model folder."""
