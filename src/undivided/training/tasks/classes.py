"""Texts or images with labels: the right class of each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.config import Recipe
from undivided.core.console import Console
from undivided.core.random import random_bits
from undivided.data.batches import Batch, BatchStream, pad_rows
from undivided.data.images import read_labelled_images
from undivided.data.subwords import Tokenizer
from undivided.inference.classify import Class, Classifier, as_values
from undivided.inference.score import Score
from undivided.models import EncoderOnly, Vision
from undivided.training.prepare import prepare_tokenizer
from undivided.training.tasks.contract import BatchLoss, Validation
from undivided.training.tasks.masked import behind_start
from undivided.training.tasks.rows import Sized, labelled, sized
from undivided.training.tasks.single_stack import SingleStackTask


class ClassTask(SingleStackTask[EncoderOnly | Vision]):
    """What text and images have in common: numbered labels, a loss over classes, accuracy."""

    def __init__(
        self, recipe: Recipe, tokenizer: Tokenizer | None, device: torch.device, examples: Sized, labels: list[int]
    ) -> None:
        super().__init__(recipe, tokenizer, device)
        self.examples, self.labels = examples, torch.tensor(labels)
        self.stream = BatchStream(examples, recipe.batches, recipe.train.seed)
        self.epoch_tokens = len(labels)

    def __str__(self) -> str:
        return f"{len(self.labels):,} examples of {len(self.recipe.data.classes)} classes"

    def _labelled(self, inputs: Tensor, shard: np.ndarray) -> Batch:
        labels = self.labels[self.examples.places(shard)][:, None]
        return Batch(inputs, labels, labels)

    def _loss(self, logits: Tensor, labels: Tensor) -> BatchLoss:
        loss = F.cross_entropy(logits, labels, label_smoothing=self.recipe.train.label_smoothing, reduction="sum")
        return BatchLoss(loss, F.cross_entropy(logits.detach(), labels, reduction="sum"), len(labels))

    def _measured(self, found: Sequence[Class], names: Sequence[str]) -> Validation | None:
        """Accuracy in percent on held-out examples."""
        if not names:
            return None
        right = sum(each.name == name for each, name in zip(found, names, strict=True))
        return Validation(Score("accuracy", 100 * right / len(names), f"examples:{len(names)}"), {})


class TextClassTask(ClassTask):
    """Texts with labels, usually from a model that has guessed hidden words before."""

    def __init__(self, recipe: Recipe, folder: Path, device: torch.device, console: Console) -> None:
        tokenizer = prepare_tokenizer(recipe, folder, console)
        train, held_out = (
            [labelled(files, recipe, tokenizer.source, console) for files in part]
            for part in (recipe.data.train, recipe.data.valid)
        )
        self.rows = [row for rows, _ in train for row in rows]
        labels = [label for _, found in train for label in found]
        super().__init__(recipe, tokenizer, device, sized([rows for rows, _ in train], recipe.data.train), labels)
        self.valid = [row for rows, _ in held_out for row in rows]
        self.names = [recipe.data.classes[label] for _, found in held_out for label in found]

    def load(self, shard: np.ndarray) -> Batch:
        """Some texts as ids, and the numbers of their classes."""
        rows = [behind_start(self.rows[place]).numpy() for place in self.examples.places(shard)]
        return self._labelled(pad_rows(rows), shard)

    def loss(self, batch: Batch) -> BatchLoss:
        """Of the classes of some texts."""
        batch = batch.to(self.device)
        real = batch.src_mask
        return self._loss(self.model(batch.src, None if bool(real.all()) else real), batch.tgt_out[:, 0])

    def measure(self) -> Validation | None:
        """Accuracy on held-out texts."""
        return self._measured(Classifier(self.finished()).rows([row.tolist() for row in self.valid]), self.names)


class ImageClassTask(ClassTask):
    """Images with labels."""

    def __init__(self, recipe: Recipe, folder: Path, device: torch.device, console: Console) -> None:
        train, self.valid = (
            [read_labelled_images(files.source, files.target, recipe.data.classes) for files in part]
            for part in (recipe.data.train, recipe.data.valid)
        )
        self.images = as_values(np.concatenate([images for images, _ in train]))
        number = {name: place for place, name in enumerate(recipe.data.classes)}
        labels = [number[name] for _, names in train for name in names]
        sizes = np.full(len(labels), recipe.max_sequence)
        examples = Sized([len(names) for _, names in train], [files.weight for files in recipe.data.train], sizes)
        super().__init__(recipe, None, device, examples, labels)

    def load(self, shard: np.ndarray) -> Batch:
        """Some images, each moved a little, otherwise in every epoch; and the numbers of their classes."""
        images = self.images[self.examples.places(shard)]
        return self._labelled(moved(images, self.recipe.data.shift, self.recipe.train.seed, shard), shard)

    def loss(self, batch: Batch) -> BatchLoss:
        """Of the classes of some images."""
        batch = batch.to(self.device)
        return self._loss(self.model(batch.src), batch.tgt_out[:, 0])

    def measure(self) -> Validation | None:
        """Accuracy on held-out images."""
        found = [each for images, _ in self.valid for each in Classifier(self.finished()).images(images)]
        return self._measured(found, [name for _, names in self.valid for name in names])


def moved(images: Tensor, most: int, seed: int, keys: np.ndarray) -> Tensor:
    """Images `B C Y X`, each moved by up to `most` pixels each way, a function of the seed and its key; zero comes in."""
    if not most:
        return images
    bits = np.stack([random_bits(2, seed, int(key)) for key in keys], axis=1) % np.uint64(2 * most + 1)
    height, width = images.shape[2:]
    steps = torch.from_numpy(bits.astype(np.int64))[:, :, None]
    down, across = (steps[axis] + torch.arange(size) for axis, size in enumerate((height, width)))
    wide = F.pad(images, (most, most, most, most))
    which = torch.arange(len(images))[:, None, None]
    # B Y X C with the two sides chosen for each image by itself.
    return wide.permute(0, 2, 3, 1)[which, down[:, :, None], across[:, None, :]].permute(0, 3, 1, 2)
