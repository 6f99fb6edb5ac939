"""The layers' arithmetic, each function with its plain PyTorch and the faster ways to the same numbers. [paper 3.1–3.3, 5.4]

Differs from plain PyTorch: in the last bits, since sums may be taken in another order; with bfloat16, by its rounding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeGuard

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.nn.backend import bfloat16, kernel_attention, kernels
from undivided.nn.backend.bfloat16 import uses_bfloat16
from undivided.nn.backend.choice import decodes_with_kernels, trains_with_kernels
from undivided.nn.backend.mask import DropoutMask, mask_factors
from undivided.nn.backend.memory import WIDE
from undivided.nn.backend.packed import packed_weights_for

if TYPE_CHECKING:
    from undivided.nn.attention import Cache
    from undivided.nn.dropout import Dropout

LARGEST_SCORES = 128 * 128
"""Up to this many scores a head, plain batched products beat fused attention on a CPU; beyond, memory matters."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, exact: bool = False) -> Tensor:
    """xW + b: in bfloat16, of packed weights, or by PyTorch; `exact`: in float32 wherever others are rounded."""
    if not exact and uses_bfloat16(x):
        return bfloat16.linear(x, weight, bias)
    packed = packed_weights_for(x)
    return F.linear(x, weight, bias) if packed is None else packed.linear(x, weight, bias, exact=exact)


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, xW + b) in float32, or of packed weights."""
    if trains_with_kernels(x):
        return kernels.linear_relu(x, weight, bias)
    packed = packed_weights_for(x)
    return F.linear(x, weight, bias).relu_() if packed is None else packed.linear(x, weight, bias, "relu")


def feed_forward(x: Tensor, inner: nn.Linear, outer: nn.Linear, dropout: Dropout) -> Tensor:
    """max(0, xW₁ + b₁)W₂ + b₂, with dropout between the products. [paper 3.3, Eq. 2]"""
    if not uses_bfloat16(x):
        return outer(dropout(linear_relu(x, inner.weight, inner.bias)))
    if dropout.is_active():
        return outer(dropout(F.relu(inner(x), inplace=True)))
    return bfloat16.feed_forward(x, inner, outer)


def dropout(x: Tensor, mask: DropoutMask) -> Tensor:
    """What a mask keeps, scaled, and 0 elsewhere. [paper 5.4]"""
    return kernels.drop(x, mask) if trains_with_kernels(x) else x * mask_factors(mask, x)


def add(x: Tensor, y: Tensor, dropout: Dropout) -> Tensor:
    """x + Dropout(y). [paper 5.4]"""
    return kernels.drop(y, dropout.mask(), x) if trains_with_kernels(x, y) else x + dropout(y)


def add_norm(x: Tensor, y: Tensor, dropout: Dropout, norm: nn.Module) -> Tensor:
    """LayerNorm(x + Dropout(y)), or with another norm. [paper 3.1, 5.4]"""
    if _is_plain(norm) and (trains_with_kernels(x, y) or decodes_with_kernels(x, y)):
        return kernels.add_norm(x, y, dropout.mask(), norm)
    return norm(x + dropout(y))


def _is_plain(norm: nn.Module) -> TypeGuard[nn.LayerNorm]:
    """Whether a norm is what the kernels compute: LayerNorm with a gain and a shift."""
    return type(norm) is nn.LayerNorm and norm.bias is not None


def prefers_fused_attention(query: Tensor, key: Tensor, dropout_rate: float) -> bool:
    """Whether PyTorch's fused attention, which never holds all scores, is better than plain products: `… T K`, `… S K`.

    With dropout on a CPU only the plain products take their masks from our generator.
    """
    is_short = query.shape[-2] * key.shape[-2] <= LARGEST_SCORES
    return query.device.type != "cpu" or not (is_short or dropout_rate)


class AttentionLayer(Protocol):
    """What is asked of a layer of attention: its sizes, and the plain methods that the kernels stand in for."""

    n_heads: int
    head_widths: tuple[int, int]

    def needs_weights(self) -> bool:
        """Whether no kernel may compute it: the weights themselves are needed, or the layer computes another equation."""

    def attend_packed(self, packed: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
        """All heads over whole sequences: projections `B T (H K)` → `B T (H V)`."""

    def attend_memory(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
        """All heads of one position of every beam, to keys and values of the encoder's output."""

    def attend_past(self, query: Tensor, cache: Cache, first: int) -> Tensor:
        """All heads of one position of every beam, to its own past."""


def attend_packed(layer: AttentionLayer, packed: Tensor, memory: Tensor | None, mask: Tensor | None) -> Tensor:
    """All heads of Eq. 1 over whole sequences, of projections as they come: `B T (H K)` → `B T (H V)`. [paper 3.2.2]"""
    read = packed if memory is None else memory
    is_short = packed.shape[1] * read.shape[1] <= LARGEST_SCORES
    if is_short and not layer.needs_weights() and trains_with_kernels(packed) and _has_wide_heads(layer):
        return kernel_attention.attend(packed, memory, layer.n_heads, layer.head_widths, mask)
    return layer.attend_packed(packed, memory, mask)


def attend_memory(layer: AttentionLayer, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    """All heads of Eq. 1 for one position of every beam, `B W (H K)`, to keys and values `B H S K` of the encoder's output."""
    if not _decodes_with_kernels(layer, query):
        return layer.attend_memory(query, key, value, mask)
    beams = query.shape[1]
    rows = torch.arange(len(query), device=query.device).repeat_interleave(beams)[:, None].expand(-1, key.shape[2])
    real = None if mask is None else mask[:, 0, 0].repeat_interleave(beams, dim=0)
    return kernel_attention.attend_cached(query, key, value, rows, real)


def attend_past(layer: AttentionLayer, query: Tensor, cache: Cache, first: int) -> Tensor:
    """All heads of Eq. 1 for one position of every beam, `B W (H K)`, to its own past from position `first` on."""
    if not _decodes_with_kernels(layer, query):
        return layer.attend_past(query, cache, first)
    keys, values = (split_heads(each, layer.n_heads) for each in (cache.keys, cache.values))
    return kernel_attention.attend_cached(query, keys, values, cache.places, first=first)


def _decodes_with_kernels(layer: AttentionLayer, query: Tensor) -> bool:
    return decodes_with_kernels(query) and not layer.needs_weights() and _has_wide_heads(layer)


def _has_wide_heads(layer: AttentionLayer) -> bool:
    return not any(width % WIDE for width in layer.head_widths)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """`B T (H K)` → `B H T K`."""
    return x.view(*x.shape[:2], n_heads, -1).transpose(1, 2)
