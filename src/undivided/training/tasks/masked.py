"""Masked language model: hidden tokens of plain text guessed from both sides."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undivided.config import CorpusFiles
from undivided.core.console import Console
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.batches import BatchStream, TextBatch, pad_rows
from undivided.data.corpus import corpus_name
from undivided.inference.score import Score
from undivided.inference.search import uniform_numbers
from undivided.models.encoder_only import EncoderOnly, WordHead
from undivided.nn.loss import smoothed_loss
from undivided.training.prepare import Prepared
from undivided.training.tasks.contract import BatchLoss, Validation
from undivided.training.tasks.rows import Row, drop_long_rows, encode_texts, measure_rows, read_good_texts
from undivided.training.tasks.single_stack import SingleStackTask


class Masked(NamedTuple):
    """A text with some tokens hidden."""

    tokens: Tensor  # T
    labels: Tensor  # T, what was there, `<pad>` where nothing is asked


def prepend_bos(row: Row) -> Tensor:
    """A text behind `<s>`, whose state speaks for the whole, `T`."""
    return torch.cat([torch.tensor([BOS]), torch.from_numpy(row.astype(np.int64))])


def mask_tokens(tokens: Tensor, share: float, vocabulary: int, *key: int, mask: int = UNK) -> Masked:
    """Ask for a share of the tokens: 8 in 10 of them are hidden, 1 is another token, 1 is left (Devlin et al., 2019).

    A function of the key alone.
    """
    chance, what, other = uniform_numbers(3 * len(tokens), *key).view(3, -1)
    words = tokens > EOS
    # Of each text at least one: the one of least chance.
    asked = words & ((chance < share) | (chance == chance.masked_fill(~words, 2.0).min()))
    replaced = torch.where(asked & (what < 0.8), mask, tokens)
    random_tokens = EOS + 1 + (other * (vocabulary - EOS - 1)).long()
    replaced = torch.where(asked & (what >= 0.8) & (what < 0.9), random_tokens, replaced)
    return Masked(replaced, torch.where(asked, tokens, PAD))


class MaskedTask(SingleStackTask[EncoderOnly]):
    """Each line is a text of its own."""

    def __init__(self, prepared: Prepared, device: torch.device, console: Console) -> None:
        super().__init__(prepared, device)
        recipe = prepared.recipe
        train, valid = ([self._read(files, console) for files in part] for part in (recipe.data.train, recipe.data.valid))
        self.rows = [row for rows in train for row in rows]
        self.valid = sorted((row for rows in valid for row in rows), key=len)
        self.examples = measure_rows(train, recipe.data.train)
        self.stream = BatchStream(self.examples, recipe.batches, recipe.train.seed)
        self.epoch_tokens = round(recipe.train.mask * sum(map(len, self.rows)))

    def _read(self, files: CorpusFiles, console: Console) -> list[Row]:
        rows = encode_texts(read_good_texts(files, self.recipe), self.subwords)
        return drop_long_rows(rows, self.recipe, corpus_name(files), console)

    def __str__(self) -> str:
        return f"{len(self.rows):,} lines, {self.epoch_tokens:,} tokens to guess in a pass"

    def load(self, draws: np.ndarray) -> TextBatch:
        """Some texts, with other tokens hidden in every epoch."""
        return self._mask_rows([self.rows[place] for place in self.examples.places(draws)], self.recipe.train.seed, draws)

    def _mask_rows(self, rows: Sequence[Row], seed: int, keys: Sequence[int] | np.ndarray) -> TextBatch:
        share, vocabulary = self.recipe.train.mask, len(self.subwords)
        found = [
            mask_tokens(prepend_bos(row), share, vocabulary, seed, int(key), mask=self.subwords.mask)
            for row, key in zip(rows, keys, strict=True)
        ]
        tokens, labels = (pad_rows([part.numpy() for part in parts]) for parts in zip(*found, strict=True))
        return TextBatch(tokens, labels)

    def loss(self, batch: TextBatch) -> BatchLoss:
        """Label-smoothed loss of the hidden tokens."""
        return self._masked_loss(batch, self.recipe.train.label_smoothing)

    def _masked_loss(self, batch: TextBatch, smoothing: float) -> BatchLoss:
        batch = batch.to(self.device)
        mask, asked = batch.mask, batch.labels != PAD
        head = self.model.head
        assert isinstance(head, WordHead)
        states = head(self.model.encode(batch.tokens, None if bool(mask.all()) else mask)[asked])
        # The bias of each word is the weight of one more value, which is always 1.
        states = torch.cat([states, states.new_ones(len(states), 1)], dim=1)
        weight = torch.cat([self.model.embedding.weight, head.bias[:, None]], dim=1)
        return BatchLoss(*smoothed_loss(states[None], weight, batch.labels[asked][None], smoothing), int(asked.sum()))

    def measure(self) -> Validation | None:
        """Perplexity of hidden tokens of held-out text, always the same ones."""
        if not self.valid:
            return None
        likelihood, tokens = 0.0, 0
        with torch.inference_mode():
            for at in range(0, len(self.valid), 64):
                rows = self.valid[at : at + 64]
                found = self._masked_loss(self._mask_rows(rows, 0, range(at, at + len(rows))), 0.0)
                likelihood, tokens = likelihood + float(found.likelihood), tokens + found.tokens
        perplexity = math.exp(likelihood / max(1, tokens))
        signature = f"100/perplexity|hidden:{self.recipe.train.mask}|tokens:subwords"
        return Validation(Score("probability", 100 / perplexity, signature), {"perplexity": perplexity})
