"""Scaled dot-product and multi-head attention, masks, and the cache of decoding. [paper 3.2]

Letters of shapes, here and everywhere: B batch, S source, T target, D d_model, H heads, K d_k (or d_v),
V vocabulary, W beam. Masks are boolean, broadcast to `B H T S`, and True means *may attend*.

To try another attention, change `attend`, which computes Eq. 1 for every model. Where it no longer equals `attention`, the
reference, no C kernel and no fused attention of PyTorch stands in for it: that is tried once in each process.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.nn import backend
from undivided.nn.dropout import Dropout
from undivided.nn.layers import Linear
from undivided.nn.local import LocalMask, cut_blocks


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√d_k)V, and the weights; the plain reference. [paper 3.2.1, Eq. 1]"""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


AttentionHook = Callable[[nn.Module, Tensor], Tensor]
"""Gets the weights `… H T S` of every attention with the module they belong to; returns the weights to use."""


class _State(threading.local):
    hook: AttentionHook | None = None


_state = _State()


@contextmanager
def attention_hook(hook: AttentionHook) -> Iterator[None]:
    """Within, in this thread, a hook gets the weights of every attention, and may change them."""
    before, _state.hook = _state.hook, hook
    try:
        yield
    finally:
        _state.hook = before


def is_recording() -> bool:
    """Whether an attention hook is set in this thread."""
    return _state.hook is not None


def apply_hook(owner: nn.Module, weights: Tensor) -> Tensor:
    """The weights `… H T S` as the hook returns them, if there is one. Every attention of every model calls this."""
    return weights if _state.hook is None else _state.hook(owner, weights)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: Dropout | None = None,
    owner: nn.Module | None = None,
) -> Tensor:
    """Eq. 1 with dropout on the weights and the hook for the weights of an `owner`. [paper 3.2.1, Eq. 1]"""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if mask is not None:
        scores.masked_fill_(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    if owner is not None:
        weights = apply_hook(owner, weights)
    return (weights if dropout is None else dropout(weights)) @ value


def is_eq_1() -> bool:
    """Whether `attend`, as it is now, computes Eq. 1, so that faster code for the same equation may be used instead."""
    return _equals_reference(attend)


@cache
def _equals_reference(function: Callable[..., Tensor]) -> bool:
    """Whether a function gives what `attention` gives, tried on made-up queries with and without a mask."""
    made = torch.Generator().manual_seed(1)
    with torch.inference_mode(), torch.device("cpu"):
        query, key, value = (torch.randn(1, 2, 24, 8, generator=made) for _ in range(3))
        masks = (None, torch.arange(24)[:, None] >= torch.arange(24))
        pairs = [(function(query, key, value, mask), attention(query, key, value, mask)[0]) for mask in masks]
    # Products may be rounded to bfloat16 here.
    return all(one.shape == other.shape and bool((one - other).abs().max() < 0.02) for one, other in pairs)


def attend_fused(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: Dropout | None = None,
    owner: nn.Module | None = None,
) -> Tensor:
    """`attend`, or where that is better and the same PyTorch's fused attention, which never holds all weights."""
    rate = dropout.rate if dropout is not None and dropout.training else 0.0
    is_recorded = owner is not None and is_recording()
    if not is_recorded and backend.prefers_fused_attention(query, key, rate) and is_eq_1():
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=rate)
    return attend(query, key, value, mask, dropout, owner)


def causal_mask(length: int, device: torch.device | None = None) -> Tensor:
    """`T T`: position i may attend to positions up to i. [paper 3.1, 3.2.3]"""
    return torch.ones(length, length, dtype=torch.bool, device=device).tril()


def window_mask(length: int, size: int, device: torch.device | None = None) -> Tensor:
    """`T T`: only a neighbourhood of `size` centred on each position. [paper 4]"""
    place = torch.arange(length, device=device)
    return (place[:, None] - place).abs() <= size // 2


def padding_mask(real: Tensor | None) -> Tensor | None:
    """`B S`, True at real tokens → `B 1 1 S`. None means that nothing is padding."""
    return None if real is None else real[:, None, None, :]


def self_mask(length: int, *, causal: bool, window: int, device: torch.device) -> Tensor | None:
    """Who may see whom within a sequence, padding aside; None where all see all."""
    mask = causal_mask(length, device) if causal else None
    if window and window // 2 < length - 1:
        near = window_mask(length, window, device)
        mask = near if mask is None else mask & near
    return mask


SelfMask: TypeAlias = Tensor | LocalMask | None
"""Who may attend to whom within sequences: `T T` or `B 1 T T` or `B 1 1 T`; blocks; None where all see all."""


