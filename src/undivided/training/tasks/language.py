"""Language model: each token of plain text predicted from those before it."""

from __future__ import annotations

import numpy as np
import torch

from undivided.core.console import Console
from undivided.core.ids import PAD
from undivided.data.batches import BatchStream, TextBatch, pad_rows
from undivided.inference.generate import start_lines, stream_perplexity
from undivided.inference.score import Score
from undivided.models import DecoderOnly
from undivided.nn.loss import smoothed_loss
from undivided.training.prepare import Prepared
from undivided.training.tasks.contract import BatchLoss, Validation
from undivided.training.tasks.rows import encode_texts, measure_rows, read_blocks, read_good_texts
from undivided.training.tasks.single_stack import SingleStackTask


class LanguageTask(SingleStackTask[DecoderOnly]):
    """Lines, each closed by `</s>`, are one text in their order, or texts of their own, cut into rows as long as the context.

    After the end of a line the model reads `<s>`, the start of another, so a prompt behind `<s>` is nothing new to it.
    """

    def __init__(self, prepared: Prepared, device: torch.device, console: Console) -> None:
        super().__init__(prepared, device)
        recipe = prepared.recipe
        groups = [read_blocks(files, recipe, self.subwords) for files in recipe.data.train]
        self.rows = [row for rows in groups for row in rows]
        self.examples = measure_rows(groups, recipe.data.train)
        self.stream = BatchStream(self.examples, recipe.batches, recipe.train.seed)
        self.epoch_tokens = sum(len(row) - 1 for row in self.rows)
        self.valid = [row for files in recipe.data.valid for row in encode_texts(read_good_texts(files, recipe), self.subwords)]

    def __str__(self) -> str:
        return f"{self.epoch_tokens:,} tokens in rows of at most {self.recipe.data.max_length}"

    def load(self, draws: np.ndarray) -> TextBatch:
        """Some rows as ids."""
        rows = [self.rows[place] for place in self.examples.places(draws)]
        before, after = pad_rows([row[:-1] for row in rows]), pad_rows([row[1:] for row in rows])
        return TextBatch(start_lines(before), after)

    def loss(self, batch: TextBatch) -> BatchLoss:
        """Label-smoothed loss of predicting each token from those before it in its row."""
        tokens, batch = int((batch.labels != PAD).sum()), batch.to(self.device)
        states, weight = self.model.loss_factors(self.model(batch.tokens))
        return BatchLoss(*smoothed_loss(states, weight, batch.labels, self.recipe.train.label_smoothing), tokens)

    def measure(self) -> Validation | None:
        """Perplexity of held-out text."""
        if not self.valid:
            return None
        perplexity = stream_perplexity(self.model, self.valid, self.recipe.data, self.device)
        return Validation(Score("probability", 100 / perplexity, "100/perplexity|tokens:subwords"), {"perplexity": perplexity})
