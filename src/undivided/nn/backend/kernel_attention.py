"""Eq. 1 by C kernels: over whole, short sequences with its gradient, and for one step of decoding. [paper 3.2.1]"""

from __future__ import annotations

import math
from ctypes import byref
from typing import Any

import torch
from torch import Tensor

from undivided.nn.backend.memory import WIDE, address, cached_heads, kernels, packed_heads
from undivided.nn.library.signatures import AttentionShape, HeadView


def attend(packed: Tensor, memory: Tensor | None, heads: int, widths: tuple[int, int], mask: Tensor | None) -> Tensor:
    """Eq. 1 for all heads, of projections as they come: `B T (H K)` → `B T (H K)`. [paper 3.2.1]

    `packed` holds queries, keys and values side by side or, where there is a `memory` of keys and values, queries alone.
    """
    return _Attend.apply(packed, memory, heads, widths, mask)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, packed: Tensor, memory: Tensor | None, heads: int, widths: tuple[int, int], mask: Tensor | None
    ) -> Tensor:
        packed, memory = packed.contiguous(), None if memory is None else memory.contiguous()
        read = packed if memory is None else memory
        (batch, queries), keys = packed.shape[:2], read.shape[1]
        if len(read) != batch:
            raise ValueError(f"{batch} sequences of queries, but {len(read)} of keys")
        shape = AttentionShape(batch, heads, queries, keys, *widths, None, 0, 0, 1 / math.sqrt(widths[0]))
        if mask is not None:
            mask = _rows_in_order(mask, (batch, 1, queries, keys))
            shape.mask, shape.mask_batch, shape.mask_row = mask.data_ptr(), mask.stride(0), mask.stride(2)
        out = packed.new_empty(batch, queries, heads * widths[1])
        weights = packed.new_empty(batch, heads, keys, -(-queries // WIDE) * WIDE)
        views = _views(packed, memory, heads, widths)
        kernels().attend(shape, *views, packed_heads(out, 0, heads, widths[1]), address(weights, weights.numel()))
        ctx.save_for_backward(packed, memory, weights)
        ctx.shape, ctx.heads, ctx.widths = shape, heads, widths
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        packed, memory, weights = ctx.saved_tensors
        grad, heads, widths = grads[0].contiguous(), ctx.heads, ctx.widths
        grad_packed, grad_memory = torch.empty_like(packed), None if memory is None else torch.empty_like(memory)
        views, grad_views = _views(packed, memory, heads, widths), _views(grad_packed, grad_memory, heads, widths)
        above = packed_heads(grad, 0, heads, widths[1])
        kernels().attend_backward(ctx.shape, *views, address(weights, weights.numel()), above, *grad_views)
        return grad_packed, grad_memory, None, None, None


def _rows_in_order(mask: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A mask as the kernels read it: expanded, the numbers of a row side by side."""
    if mask.dtype is not torch.bool or not mask.is_cpu:
        raise ValueError(f"a mask is boolean and on the CPU, not {mask.dtype} on {mask.device}")
    mask = mask.expand(shape)
    return mask if mask.stride(3) == 1 else mask.contiguous()


def _views(packed: Tensor, memory: Tensor | None, heads: int, widths: tuple[int, int]) -> list[HeadView]:
    """Where queries, keys and values lie."""
    first, read = (heads * widths[0], packed) if memory is None else (0, memory)
    return [
        packed_heads(packed, 0, heads, widths[0]),
        packed_heads(read, first, heads, widths[0]),
        packed_heads(read, first + heads * widths[0], heads, widths[1]),
    ]


def attend_cached(query: Tensor, key: Tensor, value: Tensor, places: Tensor, mask: Tensor | None = None, first: int = 0) -> Tensor:
    """Eq. 1 for one position of every beam, `B W (H K)`, of keys and values `rows H T K` from position `first` on. No gradients.

    `places`, `(B W) T`, tell in which row a position lies that a beam reads; `mask`, `(B W) T`, whether it may.
    """
    (beams, length), (rows, heads, _, width), value_width = places.shape, key.shape, value.shape[3]
    beam_stride = query.stride(1) if query.shape[1] > 1 else query.stride(0)
    if query.dtype is not torch.float32 or query.shape[0] * query.shape[1] != beams or query.shape[2] != heads * width:
        raise ValueError(f"queries {query.dtype} {tuple(query.shape)} are not {beams} beams of {heads} heads {width} wide")
    if query.stride(2) != 1 or (query.shape[0] > 1 and query.stride(0) != query.shape[1] * beam_stride):
        raise ValueError(f"beams must lie in order, one after the other, not with strides {query.stride()}")
    if value.shape[:2] != key.shape[:2] or places.dtype is not torch.int64:
        raise ValueError(f"keys {tuple(key.shape)}, values {tuple(value.shape)} and places of {places.dtype} do not fit")
    out = query.new_empty(*query.shape[:2], heads * value_width)
    may = None if mask is None else mask.contiguous()
    kernels().attend_cached(
        query.data_ptr(), beam_stride, byref(cached_heads(key, length)), byref(cached_heads(value, length)), places.data_ptr(),
        places.stride(0), places.stride(1), None if may is None else address(may, beams * length, torch.bool), rows, beams, first,
        length, heads, width, value_width, 1 / math.sqrt(width), address(out, out.numel()),
    )  # fmt: skip
    return out
