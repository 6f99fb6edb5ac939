"""Classification of texts or images with labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.core.console import Console
from undivided.core.random import random_bits
from undivided.data.batches import BatchStream, ImageBatch, TextBatch, pad_rows
from undivided.data.images import read_labelled_images
from undivided.inference.classify import Class, Classifier, to_values
from undivided.inference.score import Score
from undivided.models import EncoderOnly, Vision
from undivided.training.prepare import Prepared
from undivided.training.tasks.contract import BatchLoss, Validation
from undivided.training.tasks.masked import prepend_bos
from undivided.training.tasks.rows import SizedExamples, measure_rows, read_labelled_texts
from undivided.training.tasks.single_stack import SingleStackTask


class ClassTask(SingleStackTask[EncoderOnly | Vision]):
    """What text and images have in common: numbered labels, a loss over classes, accuracy."""

    def __init__(self, prepared: Prepared, device: torch.device, examples: SizedExamples, labels: list[int]) -> None:
        super().__init__(prepared, device)
        recipe = prepared.recipe
        self.examples, self.labels = examples, torch.tensor(labels)
        self.stream = BatchStream(examples, recipe.batches, recipe.train.seed)
        self.epoch_tokens = len(labels)

    def __str__(self) -> str:
        return f"{len(self.labels):,} examples of {len(self.recipe.data.classes)} classes"

    def _loss(self, logits: Tensor, labels: Tensor) -> BatchLoss:
        loss = F.cross_entropy(logits, labels, label_smoothing=self.recipe.train.label_smoothing, reduction="sum")
        return BatchLoss(loss, F.cross_entropy(logits.detach(), labels, reduction="sum"), len(labels))

    def _measure_accuracy(self, found: Sequence[Class], names: Sequence[str]) -> Validation | None:
        """Accuracy in percent on held-out examples."""
        if not names:
            return None
        right = sum(each.name == name for each, name in zip(found, names, strict=True))
        return Validation(Score("accuracy", 100 * right / len(names), f"examples:{len(names)}"), {})


class TextClassTask(ClassTask):
    """Texts with labels, usually learned by a model that has guessed masked words before."""

    def __init__(self, prepared: Prepared, device: torch.device, console: Console) -> None:
        recipe, tokenizer = prepared.recipe, prepared.tokenizer
        assert tokenizer is not None, "texts are prepared with subwords"
        train, held_out = (
            [read_labelled_texts(files, recipe, tokenizer.source, console) for files in part]
            for part in (recipe.data.train, recipe.data.valid)
        )
        self.rows = [row for rows, _ in train for row in rows]
        labels = [label for _, found in train for label in found]
        super().__init__(prepared, device, measure_rows([rows for rows, _ in train], recipe.data.train), labels)
        self.valid = [row for rows, _ in held_out for row in rows]
        self.names = [recipe.data.classes[label] for _, found in held_out for label in found]

    def load(self, draws: np.ndarray) -> TextBatch:
        """Some texts as ids, and the numbers of their classes."""
        places = self.examples.places(draws)
        return TextBatch(pad_rows([prepend_bos(self.rows[place]).numpy() for place in places]), self.labels[places])

    def loss(self, batch: TextBatch) -> BatchLoss:
        """Cross-entropy of the classes of some texts."""
        batch = batch.to(self.device)
        mask = batch.mask
        return self._loss(self.model(batch.tokens, None if bool(mask.all()) else mask), batch.labels)

    def measure(self) -> Validation | None:
        """Accuracy on held-out texts."""
        return self._measure_accuracy(Classifier(self.as_artifact()).rows([row.tolist() for row in self.valid]), self.names)


class ImageClassTask(ClassTask):
    """Images with labels."""

    size_unit = "pixel values"

    def __init__(self, prepared: Prepared, device: torch.device, console: Console) -> None:
        recipe = prepared.recipe
        train, self.valid = (
            [read_labelled_images(files.source, files.target, recipe.data.classes) for files in part]
            for part in (recipe.data.train, recipe.data.valid)
        )
        self.images = to_values(np.concatenate([images for images, _ in train]))
        number = {name: place for place, name in enumerate(recipe.data.classes)}
        labels = [number[name] for _, names in train for name in names]
        sizes = np.full(len(labels), recipe.max_sequence)
        examples = SizedExamples([len(names) for _, names in train], [files.weight for files in recipe.data.train], sizes)
        super().__init__(prepared, device, examples, labels)

    def load(self, draws: np.ndarray) -> ImageBatch:
        """Some images, each shifted a little, differently in every epoch; and the numbers of their classes."""
        places = self.examples.places(draws)
        images = shift_images(self.images[places], self.recipe.data.shift, self.recipe.train.seed, draws)
        return ImageBatch(images, self.labels[places])

    def loss(self, batch: ImageBatch) -> BatchLoss:
        """Cross-entropy of the classes of some images."""
        batch = batch.to(self.device)
        return self._loss(self.model(batch.images), batch.labels)

    def measure(self) -> Validation | None:
        """Accuracy on held-out images."""
        found = [each for images, _ in self.valid for each in Classifier(self.as_artifact()).images(images)]
        return self._measure_accuracy(found, [name for _, names in self.valid for name in names])


def shift_images(images: Tensor, most: int, seed: int, keys: np.ndarray) -> Tensor:
    """Images `B C Y X`, each shifted by up to `most` pixels each way, a function of the seed and its key; zeros fill the gap."""
    if not most:
        return images
    bits = np.stack([random_bits(2, seed, int(key)) for key in keys], axis=1) % np.uint64(2 * most + 1)
    height, width = images.shape[2:]
    steps = torch.from_numpy(bits.astype(np.int64))[:, :, None]
    down, across = (steps[axis] + torch.arange(size) for axis, size in enumerate((height, width)))
    wide = F.pad(images, (most, most, most, most))
    which = torch.arange(len(images))[:, None, None]
    # B Y X C, rows and columns chosen for each image on its own.
    return wide.permute(0, 2, 3, 1)[which, down[:, :, None], across[:, None, :]].permute(0, 3, 1, 2)
