"""Recurrent sequence-to-sequence, with a fixed context (Sutskever et al., 2014; Cho et al., 2014) or attention to the source."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.alignment import Alignment
from undivided.models.cells import CELLS, Recurrence, State
from undivided.models.contract import Memory, Seq2Seq
from undivided.nn.dropout import Dropout
from undivided.nn.layers import initialise_linear


def reverse_tokens(x: Tensor, mask: Tensor | None) -> Tensor:
    """`B S D` with the real tokens of each sentence in reverse and padding where it was; reversed twice it is as before."""
    if mask is None:
        return x.flip(1)
    place = torch.arange(x.shape[1], device=x.device)
    mirrored = mask.sum(dim=1, keepdim=True) - 1 - place
    place = torch.where(mirrored >= 0, mirrored, place)  # B S
    return x.gather(1, place[:, :, None].expand_as(x))


class EncoderLayer(nn.Module):
    """A recurrence along the source or, bidirectional, two of half the width side by side (Schuster and Paliwal, 1997)."""

    def __init__(self, config: ModelConfig, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.bidirectional = config.bidirectional
        width = d_hidden // 2 if config.bidirectional else d_hidden
        self.ahead = Recurrence(config.cell, d_in, width)
        if config.bidirectional:
            self.back = Recurrence(config.cell, d_in, width)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Padding stands last: on the way ahead no real token comes after it, on the way back it is left where it is."""
        ahead = self.ahead(x)
        if not self.bidirectional:
            return ahead
        return torch.cat([ahead, reverse_tokens(self.back(reverse_tokens(x, mask)), mask)], dim=-1)


@dataclass(frozen=True)
class Reading:
    """What the decoder takes from the memory: the final state, and, if it attends, keys and values."""

    final: Tensor  # B D
    key: Tensor | None = None  # B S D
    value: Tensor | None = None  # B S D
    mask: Tensor | None = None  # B S

    def keep(self, sentences: Tensor) -> Reading:
        """The reading of chosen sentences."""
        parts = (self.final, self.key, self.value, self.mask)
        return Reading(*(None if part is None else part[sentences] for part in parts))  # type: ignore[arg-type]


@dataclass
class RecurrentState:
    """Between steps: the state of every layer, what the last step gave (for input feeding), and the reading."""

    layers: list[State]  # each part B W D
    fed: Tensor  # B W D
    reading: Reading

    def select(self, sentences: Tensor, parents: Tensor) -> RecurrentState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""
        rows = sentences[:, None]
        layers = [tuple(part[rows, parents] for part in layer) for layer in self.layers]
        whole = len(sentences) == len(self.reading.final)
        return RecurrentState(layers, self.fed[rows, parents], self.reading if whole else self.reading.keep(sentences))


