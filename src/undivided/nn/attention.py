"""Scaled dot-product and multi-head attention, masks, and the cache of decoding. [paper 3.2]

Letters of shapes, here and everywhere: B batch, S source, T target, D d_model, H heads, K d_k (or d_v),
V vocabulary, W beam. Masks are boolean, broadcast to `B H T S`, and True means *may attend*.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.nn.backend import kernels
from undivided.nn.backend.products import Linear
from undivided.nn.dropout import Dropout


def attention(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """softmax(QKᵀ/√d_k)V, and the weights; the plain reference. [paper 3.2.1, Eq. 1]"""
    scores = query @ key.transpose(-2, -1) / math.sqrt(query.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    return weights @ value, weights


AttentionHook = Callable[[nn.Module, Tensor], Tensor]
"""Is shown the weights `… H T S` of every attention with the module they belong to; returns those to go on with."""


class _Watching(threading.local):
    watcher: AttentionHook | None = None


_watching = _Watching()


@contextmanager
def attention_hook(watcher: AttentionHook) -> Iterator[None]:
    """Within it, in this thread, a watcher sees the weights of every attention, and may change them."""
    before, _watching.watcher = _watching.watcher, watcher
    try:
        yield
    finally:
        _watching.watcher = before


def is_recording() -> bool:
    """Whether somebody watches in this thread."""
    return _watching.watcher is not None


def apply_hook(owner: nn.Module, weights: Tensor) -> Tensor:
    """The weights `… H T S` after whoever watches has seen them. Every attention of every model passes here."""
    return weights if _watching.watcher is None else _watching.watcher(owner, weights)


LARGEST_SCORES = 128 * 128
"""Up to so many scores a head, plain batched products beat the fused kernel on a CPU; beyond, memory matters."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None = None,
    dropout: Dropout | None = None,
    owner: nn.Module | None = None,
) -> Tensor:
    """The same as `attention`, fast: fused kernels that never hold all scores, or plain products where they win.

    Where somebody watches, the weights of an `owner` are computed by plain products, which show them.
    """
    share = dropout.rate if dropout is not None and dropout.training else 0.0
    short = query.shape[-2] * key.shape[-2] <= LARGEST_SCORES
    shown = owner is not None and is_recording()
    # With dropout on a CPU only the plain products take their masks from our generator.
    if not shown and (query.device.type != "cpu" or not (short or share)):
        return F.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=share)
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    if mask is not None:
        scores.masked_fill_(~mask, -math.inf)
    weights = scores.softmax(dim=-1)
    if owner is not None:
        weights = apply_hook(owner, weights)
    return (weights if dropout is None else dropout(weights)) @ value


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


class Cache:
    """Keys and values of one layer's past self-attention.

    They stay where they were written. What moves when beams are chosen is `places`: for every beam and position, the row in
    which that position of its past lies.
    """

    ROOM = 8

    def __init__(self) -> None:
        self.beams = 1
        self.places = torch.empty(0, 0, dtype=torch.long)  # (B W) T
        self.keys, self.values = torch.empty(0, 0, 0), torch.empty(0, 0, 0)  # rows, positions, H K

    def append(self, key: Tensor, value: Tensor) -> None:
        """Remember one more position of every beam: `B W (H K)`."""
        self.beams, rows = key.shape[1], key.shape[0] * key.shape[1]
        length = self.places.shape[1]
        if not length:
            self.places = torch.empty(rows, 0, dtype=torch.long, device=key.device)
        if rows > len(self.keys) or length == self.keys.shape[1]:
            self.keys, self.values = (self._roomy(old, new, rows) for old, new in ((self.keys, key), (self.values, value)))
        self.keys[:rows, length], self.values[:rows, length] = key.flatten(0, 1), value.flatten(0, 1)
        own = torch.arange(rows, device=key.device)[:, None]
        self.places = torch.cat([self.places, own], dim=1)

    def _roomy(self, old: Tensor, new: Tensor, rows: int) -> Tensor:
        """A larger buffer with what the old one holds."""
        length = self.places.shape[1]
        buffer = new.new_empty(max(rows, len(old)), length + self.ROOM, new.shape[2])
        if length:
            buffer[: len(old), :length] = old[:, :length]
        return buffer

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
                chosen._pack()
        return chosen

    def _pack(self) -> None:
        """Let go of rows that no beam needs any more."""
        self.keys, self.values = self.read()
        self.places = torch.arange(len(self.places), device=self.places.device)[:, None].expand_as(self.places)


