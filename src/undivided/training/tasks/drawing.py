"""Images with captions: a codebook of patches, and text and codes predicted one after the other."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from undivided.config import CorpusFiles
from undivided.core.console import Console
from undivided.core.ids import BOS, PAD
from undivided.data.batches import BatchStream, ImageBatch
from undivided.data.images import read_labelled_images
from undivided.inference.classify import to_values
from undivided.inference.generate import captions
from undivided.inference.score import Score
from undivided.models import Drawing
from undivided.nn.loss import smoothed_loss
from undivided.training.prepare import Prepared
from undivided.training.tasks.classes import shift_images
from undivided.training.tasks.contract import BatchLoss, Validation
from undivided.training.tasks.rows import SizedExamples
from undivided.training.tasks.single_stack import SingleStackTask

REDRAWING = 50.0
"""How much an error of redrawing weighs beside that of predicting: squared differences of pixels are small numbers."""


class DrawingTask(SingleStackTask[Drawing]):
    """One row for each image: its text, then its codes."""

    size_unit = "pixel values"

    def __init__(self, prepared: Prepared, device: torch.device, console: Console) -> None:
        super().__init__(prepared, device)
        recipe = prepared.recipe
        train = [self._read(files) for files in recipe.data.train]
        self.images, self.texts = (torch.cat(parts) for parts in zip(*train, strict=True))
        self.valid = [self._read(files) for files in recipe.data.valid]
        self.model.codebook.copy_codes_from(self.images[: 4 * recipe.model.codes].to(device))
        counts = [len(images) for images, _ in train]
        sizes = np.full(sum(counts), recipe.max_sequence)
        self.examples = SizedExamples(counts, [files.weight for files in recipe.data.train], sizes)
        self.stream = BatchStream(self.examples, recipe.batches, recipe.train.seed)
        self.epoch_tokens = sum(counts) * recipe.model.n_patches + int((self.texts != PAD).sum())

    def _read(self, files: CorpusFiles) -> tuple[Tensor, Tensor]:
        images, names = read_labelled_images(files.source, files.target, self.recipe.data.classes)
        return to_values(images), captions(names, self.subwords, self.recipe.data.max_length)

    def __str__(self) -> str:
        return f"{len(self.images):,} images of {self.recipe.model.n_patches} patches"

    def load(self, draws: np.ndarray) -> ImageBatch:
        """Some images, shifted if that is asked for, and their texts."""
        places = self.examples.places(draws)
        images = shift_images(self.images[places], self.recipe.data.shift, self.recipe.train.seed, draws)
        return ImageBatch(images, self.texts[places])

    def loss(self, batch: ImageBatch) -> BatchLoss:
        """Loss of redrawing the images through the codebook, and of predicting text and codes."""
        batch = batch.to(self.device)
        return self._loss(batch.images, batch.labels, self.recipe.train.label_smoothing)

    def _loss(self, images: Tensor, texts: Tensor, smoothing: float) -> BatchLoss:
        redrawing, codes = self.model.codebook.loss(images)
        out = torch.cat([texts, codes + self.model.vocabulary], dim=1)
        before = torch.cat([torch.full_like(out[:, :1], BOS), out[:, :-1]], dim=1)
        states, weight = self.model.decoder(before), self.model.decoder.output_weight
        predicting, likelihood = smoothed_loss(states, weight, out, smoothing)
        tokens = int((out != PAD).sum())
        # Both are means over what they are of; the trainer divides sums by predictions.
        return BatchLoss(predicting + tokens * REDRAWING * redrawing, likelihood, tokens)

    def measure(self) -> Validation | None:
        """Perplexity of held-out images, text included, and how well the codebook redraws them."""
        if not self.valid:
            return None
        likelihood, tokens, squared, pixels = 0.0, 0, 0.0, 0
        with torch.inference_mode():
            for images, texts in self.valid:
                images = images.to(self.device)
                found = self._loss(images, texts.to(self.device), 0.0)
                likelihood, tokens = likelihood + float(found.likelihood), tokens + found.tokens
                redrawn = self.model.codebook.draw(self.model.codebook.tokens(images))
                squared, pixels = squared + float((redrawn - images).square().sum()), pixels + images.numel()
        perplexity = math.exp(likelihood / tokens)
        error = math.sqrt(squared / pixels)
        # A codebook that tells nothing apart is easy to predict, so a good one has to redraw as well.
        score = Score("drawing", 100 * (1 - error) / perplexity, "100*(1-redrawing)/perplexity")
        return Validation(score, {"perplexity": perplexity, "redrawing": error})
