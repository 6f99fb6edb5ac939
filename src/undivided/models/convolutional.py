"""Convolutional sequence-to-sequence: gated convolutions with attention in every decoder layer (Gehring et al., 2017).

Differs from theirs: no weight normalisation; positions as `model.positions` says (theirs are `learned`); the gradient of the
encoder is not scaled; dot products are, by 1/√d_model, since embeddings enter with variance 1 and attention should begin even;
and what attention gives is not multiplied by the root of the source's length, since sinusoids have a mean that does not vanish.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.alignment import multiplicative_weights
from undivided.models.contract import Memory, Seq2Seq
from undivided.nn.attention import apply_hook
from undivided.nn.dropout import Dropout
from undivided.nn.layers import Positions, initialise_linear

HALF = math.sqrt(0.5)
"""A sum of two things of variance 1 times this has variance 1."""


class GatedConvolution(nn.Module):
    """Each window of k inputs → a ⊗ σ(b) (Dauphin et al., 2017), with dropout on the inputs."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_width
        self.k = config.kernel_width
        self.both = nn.Linear(self.k * width, 2 * width)
        self.dropout = Dropout(config.dropout)

    def initialise(self) -> None:
        """A gate halves what passes, and dropout adds variance: weights that bring it back to that of the input."""
        std = math.sqrt(4 * (1 - self.dropout.rate) / self.both.in_features)
        nn.init.normal_(self.both.weight, std=std)
        nn.init.zeros_(self.both.bias)

    def forward(self, x: Tensor, before: int) -> Tensor:
        """`B T D` → the same; a window holds `before` places before its own and the rest after, zero beyond the ends."""
        length = x.shape[1]
        x = F.pad(self.dropout(x), (0, 0, before, self.k - 1 - before))
        return self.gate(torch.cat([x[:, at : at + length] for at in range(self.k)], dim=-1))

    def gate(self, windows: Tensor) -> Tensor:
        """Windows `… (k D)` → `… D`."""
        return F.glu(self.both(windows), dim=-1)


class Attention(nn.Module):
    """One decoder layer's look at the source: q = W h + embedding, by dot products. Its weights pass through the attention hook."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        width = config.hidden_width
        self.query = nn.Linear(width, config.d_model)
        self.output = nn.Linear(config.d_model, width)
        self.scale = config.d_model**-0.5

    def forward(self, h: Tensor, embedded: Tensor, reading: Reading) -> tuple[Tensor, Tensor]:
        """States `B T D`, or beams `B W D`, with what of the source they asked for; and the weights `B T S`."""
        query = (self.query(h) + embedded) * HALF * self.scale
        weights = multiplicative_weights(query, reading.key, reading.mask)
        weights = apply_hook(self, weights[:, None])[:, 0]  # B T S
        return (h + self.output(weights @ reading.value)) * HALF, weights


class DecoderLayer(nn.Module):
    """A convolution over what is written so far, then attention, then the residual sum."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.convolution = GatedConvolution(config)
        self.attention = Attention(config)

    def forward(self, x: Tensor, embedded: Tensor, reading: Reading) -> Tensor:
        h, _ = self.attention(self.convolution(x, self.convolution.k - 1), embedded, reading)
        return (h + x) * HALF

    def step(self, x: Tensor, past: Tensor, embedded: Tensor, reading: Reading) -> tuple[Tensor, Tensor]:
        """One place `B W D` behind the k − 1 before it, `B W k-1 D` → its output, and the k − 1 before the next."""
        windows = torch.cat([past, x[:, :, None]], dim=2)
        h, _ = self.attention(self.convolution.gate(windows.flatten(2)), embedded, reading)
        return (h + x) * HALF, windows[:, :, 1:]


@dataclass(frozen=True)
class Reading:
    """The memory as the decoder reads it."""

    key: Tensor  # B S D
    value: Tensor  # B S D
    mask: Tensor | None  # B S

    def keep(self, sentences: Tensor) -> Reading:
        """The reading of chosen sentences."""
        mask = None if self.mask is None else self.mask[sentences]
        return Reading(self.key[sentences], self.value[sentences], mask)


