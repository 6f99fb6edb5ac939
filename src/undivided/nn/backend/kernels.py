"""What training and decoding on a CPU do between their large products, each by one C kernel in one pass over memory.

Thin wrappers that check what they are given; `dispatch` and `loss` decide when to call them.
"""

from __future__ import annotations

from ctypes import c_double
from typing import Any

import torch
from torch import Tensor, nn

from undivided.nn.backend.mask import DropoutMask
from undivided.nn.backend.memory import WIDE, address, kernels, same_shape


def drop(x: Tensor, mask: DropoutMask, other: Tensor | None = None) -> Tensor:
    """Dropout(x), or other + Dropout(x). [paper 5.4]"""
    return _Drop.apply(x, mask, other)


class _Drop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: DropoutMask, other: Tensor | None) -> Tensor:
        ctx.mask, ctx.added = mask, other is not None
        return _apply_mask(x.contiguous(), mask, None if other is None else other.contiguous())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return _apply_mask(grads[0].contiguous(), ctx.mask), None, grads[0] if ctx.added else None


def _apply_mask(x: Tensor, mask: DropoutMask, other: Tensor | None = None) -> Tensor:
    out, count = torch.empty_like(x), x.numel()
    if other is not None:
        same_shape(x, other)
    added = None if other is None else address(other, count)
    kernels().dropout(address(x, count), added, address(out, count), count, *mask.arguments)
    return out


def add_norm(x: Tensor, y: Tensor, mask: DropoutMask, norm: nn.LayerNorm) -> Tensor:
    """LayerNorm(x + Dropout(y)). [paper 3.1, 5.4]"""
    return _AddNorm.apply(x, y, mask, norm.weight, norm.bias, norm.eps)


class _AddNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor, mask: DropoutMask, gain: Tensor, shift: Tensor, epsilon: float) -> Tensor:
        same_shape(x, y)
        x, y = x.contiguous(), y.contiguous()
        count, width = x.numel(), x.shape[-1]
        rows, total, out = count // width, torch.empty_like(x), torch.empty_like(x)
        stats = x.new_empty(rows, 2)
        kernels().add_norm(
            address(x, count), address(y, count), rows, width, *mask.arguments, address(gain, width), address(shift, width),
            epsilon, address(total, count), address(out, count), address(stats, 2 * rows),
        )  # fmt: skip
        ctx.save_for_backward(total, stats, gain)
        ctx.mask = mask
        return out

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        total, stats, gain = ctx.saved_tensors
        grad, count, width, rows = grads[0].contiguous(), total.numel(), total.shape[-1], len(stats)
        grad_x, grad_gain, grad_shift = torch.empty_like(total), torch.zeros_like(gain), torch.zeros_like(gain)
        grad_y = torch.empty_like(total) if ctx.mask.threshold else grad_x
        kernels().add_norm_backward(
            address(grad, count), address(total, count), address(stats, 2 * rows), rows, width, *ctx.mask.arguments,
            address(gain, width), address(grad_x, count), address(grad_y, count), address(grad_gain, width),
            address(grad_shift, width),
        )  # fmt: skip
        return grad_x, grad_y, None, grad_gain, grad_shift, None


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, xW + b). [paper 3.3, Eq. 2]"""
    return _BiasRelu.apply(nn.functional.linear(x, weight), bias)


class _BiasRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor) -> Tensor:
        width = x.shape[-1]
        kernels().bias_relu(address(x, x.numel()), address(bias, width), x.numel() // width, width)
        ctx.mark_dirty(x)
        ctx.save_for_backward(x)
        return x

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (out,) = ctx.saved_tensors
        grad, count, width = grads[0].contiguous(), out.numel(), out.shape[-1]
        below, grad_bias = torch.empty_like(out), out.new_zeros(width)
        kernels().bias_relu_backward(
            address(grad, count), address(out, count), address(below, count), address(grad_bias, width), count // width, width
        )
        return below, grad_bias


def softmax_loss(logits: Tensor, labels: Tensor, smoothing: float, totals: Tensor) -> tuple[float, float]:
    """The logits `N V`, float32 or bfloat16, become the exponentials of which the gradient is made, `totals` their sums.

    Returns the sum of the logarithms of the sums, and the sum of the labels' logits.
    """
    sums = (c_double * 2)()
    rows, width = logits.shape
    arguments = (
        address(logits, rows * width, logits.dtype), address(labels, rows, torch.int64), rows, width, smoothing,
        address(totals, rows), sums,
    )  # fmt: skip
    if logits.dtype is torch.bfloat16:
        scratch = totals.new_empty(width)
        kernels().softmax_loss_bfloat16(*arguments, address(scratch, width))
    elif logits.dtype is torch.float32:
        kernels().softmax_loss(*arguments)
    else:
        raise ValueError(f"a kernel needs logits of float32 or bfloat16, not {logits.dtype}")
    return sums[0], sums[1]


def consistent_loss(
    first: Tensor, second: Tensor, labels: Tensor, smoothing: float, kl_weight: float
) -> tuple[float, float, float]:
    """The logits `N V` of two passes, float32 or bfloat16, become their gradients, smoothing's constant part left out.

    Returns the sums of the normalisers, of the labels' logits, and of both divergences. [R-Drop]
    """
    same_shape(first, second)
    if first.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"a kernel needs logits of float32 or bfloat16, not {first.dtype}")
    sums = (c_double * 3)()
    rows, width = first.shape
    padded = -(-width // WIDE) * WIDE
    scratch = torch.empty(3 * padded)
    kernels().consistent_loss(
        address(first, rows * width, first.dtype), address(second, rows * width, first.dtype), address(labels, rows, torch.int64),
        rows, width, first.dtype is torch.bfloat16, smoothing, kl_weight, sums, address(scratch, 3 * padded),
    )  # fmt: skip
    return sums[0], sums[1], sums[2]


def top_tokens(logits: Tensor, count: int, first_token: int) -> tuple[Tensor, Tensor]:
    """Log-probabilities and ids of the most probable next tokens from `first_token` on, best first: logits `… V` → twice `… C`."""
    if count < 1:
        raise ValueError(f"the {count} most probable tokens are none")
    logits = logits.contiguous()
    size, width = logits.numel(), logits.shape[-1]
    rows = size // width
    scores = logits.new_empty(*logits.shape[:-1], count)
    tokens = torch.empty_like(scores, dtype=torch.int64)
    block_max = logits.new_empty(width // 64 + 1)
    kernels().top_tokens(
        address(logits, size), rows, width, first_token, count, address(block_max, len(block_max)),
        address(scores, rows * count), address(tokens, rows * count, torch.int64),
    )  # fmt: skip
    return scores, tokens
