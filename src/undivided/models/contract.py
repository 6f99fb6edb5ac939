"""The contract that every sequence-to-sequence model keeps, so that training, search, look and score know no more."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.core.ids import BOS, MASKED, PAD
from undivided.nn import backend
from undivided.nn.layers import Embedding, Positions

UNLIKELY = -30.0
"""The logit in training of a token that a model cannot write: small enough to have no share in any probability."""


@dataclass(frozen=True)
class Memory:
    """What the encoder gives the decoder. A mask of None means that nothing is padding."""

    states: Tensor  # B S and the model's own width
    mask: Tensor | None  # B S

    def keep(self, sentences: Tensor) -> Memory:
        """The memory of chosen sentences."""
        return Memory(self.states[sentences], None if self.mask is None else self.mask[sentences])


class DecoderState(Protocol):
    """What a model remembers between steps, for each sentence and beam."""

    def select(self, sentences: Tensor, parents: Tensor) -> DecoderState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""


class Seq2Seq(nn.Module, ABC):
    """Two embeddings and an output layer, tied or not, and the verbs of every sequence-to-sequence model. [paper 3, 3.4]

    `step` takes the state that the same model's `start` gave.
    """

    output_weight: nn.Parameter  # V D
    output_bias: nn.Parameter | None  # V

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int, positions: Positions | None) -> None:
        super().__init__()
        if config.tie == "all" and src_vocab != tgt_vocab:
            raise ValueError(f"one matrix cannot serve vocabularies of {src_vocab} and {tgt_vocab} tokens")
        self.config = config
        target_weight = _matrix(tgt_vocab, config.d_model)
        source_weight = target_weight if config.tie == "all" else _matrix(src_vocab, config.d_model)
        self.target_embedding = Embedding(config, target_weight, positions)
        self.source_embedding = Embedding(config, source_weight, positions)
        self.output_weight = target_weight if config.tie != "none" else _matrix(tgt_vocab, config.d_model)
        self.output_bias = nn.Parameter(torch.zeros(tgt_vocab)) if config.output_bias else None

    def initialise_embeddings(self) -> None:
        """Embeddings of variance 1/d_model.

        The paper does not say. Scaled by √d_model the embeddings enter with variance 1, near that of the positions,
        and the tied output layer starts with logits of variance about 1, so that the first loss is near log V.
        """
        for weight in (self.source_embedding.weight, self.target_embedding.weight, self.output_weight):
            nn.init.normal_(weight, std=self.config.d_model**-0.5)
        if self.config.start == "zero" and self.output_bias is not None:
            # Tied, the vector of <s> is also a row of the output: it stays zero because the loss never moves what is masked.
            with torch.no_grad():
                self.target_embedding.weight[BOS] = 0.0
                self.output_bias[[PAD, BOS]] = MASKED
        positions = self.target_embedding.positions
        if positions is not None:
            positions.initialise()

    @abstractmethod
    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Source ids `B S` → memory; `src_mask` is True at real tokens, None if all are."""

    @abstractmethod
    def decode(self, memory: Memory, tgt_in: Tensor) -> Tensor:
        """Teacher-forced: target ids shifted right `B T` → states `B T D`; no state sees a later token."""

    @abstractmethod
    def decode_layers(self, memory: Memory, tgt_in: Tensor) -> list[Tensor]:
        """What `decode` would give if each of its layers were the last; of the last layer, what it gives."""

    @abstractmethod
    def start(self, memory: Memory) -> DecoderState:
        """The state before the first step, with one beam for each sentence."""

    @abstractmethod
    def step(self, state: Any, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, `B W` → the next token's logits `B W V`; updates the state."""

    def logits(self, states: Tensor) -> Tensor:
        """States `… D` → logits `… V` by the tied output layer. [paper 3.4]"""
        return backend.linear(states, self.output_weight, self.output_bias, exact=True)

    def loss_factors(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """States and weights whose product is the logits."""
        return loss_factors(states, self.output_weight, self.output_bias)


def loss_factors(states: Tensor, weight: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """States and weights whose product is the logits: a bias is one more column of the weights, a 1 beside every state."""
    if bias is None:
        return states, weight
    ones = states.new_ones(*states.shape[:-1], 1)
    weights = torch.cat([weight, bias[:, None]], dim=1)
    masked = bias < MASKED / 2
    if bool(masked.any()):
        # Label smoothing asks for a little of every token: it must neither move these nor drown the loss in their -1000.
        least = torch.cat([weights.new_zeros(weights.shape[1] - 1), weights.new_tensor([UNLIKELY])])
        weights = torch.where(masked[:, None], least, weights)
    return torch.cat([states, ones], dim=-1), weights


def _matrix(rows: int, columns: int) -> nn.Parameter:
    return nn.Parameter(torch.empty(rows, columns))
