"""Decoder-only: a language model, the Transformer's decoder without an encoder to read from (Radford et al., 2018, 2019: GPT)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.contract import loss_factors
from undivided.models.stack import Stack, StackState
from undivided.models.transformer import initialise_projections
from undivided.nn import backend
from undivided.nn.attention import Cache, restrict
from undivided.nn.layers import Embedding, Positions


class DecoderOnly(nn.Module):
    """Predicts each token from those before it. Its `start` and `step` are those of every model, so the same search serves it."""

    output_weight: nn.Parameter  # V D
    output_bias: nn.Parameter | None  # V

    def __init__(self, config: ModelConfig, vocabulary: int) -> None:
        super().__init__()
        self.config = config
        weight = nn.Parameter(torch.empty(vocabulary, config.d_model))
        self.embedding = Embedding(config, weight, Positions(config))
        self.stack = Stack(config, config.decoder_layers)
        self.output_weight = weight if config.tie != "none" else nn.Parameter(torch.empty_like(weight))
        self.output_bias = nn.Parameter(torch.zeros(vocabulary)) if config.output_bias else None
        self.initialise()

    def initialise(self) -> None:
        """Glorot-uniform projections, embeddings of variance 1/d_model, zero biases."""
        initialise_projections(self)
        for weight in (self.embedding.weight, self.output_weight):
            nn.init.normal_(weight, std=self.config.d_model**-0.5)
        positions = self.embedding.positions
        if positions is not None:
            positions.initialise()

    def forward(self, tokens: Tensor) -> Tensor:
        """Ids `B T`, the first of them `<s>` → states `B T D` of which each has seen its own token and those before it."""
        mask = restrict(tokens.shape[1], causal=True, window=self.config.window, real=None, device=tokens.device)
        return self.stack(self.embedding(tokens), mask)

    def start(self, batch: int) -> StackState:
        """The state before the first step of a batch of sequences, with one beam for each."""
        return StackState(0, [Cache() for _ in self.stack.layers])

    def step(self, state: StackState, tokens: Tensor) -> Tensor:
        """One more token for each sequence and beam, `B W` → the next token's logits `B W V`; updates the state."""
        x = self.embedding(tokens.reshape(-1, 1), state.length).view(*tokens.shape, -1)
        state.length += 1
        return self.logits(self.stack.step(x, state.past))

    def logits(self, states: Tensor) -> Tensor:
        """States `… D` → logits `… V` by the tied output layer. [paper 3.4]"""
        return backend.linear(states, self.output_weight, self.output_bias, exact=True)

    def loss_factors(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States and weights whose product is the logits."""
        return loss_factors(states, self.output_weight, self.output_bias)
