"""Encoder-only: guesses hidden words from both sides, then, fine-tuned, the class of a text (Devlin et al., 2019: BERT)."""

from __future__ import annotations

import dataclasses

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.stack import Stack
from undivided.models.transformer import initialise_projections
from undivided.nn.attention import padding_mask
from undivided.nn.dropout import Dropout
from undivided.nn.layers import Embedding, Positions


class EncoderOnly(nn.Module):
    """Tokens, positions and segments, a stack that sees all of them, and a head: words, or classes where there are any.

    A text begins with `<s>`, whose state stands for the whole text, and each of its segments ends with `</s>`.
    """

    def __init__(self, config: ModelConfig, vocabulary: int, classes: int = 0) -> None:
        super().__init__()
        self.config = config
        weight = nn.Parameter(torch.empty(vocabulary, config.d_model))
        # Dropout comes after the norm here, so the embedding itself has none.
        self.embedding = Embedding(dataclasses.replace(config, dropout=0.0), weight, Positions(config))
        self.segments = nn.Parameter(torch.empty(2, config.d_model))
        self.embedding_norm = nn.LayerNorm(config.d_model, config.norm_epsilon)
        self.stack = Stack(config, config.encoder_layers)
        self.dropout = Dropout(config.dropout)
        self.head: WordHead | ClassHead = ClassHead(config, classes) if classes else WordHead(config, vocabulary)
        self.initialise()

    def initialise(self) -> None:
        """Glorot-uniform projections, embeddings of variance 1/d_model, segments near nothing."""
        initialise_projections(self)
        nn.init.normal_(self.embedding.weight, std=self.config.d_model**-0.5)
        nn.init.normal_(self.segments, std=0.02)
        positions = self.embedding.positions
        if positions is not None:
            positions.initialise()

    def encode(self, tokens: Tensor, real: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """Ids `B T` → states `B T D`; `real` is False at padding; `segments` are 0 or 1, all 0 if not given."""
        x = self.embedding(tokens) + (self.segments[0] if segments is None else self.segments[segments])
        return self.stack(self.dropout(self.embedding_norm(x)), padding_mask(real))

    def forward(self, tokens: Tensor, real: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """Logits: of words `B T V`, or of classes `B C`."""
        states = self.encode(tokens, real, segments)
        if isinstance(self.head, ClassHead):
            return self.head(states[:, 0])
        return F.linear(self.head(states), self.embedding.weight, self.head.bias)


class WordHead(nn.Module):
    """States → states from which the embedding matrix reads words, each with a bias."""

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.transform = nn.Linear(config.d_model, config.d_model)
        self.norm = nn.LayerNorm(config.d_model, config.norm_epsilon)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def forward(self, states: Tensor) -> Tensor:
        return self.norm(F.gelu(self.transform(states)))


class ClassHead(nn.Module):
    """tanh(W s) of the first state, then a logit for each class."""

    def __init__(self, config: ModelConfig, classes: int) -> None:
        super().__init__()
        self.pool = nn.Linear(config.d_model, config.d_model)
        self.output = nn.Linear(config.d_model, classes)

    def forward(self, first: Tensor) -> Tensor:
        return self.output(torch.tanh(self.pool(first)))