class Recurrent(Seq2Seq):
    """RNN, LSTM or GRU encoder and decoder.

    The encoder's final state c, the last of each direction, gives the decoder's first states: tanh(W c) for each layer.
    Without attention c also goes with every input and every output of the decoder, and it is all that the decoder knows.
    With attention the output is tanh(W [context; h]) with a context that h itself asked for (Luong et al., 2015; Bahdanau
    et al. ask with the h before it); with input feeding that output goes with the next input.
    """

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int) -> None:
        super().__init__(config, src_vocab, tgt_vocab, positions=None)
        width = config.hidden_width
        self.fixed = config.attention == "none"
        beside = width if self.fixed else config.d_model if config.input_feeding else 0
        below = [config.d_model] + [width] * (config.encoder_layers - 1)
        self.encoder = nn.ModuleList(EncoderLayer(config, d_in, width) for d_in in below)
        below = [config.d_model + beside] + [width] * (config.decoder_layers - 1)
        self.decoder = nn.ModuleList(Recurrence(config.cell, d_in, width) for d_in in below)
        self.bridge = nn.Linear(width, config.decoder_layers * CELLS[config.cell].parts * width)
        if not self.fixed:
            self.alignment = Alignment(config.attention, width)
        self.readout = nn.Linear(2 * width, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.initialise()

    def initialise(self) -> None:
        """Glorot-uniform projections, embeddings of variance 1/d_model, and recurrences as `Recurrence` says."""
        for module in self.modules():
            if isinstance(module, nn.Linear):
                initialise_linear(module)
            if isinstance(module, Recurrence):
                module.initialise()
        self.initialise_embeddings()

    def _decoder_layers(self) -> Iterable[Recurrence]:
        return cast("Iterable[Recurrence]", self.decoder)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Source ids `B S` → the top layer's states; `src_mask` is True at real tokens, None if all are."""
        x = self.source_embedding(src)
        for number, layer in enumerate(self.encoder):
            x = layer(self.dropout(x) if number else x, src_mask)
        return Memory(x, src_mask)

    def final_state(self, memory: Memory) -> Tensor:
        """`B D`: the state after the last real token and, bidirectional, that of the way back after the first."""
        batch, _, width = memory.states.shape
        last = memory.states[:, -1]
        if memory.mask is not None:
            lengths = memory.mask.sum(dim=1).clamp(min=1)
            last = memory.states[torch.arange(batch, device=lengths.device), lengths - 1]
        if not self.config.bidirectional:
            return last
        return torch.cat([last[:, : width // 2], memory.states[:, 0, width // 2 :]], dim=-1)

    def read(self, memory: Memory) -> Reading:
        """What decoding needs of the memory, computed once for all steps."""
        final = self.final_state(memory)
        if self.fixed:
            return Reading(final)
        return Reading(final, self.alignment.key(memory.states), memory.states, memory.mask)

    def first_states(self, reading: Reading) -> list[State]:
        """The states of the decoder's layers before the first token, each part `B D`."""
        count = CELLS[self.config.cell].parts
        parts = torch.tanh(self.bridge(reading.final)).chunk(self.config.decoder_layers * count, dim=-1)
        return [parts[at : at + count] for at in range(0, len(parts), count)]

    def decode(self, memory: Memory, tgt_in: Tensor) -> Tensor:
        """Teacher-forced: target ids shifted right `B T` → states `B T D`."""
        x = self.target_embedding(tgt_in)
        if self.config.input_feeding:
            state = self.start(memory)
            return torch.cat([self.advance(state, token) for token in x.split(1, dim=1)], dim=1)
        reading = self.read(memory)
        return self.output(self._run_layers(x, reading)[-1], reading)

    def decode_layers(self, memory: Memory, tgt_in: Tensor) -> list[Tensor]:
        """What `decode` would give if each of its layers were the last: each asks for a context of its own."""
        x, reading = self.target_embedding(tgt_in), self.read(memory)
        if not self.config.input_feeding:
            return [self.output(h, reading) for h in self._run_layers(x, reading)]
        state, steps = self.start(memory), []
        for token in x.split(1, dim=1):
            self.advance(state, token)
            steps.append([layer[0] for layer in state.layers])
        return [self.output(torch.cat(h, dim=1), reading) for h in zip(*steps, strict=True)]

    def _run_layers(self, x: Tensor, reading: Reading) -> list[Tensor]:
        """The states of every decoder layer, where nothing is fed."""
        outputs = [self.join_inputs(x, reading, None)]
        for number, (layer, begin) in enumerate(zip(self._decoder_layers(), self.first_states(reading), strict=True)):
            outputs.append(layer(self.dropout(outputs[-1]) if number else outputs[-1], begin))
        return outputs[1:]

    def join_inputs(self, x: Tensor, reading: Reading, fed: Tensor | None) -> Tensor:
        """Embeddings `B T D` beside what else goes into the decoder: the fixed context, or what is fed."""
        if self.fixed:
            fed = reading.final[:, None].expand(-1, x.shape[1], -1)
        return x if fed is None else torch.cat([x, fed], dim=-1)

    def output(self, h: Tensor, reading: Reading) -> Tensor:
        """tanh(W [context; h]), `B T D`, of the top layer's states."""
        if reading.key is None or reading.value is None:
            context = reading.final[:, None].expand(-1, h.shape[1], -1)
        else:
            context, _ = self.alignment(h, reading.key, reading.value, reading.mask)
        return self.dropout(torch.tanh(self.readout(torch.cat([context, h], dim=-1))))

    def start(self, memory: Memory) -> RecurrentState:
        """The state before the first step, with one beam for each sentence."""
        reading = self.read(memory)
        layers = [tuple(part[:, None] for part in layer) for layer in self.first_states(reading)]
        return RecurrentState(layers, memory.states.new_zeros(len(memory.states), 1, self.config.d_model), reading)

    def advance(self, state: RecurrentState, x: Tensor) -> Tensor:
        """One more token for each sentence and beam, embedded, `B W D` → output `B W D`; updates the state."""
        x = self.join_inputs(x, state.reading, state.fed if self.config.input_feeding else None)
        for number, layer in enumerate(self._decoder_layers()):
            state.layers[number] = layer.step(self.dropout(x) if number else x, state.layers[number])
            x = state.layers[number][0]
        state.fed = self.output(x, state.reading)
        return state.fed

    def step(self, state: RecurrentState, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, `B W` → the next token's logits `B W V`."""
        return self.logits(self.advance(state, self.target_embedding(tokens)))