class MultiHeadAttention(nn.Module):
    """Concat(head_1, …, head_h) W^O with head_i = Attention(Q W^Q_i, K W^K_i, V W^V_i). [paper 3.2.2]

    The projections of all heads are stacked: `qkv` holds W^Q, W^K and W^V where all three read the same sequence
    (self-attention); between encoder and decoder `query` holds W^Q, and `key_value` W^K and W^V.
    """

    def __init__(self, config: ModelConfig, *, across: bool = False) -> None:
        super().__init__()
        self.n_heads, self.window, self.dropout = config.n_heads, config.window, Dropout(config.attention_dropout)
        d_k, d_v = config.key_width, config.value_width
        self.head_widths = (d_k, d_v)
        self.widths = [self.n_heads * d_k, self.n_heads * d_k, self.n_heads * d_v]
        bias = config.attention_bias
        if across:
            self.query = Linear(config.d_model, self.widths[0], bias)
            self.key_value = Linear(config.d_model, sum(self.widths[1:]), bias)
        else:
            self.qkv = Linear(config.d_model, sum(self.widths), bias)
        self.output = Linear(self.widths[2], config.d_model, bias)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Self-attention over whole sequences, `B T D`. [paper 3.2.3]"""
        packed = self.qkv(x)
        if self._in_one_pass(packed, packed):
            return self.output(kernels.attend(packed, None, self.n_heads, self.head_widths, mask))
        query, key, value = (self.heads(part) for part in packed.split(self.widths, dim=-1))
        return self.join(attend(query, key, value, mask, self.dropout, self))

    def across(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> Tensor:
        """Encoder-decoder attention: queries `B T D` from the decoder, memory `B S D` from the encoder. [paper 3.2.3]"""
        query, packed = self.query(x), self.key_value(memory)
        if self._in_one_pass(query, packed):
            return self.output(kernels.attend(query, packed, self.n_heads, self.head_widths, mask))
        return self.join(attend(self.heads(query), *self._keys_and_values(packed), mask, self.dropout, self))

    def _in_one_pass(self, query: Tensor, key: Tensor) -> bool:
        """Whether the kernels do it: for gradients, nobody watching, no dropout on weights, sequences short enough."""
        plain = not is_recording() and not (self.dropout.rate and self.training)
        return plain and query.shape[1] * key.shape[1] <= LARGEST_SCORES and kernels.serve(query) and self._suits(query)

    def _suits(self, x: Tensor) -> bool:
        return not any(width % kernels.WIDE for width in self.head_widths) and kernels.fit(x)

    def _hastened(self, x: Tensor) -> bool:
        """Whether the kernels do a step of decoding."""
        return kernels.hasten(x) and not is_recording() and self._suits(x)

    def read(self, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the encoder's output, `B H S K`, for many steps."""
        return self._keys_and_values(self.key_value(memory))

    def _keys_and_values(self, packed: Tensor) -> tuple[Tensor, Tensor]:
        key, value = (self.heads(part) for part in packed.split(self.widths[1:], dim=-1))
        return key, value

    def across_read(self, x: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """The same for keys and values that were read before."""
        query = self.query(x)
        if self._hastened(query):
            rows = torch.arange(len(x), device=x.device).repeat_interleave(x.shape[1])[:, None].expand(-1, key.shape[2])
            real = None if mask is None else mask[:, 0, 0].repeat_interleave(x.shape[1], dim=0)
            return self.output(kernels.attend_cached(query, key, value, rows, real))
        return self.join(attend(self.heads(query), key, value, mask, self.dropout, self))

    def step(self, x: Tensor, cache: Cache) -> Tensor:
        """Self-attention of one new position `B W D` to all before it and itself."""
        packed = self.qkv(x)
        query, key, value = packed.split(self.widths, dim=-1)
        cache.append(key, value)
        first = max(0, cache.places.shape[1] - self.window // 2 - 1) if self.window else 0
        if self._hastened(packed):
            keys, values = self.heads(cache.keys), self.heads(cache.values)
            return self.output(kernels.attend_cached(query, keys, values, cache.places, first=first))
        keys, values = (self.heads(part).unflatten(0, x.shape[:2]) for part in cache.read(first))  # B W H T K
        query = query.unflatten(2, (self.n_heads, 1, -1))  # B W H 1 K
        return self.output(attend(query, keys, values, owner=self).reshape(*x.shape[:2], -1))

    def heads(self, x: Tensor) -> Tensor:
        """`B T (H K)` → `B H T K`."""
        return x.view(*x.shape[:2], self.n_heads, -1).transpose(1, 2)

    def join(self, x: Tensor) -> Tensor:
        """`B H T K` → `B T D` through W^O."""
        return self.output(x.transpose(1, 2).flatten(2))
