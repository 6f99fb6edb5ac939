"""`Classifier`: texts or images → the names of their classes, each with its probability."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undivided.artifact import SingleStackArtifact, command_for, open_single_stack
from undivided.artifact.demand import BATCH_TOKENS
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD
from undivided.data.batches import pad_rows
from undivided.data.images import fit_images
from undivided.inference.engines.contract import batch_by_length
from undivided.inference.hypothesis import NotFinite
from undivided.models import EncoderOnly, Vision

BATCH = 64
"""Most images of a batch."""


class Class(NamedTuple):
    """The class of a text or image."""

    name: str
    probability: float
    cut: bool = False
    """Whether the text was too long and only its beginning was read."""


class Classifier:
    """An encoder-only or vision model that was trained to classify."""

    def __init__(
        self, model: str | Path | SingleStackArtifact, device: str = "auto", threads: int = 0, trust: bool = False
    ) -> None:
        self.artifact, self.device = open_single_stack(model, device, threads, trust)
        kind = self.artifact.recipe.model.kind
        self.classes = self.artifact.recipe.data.classes
        if not self.classes or not isinstance(self.artifact.model, EncoderOnly | Vision):
            use = "fine-tune it with --from" if kind == "encoder_only" else f"use it with: undivided {command_for(kind)}"
            raise InputError(f"{model}: was not trained to classify ({kind}); {use}")

    @property
    def reads_images(self) -> bool:
        """Whether it classifies images, not texts."""
        return isinstance(self.artifact.model, Vision)

    def texts(self, texts: Sequence[str]) -> list[Class]:
        """The class of each text: of one that is too long for the model, by its beginning; of an empty one, none."""
        rows, most = self.artifact.text.source.encode(texts), self.longest
        found = self.rows([row if len(row) <= most else [*row[: most - 1], EOS] for row in rows])
        return [
            each._replace(cut=len(row) > most) if text.strip() else Class("", 0.0)
            for text, row, each in zip(texts, rows, found, strict=True)
        ]

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images that it was trained on."""
        config = self.artifact.recipe.model
        return config.channels, config.image_height, config.image_width

    @property
    def longest(self) -> int:
        """The most subwords of a text that are read, its end included."""
        return self.artifact.recipe.data.max_length - 1

    def rows(self, rows: Sequence[Sequence[int]]) -> list[Class]:
        """The class of each row of ids that ends with `</s>`."""
        found: list[Class] = [Class("", 0.0)] * len(rows)
        for places in batch_by_length([len(row) + 1 for row in rows], beams=1):
            for place, each in zip(
                places, self._to_classes(self._text_logits([[BOS, *rows[place]] for place in places])), strict=True
            ):
                found[place] = each
        return found

    def images(self, images: np.ndarray) -> list[Class]:
        """The class of each image `N C Y X`, bytes; images of another size or other colours are made like those of training."""
        size = max(1, min(BATCH, BATCH_TOKENS // self.artifact.recipe.max_sequence))
        batches = (fit_images(images[at : at + size], *self.image_shape) for at in range(0, len(images), size))
        return [each for batch in batches for each in self._to_classes(self._image_logits(batch))]

    def _text_logits(self, rows: Sequence[Sequence[int]]) -> Tensor:
        tokens = pad_rows(rows).to(self.device)
        real = tokens != PAD
        with torch.inference_mode():
            return self.artifact.model(tokens, None if bool(real.all()) else real)

    def _image_logits(self, images: np.ndarray) -> Tensor:
        with torch.inference_mode():
            return self.artifact.model(to_values(images).to(self.device))

    def _to_classes(self, logits: Tensor) -> Iterator[Class]:
        probabilities, places = logits.float().softmax(dim=-1).max(dim=-1)
        if bool(probabilities.isnan().any()):
            raise NotFinite
        for place, probability in zip(places.tolist(), probabilities.tolist(), strict=True):
            yield Class(self.classes[place], probability)


def describe_channels(channels: int) -> str:
    """`grey` or `3 colours`."""
    return "grey" if channels == 1 else f"{channels} colours"


def to_values(images: np.ndarray) -> Tensor:
    """Bytes → values from 0 to 1."""
    return torch.from_numpy(images.astype(np.float32) / 255)