@dataclass
class ConvolutionalState:
    """Between steps: how far we are, the last k − 1 inputs of every layer, and the reading."""

    length: int
    past: list[Tensor]  # B W k-1 D
    reading: Reading

    def select(self, sentences: Tensor, parents: Tensor) -> ConvolutionalState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""
        past = [inputs[sentences[:, None], parents] for inputs in self.past]
        whole = len(sentences) == len(self.reading.key)
        return ConvolutionalState(self.length, past, self.reading if whole else self.reading.keep(sentences))


class Convolutional(Seq2Seq):
    """Encoder and decoder of gated convolutions."""

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int) -> None:
        super().__init__(config, src_vocab, tgt_vocab, Positions(config))
        width = config.hidden_width
        self.width = width
        self.encoder_in, self.decoder_in = (nn.Linear(config.d_model, width) for _ in range(2))
        self.encoder = nn.ModuleList(GatedConvolution(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        self.encoder_out, self.decoder_out = (nn.Linear(width, config.d_model) for _ in range(2))
        self.dropout = Dropout(config.dropout)
        self.initialise()

    def initialise(self) -> None:
        """Glorot-uniform projections, embeddings of variance 1/d_model, and convolutions as `GatedConvolution` says."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                initialise_linear(module)
        for module in self.modules():
            if isinstance(module, GatedConvolution):
                module.initialise()
        self.initialise_embeddings()

    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return cast("Iterable[DecoderLayer]", self.decoder)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Source ids `B S` → keys and values side by side; a value is its key plus the token's own embedding."""
        embedded = self.source_embedding(src)
        x = self.encoder_in(embedded)
        padding = None if src_mask is None else ~src_mask[:, :, None]
        for layer in self.encoder:
            # Padding is as zero as what lies beyond the end of a sentence alone.
            x = x if padding is None else x.masked_fill(padding, 0.0)
            x = (layer(x, (self.config.kernel_width - 1) // 2) + x) * HALF
        key = self.encoder_out(x)
        return Memory(torch.cat([key, (key + embedded) * HALF], dim=-1), src_mask)

    def read(self, memory: Memory) -> Reading:
        """The parts of the memory."""
        key, value = memory.states.chunk(2, dim=-1)
        return Reading(key, value, memory.mask)

    def decode(self, memory: Memory, tgt_in: Tensor) -> Tensor:
        """Teacher-forced: target ids shifted right `B T` → states `B T D`. A window ends at its own place."""
        return self.dropout(self.decoder_out(self._run_layers(memory, tgt_in)[-1]))

    def decode_layers(self, memory: Memory, tgt_in: Tensor) -> list[Tensor]:
        """What `decode` would give if each of its layers were the last."""
        return [self.dropout(self.decoder_out(x)) for x in self._run_layers(memory, tgt_in)]

    def _run_layers(self, memory: Memory, tgt_in: Tensor) -> list[Tensor]:
        """The output of every decoder layer."""
        reading, embedded = self.read(memory), self.target_embedding(tgt_in)
        outputs = [self.decoder_in(embedded)]
        for layer in self._decoder_layers():
            outputs.append(layer(outputs[-1], embedded, reading))
        return outputs[1:]

    def start(self, memory: Memory) -> ConvolutionalState:
        """The state before the first step, with one beam for each sentence."""
        empty = memory.states.new_zeros(len(memory.states), 1, self.config.kernel_width - 1, self.width)
        return ConvolutionalState(0, [empty] * self.config.decoder_layers, self.read(memory))

    def step(self, state: ConvolutionalState, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, `B W` → the next token's logits `B W V`."""
        embedded = self.target_embedding(tokens.reshape(-1, 1), state.length).view(*tokens.shape, -1)
        x = self.decoder_in(embedded)
        for number, layer in enumerate(self._decoder_layers()):
            x, state.past[number] = layer.step(x, state.past[number], embedded, state.reading)
        state.length += 1
        return self.logits(self.decoder_out(x))
