"""The contract that every sequence-to-sequence model keeps, so that training, search, look and score know no more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor, nn


@dataclass(frozen=True)
class Memory:
    """What the encoder gives the decoder. A mask of None means that nothing is padding."""

    states: Tensor  # B S D
    mask: Tensor | None  # B S

    def keep(self, sentences: Tensor) -> Memory:
        """The memory of chosen sentences."""
        return Memory(self.states[sentences], None if self.mask is None else self.mask[sentences])


class DecoderState(Protocol):
    """What a model remembers between steps, for each sentence and beam."""

    def select(self, sentences: Tensor, parents: Tensor) -> DecoderState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""


class Seq2Seq(Protocol):
    """The contract of every sequence-to-sequence model. `step` takes the state that the same model's `start` gave."""

    output_weight: nn.Parameter  # V D

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Source ids `B S` → memory."""

    def decode(self, memory: Memory, tgt_in: Tensor) -> Tensor:
        """Teacher-forced: target ids shifted right `B T` → states `B T D`; no state sees a later token."""

    def start(self, memory: Memory) -> DecoderState:
        """The state before the first step, with one beam for each sentence."""

    def step(self, state: Any, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, `B W` → the next token's logits `B W V`; updates the state."""