def restrict(length: int, *, causal: bool, window: int, real: Tensor | None, device: torch.device) -> SelfMask:
    """Who may attend to whom within sequences whose real tokens `B T` are known: blocks where that saves work. [paper 3.1, 4]

    Where an attention hook is set, the mask is whole, since the hook wants weights `T T`.
    """
    blocks = None if is_recording() else cut_blocks(length, window, causal=causal)
    if blocks is not None:
        return LocalMask(length, blocks, real, device)
    near, mask = self_mask(length, causal=causal, window=window, device=device), padding_mask(real)
    if near is None or mask is None:
        return mask if near is None else near
    # Padding far from every real token attends to itself: a softmax over nothing would be NaN.
    return near & mask | torch.eye(length, dtype=torch.bool, device=device)


class Cache:
    """Keys and values of one layer's past self-attention.

    They stay where they were written. What moves when beams are chosen is `places`: for every beam and position, the row in
    which that position of its past lies. Where only the last positions are ever read, older ones are dropped now and then.
    """

    GROWTH = 8
    """Positions by which buffers grow."""

    def __init__(self) -> None:
        self.beams = 1
        self.places = torch.empty(0, 0, dtype=torch.long)  # (B W) T
        self.keys, self.values = torch.empty(0, 0, 0), torch.empty(0, 0, 0)  # rows, positions, H K

    def append(self, key: Tensor, value: Tensor, reach: int | None = None) -> None:
        """Remember one more position of every beam, `B W (H K)`; of those before it the last `reach` are needed, or all."""
        self.beams, rows = key.shape[1], key.shape[0] * key.shape[1]
        if reach is not None and self.places.shape[1] >= 2 * reach + self.GROWTH:
            self._drop_positions(self.places.shape[1] - reach)
        length = self.places.shape[1]
        if not length:
            self.places = torch.empty(rows, 0, dtype=torch.long, device=key.device)
        if rows > len(self.keys) or length == self.keys.shape[1]:
            self.keys, self.values = (self._grow(old, new, rows) for old, new in ((self.keys, key), (self.values, value)))
        self.keys[:rows, length], self.values[:rows, length] = key.flatten(0, 1), value.flatten(0, 1)
        own = torch.arange(rows, device=key.device)[:, None]
        self.places = torch.cat([self.places, own], dim=1)

    def _grow(self, old: Tensor, new: Tensor, rows: int) -> Tensor:
        """A larger buffer with what the old one holds."""
        length = self.places.shape[1]
        buffer = new.new_empty(max(rows, len(old)), length + self.GROWTH, new.shape[2])
        if length:
            buffer[: len(old), :length] = old[:, :length]
        return buffer

    def _drop_positions(self, count: int) -> None:
        """Let go of the oldest positions: O(reach) work once in at least `reach` steps."""
        self.places = self.places[:, count:]
        self.keys, self.values = self.keys[:, count:].clone(), self.values[:, count:].clone()

    def read(self, first: int = 0) -> tuple[Tensor, Tensor]:
        """Keys and values of the past of every beam from a position on, `(B W) T (H K)`."""
        places = self.places[:, first:]
        positions = torch.arange(first, self.places.shape[1], device=places.device)
        return self.keys[places, positions], self.values[places, positions]

    def select(self, sentences: Tensor, parents: Tensor) -> Cache:
        """The cache of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`). It takes the place of this one."""
        chosen = Cache()
        if self.places.numel():
            chosen.keys, chosen.values = self.keys, self.values
            chosen.places = self.places[(sentences[:, None] * self.beams + parents).flatten()]
            if 2 * len(chosen.places) <= len(self.keys):
                chosen._drop_unused_rows()
        return chosen

    def _drop_unused_rows(self) -> None:
        """Let go of rows that no beam needs any more."""
        self.keys, self.values = self.read()
        self.places = torch.arange(len(self.places), device=self.places.device)[:, None].expand_as(self.places)


