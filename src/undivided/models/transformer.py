"""The Transformer. [paper Figure 1]"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.core.ids import EOS, PAD
from undivided.models.contract import Memory, Seq2Seq
from undivided.nn.attention import Cache, MultiHeadAttention, SelfMask, Slots, padding_mask, restrict
from undivided.nn.layers import FeedForward, Positions, Residual, initialise_linear
from undivided.nn.ssru import SSRU, CellState


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward. [paper 3.1]"""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(2))

    def forward(self, x: Tensor, mask: SelfMask) -> Tensor:
        x = self.residuals[0](x, lambda x: self.self_attention(x, mask))
        return self.residuals[1](x, self.feed_forward)

    def step(self, x: Tensor, past: Cache) -> Tensor:
        """One position `B W D` behind those of the cache, for stacks that write instead of read."""
        x = self.residuals[0](x, lambda x: self.self_attention.step(x, past))
        return self.residuals[1](x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Masked self-attention, attention to the encoder's output, feed-forward. [paper 3.1]

    Differs from the paper where `model.decoder_self` is ssru: a recurrent unit stands where the self-attention is.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.is_recurrent = config.decoder_self == "ssru"
        if self.is_recurrent:
            self.recurrence = SSRU(config)
        else:
            self.self_attention = MultiHeadAttention(config)
        self.cross_attention = MultiHeadAttention(config, across=True)
        self.feed_forward = FeedForward(config)
        self.residuals = nn.ModuleList(Residual(config) for _ in range(3))

    def forward(self, x: Tensor, mask: SelfMask, memory: Tensor, memory_mask: Tensor | None) -> Tensor:
        own = self.recurrence if self.is_recurrent else self.self_attention
        x = self.residuals[0](x, lambda x: own(x, mask))
        x = self.residuals[1](x, lambda x: self.cross_attention.across(x, memory, memory_mask))
        return self.residuals[2](x, self.feed_forward)

    def start(self) -> Cache | CellState:
        """What the layer remembers of its past before the first position."""
        return self.recurrence.start() if self.is_recurrent else Cache()

    def step(self, x: Tensor, past: Cache | CellState, key: Tensor, value: Tensor, memory_mask: Tensor | None) -> Tensor:
        """One position `B W D`: the beams of a sentence are the queries of one attention to its memory."""
        x = self.residuals[0](x, lambda x: self._read_past(x, past))
        x = self.residuals[1](x, lambda x: self.cross_attention.across_read(x, key, value, memory_mask))
        return self.residuals[2](x, self.feed_forward)

    def read(
        self, x: Tensor, slots: Slots, sentences: Tensor, at: Tensor, key: Tensor, value: Tensor, memory_mask: Tensor | None
    ) -> Tensor:
        """Positions `at`, `B T`, of chosen sentences, `B T D`: several in one step, each to those before it and itself."""
        x = self.residuals[0](x, lambda x: self.self_attention.read_slots(x, slots, sentences, at))
        x = self.residuals[1](x, lambda x: self.cross_attention.across_read(x, key, value, memory_mask))
        return self.residuals[2](x, self.feed_forward)

    def _read_past(self, x: Tensor, past: Cache | CellState) -> Tensor:
        return self.recurrence.step(x, past) if isinstance(past, CellState) else self.self_attention.step(x, past)


@dataclass
class TransformerState:
    """Between steps: how far we are, the past of every layer, and what it reads of the memory."""

    length: int
    past: list[Cache | CellState]
    memory: list[tuple[Tensor, Tensor]]  # B H S K
    mask: Tensor | None  # B 1 1 S

    def select(self, sentences: Tensor, parents: Tensor) -> TransformerState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""
        past = [cache.select(sentences, parents) for cache in self.past]
        if len(sentences) == len(self.memory[0][0]):
            return TransformerState(self.length, past, self.memory, self.mask)
        memory = [(key[sentences], value[sentences]) for key, value in self.memory]
        return TransformerState(self.length, past, memory, None if self.mask is None else self.mask[sentences])


def initialise_projections(model: nn.Module) -> None:
    """Glorot-uniform, W^Q, W^K and W^V each by itself; no biases. The paper does not say."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            initialise_linear(module)
        if isinstance(module, MultiHeadAttention):
            stacked, widths = (module.qkv, module.widths) if hasattr(module, "qkv") else (module.key_value, module.widths[1:])
            for part in stacked.weight.split(widths):
                nn.init.xavier_uniform_(part)


def _without_eos(src: Tensor) -> Tensor:
    """Which source tokens `B S` a model reads that knows no `</s>` behind them; of an empty source that one, or it had none."""
    mask = (src != EOS) & (src != PAD)
    mask[:, 0] = True
    return mask


class Transformer(Seq2Seq):
    """Encoder and decoder stacks with tied embeddings. [paper Figure 1, 3.1, 3.4]"""

    def __init__(self, config: ModelConfig, src_vocab: int, tgt_vocab: int) -> None:
        super().__init__(config, src_vocab, tgt_vocab, Positions(config))
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        pre = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre else nn.Identity()
        self.initialise()

    def initialise(self) -> None:
        """Glorot-uniform projections, embeddings of variance 1/d_model, zero biases."""
        initialise_projections(self)
        self.initialise_embeddings()

    def _decoder_layers(self) -> Iterable[DecoderLayer]:
        return cast("Iterable[DecoderLayer]", self.decoder)

    def encode(self, src: Tensor, src_mask: Tensor | None) -> Memory:
        """Source ids `B S` → memory; `src_mask` is True at real tokens, None if all are."""
        x = self.source_embedding(src)
        if not self.config.source_eos:
            src_mask = _without_eos(src)
        mask = restrict(src.shape[1], causal=False, window=self.config.window, real=src_mask, device=src.device)
        for layer in self.encoder:
            x = layer(x, mask)
        return Memory(self.encoder_norm(x), src_mask)

    def decode(self, memory: Memory, tgt_in: Tensor) -> Tensor:
        """Teacher-forced: target ids shifted right `B T` → states `B T D`. Padding stands last, so no state sees it."""
        return self.decoder_norm(self._run_layers(memory, tgt_in)[-1])

    def decode_layers(self, memory: Memory, tgt_in: Tensor) -> list[Tensor]:
        """What `decode` would give if each of its layers were the last."""
        return [self.decoder_norm(x) for x in self._run_layers(memory, tgt_in)]

    def _run_layers(self, memory: Memory, tgt_in: Tensor) -> list[Tensor]:
        """The output of every decoder layer."""
        outputs = [self.target_embedding(tgt_in)]
        mask = restrict(tgt_in.shape[1], causal=True, window=self.config.window, real=None, device=tgt_in.device)
        memory_mask = padding_mask(memory.mask)
        for layer in self._decoder_layers():
            outputs.append(layer(outputs[-1], mask, memory.states, memory_mask))
        return outputs[1:]

    def start(self, memory: Memory) -> TransformerState:
        """The state before the first step, with one beam for each sentence; keys and values lie as every step reads them."""
        read = [layer.cross_attention.read(memory.states) for layer in self._decoder_layers()]
        lasting = [(key.contiguous(), value.contiguous()) for key, value in read]
        return TransformerState(0, [layer.start() for layer in self._decoder_layers()], lasting, padding_mask(memory.mask))

    def step(self, state: TransformerState, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, `B W` → the next token's logits `B W V`."""
        x = self.target_embedding(tokens.reshape(-1, 1), state.length).view(*tokens.shape, -1)
        for layer, past, (key, value) in zip(self._decoder_layers(), state.past, state.memory, strict=True):
            x = layer.step(x, past, key, value, state.mask)
        state.length += 1
        return self.logits(self.decoder_norm(x))
