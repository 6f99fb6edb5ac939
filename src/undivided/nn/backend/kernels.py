"""What training and decoding on a CPU do between their large products, each in one pass over memory instead of many.

Where a C compiler is at hand, `kernels.c` is built once and kept. Without one, or on a GPU, callers do the same with PyTorch.
"""

from __future__ import annotations

import ctypes
import math
from ctypes import c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from undivided.nn.backend.build import library, reason

__all__ = [
    "KEEP_ALL",
    "DropoutMask",
    "add_norm",
    "attend",
    "attend_cached",
    "consistent_loss",
    "drop",
    "fit",
    "hasten",
    "linear_relu",
    "reason",
    "serve",
    "softmax_loss",
    "top_tokens",
]  # fmt: skip

WIDE = 16
"""Heads are as wide as a multiple of this."""


def fit(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these: float32 on a CPU."""
    return all(each.dtype is torch.float32 and each.device.type == "cpu" for each in tensors) and library() is not None


def serve(*tensors: Tensor) -> bool:
    """Whether the kernels compute with these: where they fit and a gradient will be asked for."""
    return torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and fit(*tensors)


def hasten(*tensors: Tensor) -> bool:
    """Whether the kernels compute with these where no gradient will ever be asked for: in inference mode."""
    return torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu") and fit(*tensors)


def _kernels() -> ctypes.CDLL:
    found = library()
    assert found is not None, reason()
    return found


def _at(tensor: Tensor) -> c_void_p:
    return c_void_p(tensor.data_ptr())


@dataclass(frozen=True, slots=True)
class DropoutMask:
    """Which elements stay, and times what: those whose random byte, a function of the seed, reaches the threshold."""

    seed: int
    threshold: int
    scale: float

    @property
    def arguments(self) -> tuple[c_uint64, c_int32, c_float]:
        """As the kernels take them."""
        return c_uint64(self.seed), c_int32(self.threshold), c_float(self.scale)


KEEP_ALL = DropoutMask(0, 0, 1.0)
"""Everything stays."""


def drop(x: Tensor, mask: DropoutMask, other: Tensor | None = None) -> Tensor:
    """Dropout(x), or other + Dropout(x). [paper 5.4]"""
    return _Drop.apply(x, mask, other)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: DropoutMask, other: Tensor | None) -> Tensor:
        ctx.mask, ctx.added = mask, other is not None
        return _masked(x.contiguous(), mask, None if other is None else other.contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _masked(grads[0].contiguous(), ctx.mask), None, grads[0] if ctx.added else None


def _masked(x: Tensor, mask: DropoutMask, other: Tensor | None = None) -> Tensor:
    out = torch.empty_like(x)
    _kernels().dropout(_at(x), None if other is None else _at(other), _at(out), c_int64(x.numel()), *mask.arguments)
    return out


def add_norm(x: Tensor, y: Tensor, mask: DropoutMask, norm: torch.nn.LayerNorm) -> Tensor:
    """LayerNorm(x + Dropout(y)). [paper 3.1, 5.4]"""
    return _AddNorm.apply(x, y, mask, norm.weight, norm.bias, norm.eps)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, mask: DropoutMask, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
        x, y = x.contiguous(), y.contiguous()
        width = x.shape[-1]
        rows, total, out = x.numel() // width, torch.empty_like(x), torch.empty_like(x)
        facts = x.new_empty(rows, 2)
        _kernels().add_norm(
            _at(x), _at(y), c_int64(rows), c_int64(width), *mask.arguments, _at(gain), _at(shift), c_float(epsilon),
            _at(total), _at(out), _at(facts),
        )  # fmt: skip
        ctx.save_for_backward(total, facts, gain)
        ctx.mask = mask
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        total, facts, gain = ctx.saved_tensors
        grad, width = grads[0].contiguous(), total.shape[-1]
        grad_x, grad_gain, grad_shift = torch.empty_like(total), torch.zeros_like(gain), torch.zeros_like(gain)
        grad_y = torch.empty_like(total) if ctx.mask.threshold else grad_x
        _kernels().add_norm_back(
            _at(grad), _at(total), _at(facts), c_int64(len(facts)), c_int64(width), *ctx.mask.arguments, _at(gain),
            _at(grad_x), _at(grad_y), _at(grad_gain), _at(grad_shift),
        )  # fmt: skip
        return grad_x, grad_y, None, grad_gain, grad_shift, None


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, xW + b). [paper 3.3, Eq. 2]"""
    return _BiasRelu.apply(torch.nn.functional.linear(x, weight), bias)


class _BiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        _kernels().bias_relu(_at(x), _at(bias), c_int64(x.numel() // len(bias)), c_int64(len(bias)))
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (out,) = ctx.saved_tensors
        grad, width = grads[0].contiguous(), out.shape[-1]
        below, grad_bias = torch.empty_like(out), out.new_zeros(width)
        _kernels().bias_relu_back(_at(grad), _at(out), _at(below), _at(grad_bias), c_int64(out.numel() // width), c_int64(width))
        return below, grad_bias


def softmax_loss(logits: Tensor, labels: Tensor, smoothing: float, totals: Tensor) -> tuple[float, float]:
    """The logits `N V`, float32 or bfloat16, become the exponentials of which the gradient is made, `totals` their sums.

    Returns the sum of the logarithms of the sums, and the sum of the labels' logits.
    """
    found = (c_double * 2)()
    rows, width = logits.shape
    arguments = _at(logits), _at(labels), c_int64(rows), c_int64(width), c_float(smoothing), _at(totals), found
    if logits.dtype is torch.bfloat16:
        room = totals.new_empty(width)
        _kernels().softmax_loss_half(*arguments, _at(room))
    else:
        _kernels().softmax_loss(*arguments)
    return found[0], found[1]


def consistent_loss(first: Tensor, second: Tensor, labels: Tensor, smoothing: float, pull: float) -> tuple[float, float, float]:
    """The logits `N V` of two passes, float32 or bfloat16, become their gradients, smoothing's constant part left out.

    Returns the sums of the normalisers, of the labels' logits, and of both divergences. [R-Drop]
    """
    found = (c_double * 3)()
    rows, width = first.shape
    room = torch.empty(3 * (-(-width // WIDE) * WIDE))
    _kernels().consistent_loss(
        _at(first), _at(second), _at(labels), c_int64(rows), c_int64(width), c_int32(first.dtype is torch.bfloat16),
        c_float(smoothing), c_float(pull), found, _at(room),
    )  # fmt: skip
    return found[0], found[1], found[2]


class _Shape(ctypes.Structure):
    _fields_ = [
        *((name, c_int64) for name in ("batch", "heads", "queries", "keys", "width", "value_width")),
        ("mask", c_void_p),
        ("mask_batch", c_int64),
        ("mask_row", c_int64),
        ("scale", c_float),
    ]


class _Heads(ctypes.Structure):
    """Where the heads of a tensor `B T (H K)` lie, or of a part of its last dimension."""

    _fields_ = [("at", c_void_p), ("batch", c_int64), ("row", c_int64), ("head", c_int64)]

    @classmethod
    def of(cls, tensor: Tensor, start: int, width: int) -> _Heads:
        return cls(tensor.data_ptr() + 4 * start, tensor.stride(0), tensor.stride(1), width)

    @classmethod
    def within(cls, tensor: Tensor) -> _Heads:
        """The same for a tensor, or view, `B H T K`."""
        return cls(tensor.data_ptr(), tensor.stride(0), tensor.stride(2), tensor.stride(1))


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
        shape = _Shape(batch, heads, queries, keys, *widths, None, 0, 0, 1 / math.sqrt(widths[0]))
        if mask is not None:
            mask = mask.expand(batch, 1, queries, keys)
            mask = mask if mask.stride(3) == 1 else mask.contiguous()
            shape.mask, shape.mask_batch, shape.mask_row = mask.data_ptr(), mask.stride(0), mask.stride(2)
        out = packed.new_empty(batch, queries, heads * widths[1])
        weights = packed.new_empty(batch, heads, keys, -(-queries // WIDE) * WIDE)
        places = [ctypes.byref(each) for each in _places(packed, memory, heads, widths)]
        _check(_kernels().attend(ctypes.byref(shape), *places, ctypes.byref(_Heads.of(out, 0, widths[1])), _at(weights)))
        ctx.save_for_backward(packed, memory, weights)
        ctx.shape, ctx.heads, ctx.widths = shape, heads, widths
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        packed, memory, weights = ctx.saved_tensors
        grad, heads, widths = grads[0].contiguous(), ctx.heads, ctx.widths
        grad_packed, grad_memory = torch.empty_like(packed), None if memory is None else torch.empty_like(memory)
        places = [ctypes.byref(each) for each in _places(packed, memory, heads, widths)]
        slopes = [ctypes.byref(each) for each in _places(grad_packed, grad_memory, heads, widths)]
        above = ctypes.byref(_Heads.of(grad, 0, widths[1]))
        _check(_kernels().attend_back(ctypes.byref(ctx.shape), *places, _at(weights), above, *slopes))
        return grad_packed, grad_memory, None, None, None


def _places(packed: Tensor, memory: Tensor | None, heads: int, widths: tuple[int, int]) -> list[_Heads]:
    """Where queries, keys and values lie."""
    first, read = (heads * widths[0], packed) if memory is None else (0, memory)
    return [
        _Heads.of(packed, 0, widths[0]),
        _Heads.of(read, first, widths[0]),
        _Heads.of(read, first + heads * widths[0], widths[1]),
    ]


def attend_cached(query: Tensor, key: Tensor, value: Tensor, places: Tensor, mask: Tensor | None = None, first: int = 0) -> Tensor:
    """Eq. 1 for one position of every beam, `B W (H K)`, of keys and values `rows H T K` from position `first` on. No gradients.

    `places`, `(B W) T`, tell in which row a position lies that a beam reads; `mask`, `(B W) T`, whether it may.
    """
    beams, length = places.shape
    heads, (width, value_width) = key.shape[1], (each.shape[3] for each in (key, value))
    out = query.new_empty(*query.shape[:2], heads * value_width)
    mask = None if mask is None else mask.contiguous()
    sizes = (c_int64(each) for each in (beams, first, length, heads, width, value_width))
    _check(
        _kernels().attend_rows(
            _at(query), c_int64(query.stride(1)), *(ctypes.byref(_Heads.within(each)) for each in (key, value)),
            _at(places), c_int64(places.stride(0)), c_int64(places.stride(1)), None if mask is None else _at(mask),
            *sizes, c_float(1 / math.sqrt(width)), _at(out),
        )
    )  # fmt: skip
    return out


def top_tokens(logits: Tensor, count: int, begin: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids of the most probable next tokens, best first: logits `… V` → twice `… C`. No id before `begin`."""
    logits = logits.contiguous()
    rows, width = logits.numel() // logits.shape[-1], logits.shape[-1]
    scores = logits.new_empty(*logits.shape[:-1], count)
    tokens = torch.empty_like(scores, dtype=torch.int64)
    room = logits.new_empty(width // 64 + 1)
    sizes = (c_int64(each) for each in (rows, width, begin, count))
    _kernels().best_next(_at(logits), *sizes, _at(room), _at(scores), _at(tokens))
    return scores, tokens


def _check(failed: int) -> None:
    if failed:
        raise MemoryError("memory does not suffice for attention")