class Slots:
    """Keys and values of one layer's self-attention over a batch, a slot for each position, which may be written again."""

    def __init__(self, sentences: int) -> None:
        self.sentences = sentences
        self.keys, self.values = torch.empty(0, 0, 0), torch.empty(0, 0, 0)  # B T H K

    def write(self, key: Tensor, value: Tensor, sentences: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
        """Keep `B' T (H K)` of some sentences `B'` at positions `B' T`: all keys and values of these sentences up to the last."""
        length = int(at.max()) + 1
        if length > self.keys.shape[1]:
            self.keys, self.values = (self._grow(old, new, length) for old, new in ((self.keys, key), (self.values, value)))
        self.keys[sentences[:, None], at], self.values[sentences[:, None], at] = key, value
        return self.keys[sentences, :length], self.values[sentences, :length]

    def _grow(self, old: Tensor, new: Tensor, length: int) -> Tensor:
        # What nobody has written is read under a mask, and NaN would pass it.
        buffer = new.new_zeros(self.sentences, length + Cache.GROWTH, new.shape[2])
        if old.numel():
            buffer[:, : old.shape[1]] = old
        return buffer


class MultiHeadAttention(nn.Module):
    """Concat(head_1, …, head_h) W^O with head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i). [paper 3.2.2]

    The projections of all heads are stacked: `qkv` holds W^Q, W^K and W^V where all three read the same sequence
    (self-attention); between encoder and decoder `query` holds W^Q, and `key_value` W^K and W^V.
    """

    def __init__(self, config: ModelConfig, *, across: bool = False) -> None:
        super().__init__()
        self.n_heads, self.window, self.dropout = config.n_heads, config.window, Dropout(config.attention_dropout)
        d_k, d_v = self.head_widths = config.key_width, config.value_width
        self.widths = [self.n_heads * d_k, self.n_heads * d_k, self.n_heads * d_v]
        bias = config.attention_bias
        if across:
            self.query = Linear(config.d_model, self.widths[0], bias)
            self.key_value = Linear(config.d_model, sum(self.widths[1:]), bias)
        else:
            self.qkv = Linear(config.d_model, sum(self.widths), bias)
        self.output = Linear(self.widths[2], config.d_model, bias)

    def forward(self, x: Tensor, mask: SelfMask) -> Tensor:
        """Self-attention over whole sequences, `B T D`. [paper 3.2.3]"""
        packed = self.qkv(x)
        if not isinstance(mask, LocalMask):
            return self.output(backend.attend_packed(self, packed, None, mask))
        queries, read = packed.split((self.widths[0], sum(self.widths[1:])), dim=-1)
        return self.output(mask.attend(queries, read, lambda *block: backend.attend_packed(self, *block)))

    def across(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Encoder-decoder attention: queries `B T D` from the decoder, memory `B S D` from the encoder. [paper 3.2.3]"""
        return self.output(backend.attend_packed(self, self.query(x), self.key_value(memory), mask))

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, `B H S K`, for many steps."""
        key, value = (self.heads(part) for part in self.key_value(memory).split(self.widths[1:], dim=-1))
        return key, value

    def across_read(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """Encoder-decoder attention of one position of every beam, `B W D`, to what was read before."""
        return self.output(backend.attend_memory(self, self.query(x), key, value, mask))

    def step(self, x: Tensor, cache: Cache) -> Tensor:
        """Self-attention of one new position `B W D` to all before it and itself."""
        query, key, value = self.qkv(x).split(self.widths, dim=-1)
        reach = self.window // 2 if self.window else None
        cache.append(key, value, reach)
        first = 0 if reach is None else max(0, cache.places.shape[1] - reach - 1)
        return self.output(backend.attend_past(self, query, cache, first))

    def read_slots(self, x: Tensor, slots: Slots, sentences: Tensor, at: Tensor) -> Tensor:
        """Self-attention of positions `at`, `B T`, of chosen sentences, `B T D`: each to all before it and itself."""
        query, key, value = self.qkv(x).split(self.widths, dim=-1)
        keys, values = slots.write(key, value, sentences, at)
        mask = torch.arange(keys.shape[1], device=at.device) <= at[:, None, :, None]  # B 1 T, positions
        heads = attend_fused(self.heads(query), self.heads(keys), self.heads(values), mask, self.dropout, self)
        return self.output(heads.transpose(1, 2).flatten(2))

    def needs_weights(self) -> bool:
        """Whether no kernel may compute this attention: a hook or dropout needs the weights, or `attend` is not Eq. 1."""
        return is_recording() or self.dropout.is_active() or not is_eq_1()

    def attend_packed(self, packed: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """Each head by itself over whole sequences: queries, keys and values `B T (H K)` side by side → `B T (H V)`.

        Where there is a `memory`, it holds keys and values `B S (H K)`, and `packed` queries alone.
        """
        parts = (packed, *memory.split(self.widths[1:], dim=-1)) if memory is not None else packed.split(self.widths, dim=-1)
        query, key, value = (self.heads(part) for part in parts)
        return attend_fused(query, key, value, mask, self.dropout, self).transpose(1, 2).flatten(2)

    def attend_memory(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The same of one position of every beam, `B W (H K)`: the beams of a sentence are queries to its memory."""
        return attend_fused(self.heads(query), key, value, mask, self.dropout, self).transpose(1, 2).flatten(2)

    def attend_past(self, query: Tensor, cache: Cache, first: int) -> Tensor:
        """The same to the past of every beam from position `first` on."""
        keys, values = (self.heads(part).unflatten(0, query.shape[:2]) for part in cache.read(first))  # B W H T K
        heads = query.unflatten(2, (self.n_heads, 1, -1))  # B W H 1 K
        return attend_fused(heads, keys, values, owner=self).reshape(*query.shape[:2], -1)

    def heads(self, x: Tensor) -> Tensor:
        """`B T (H K)` → `B H T K`."""
        return backend.split_heads(x, self.n_heads)
