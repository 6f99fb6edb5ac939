"""The arithmetic of the loss: from logits to their gradient, each function with its plain PyTorch. [paper 5.4]"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.nn.backend import choice, kernels
from undivided.nn.backend.bfloat16 import uses_bfloat16

EVEN = 16
"""Chunks of bfloat16 have a multiple of this many rows."""


def loss_factors(rows: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """States `N D` and output weight `V D` in the type that their products are computed in."""
    if uses_bfloat16(rows):
        return _even(rows) if choice.supports_kernels(rows) else rows.bfloat16(), weight.bfloat16()
    if torch.is_autocast_enabled(rows.device.type):
        dtype = torch.get_autocast_dtype(rows.device.type)
        return rows.to(dtype), weight.to(dtype)
    return rows, weight


def consistent_factors(first: Tensor, second: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The same of two passes: bfloat16 where that is used and the kernels compute, else float32."""
    if uses_bfloat16(first) and choice.supports_kernels(first):
        return _even(first), _even(second), weight.bfloat16()
    return first.float(), second.float(), weight.float()


def _even(rows: Tensor) -> Tensor:
    """Rounded, rows of zeros below: so chunks have few different lengths, for each of which a product makes and keeps a program."""
    return F.pad(rows, (0, 0, 0, -len(rows) % EVEN)).bfloat16()


def round_chunk(size: int, dtype: torch.dtype) -> int:
    """A number of rows as large as a chunk of this type must be."""
    return -(-size // EVEN) * EVEN if dtype is torch.bfloat16 else size


class Slope(NamedTuple):
    """The gradient of a chunk's logits, smoothing's constant part left out, and sums over the chunk."""

    numbers: Tensor  # N V, in the type of the logits
    total: Tensor | None  # N 1, what each row is still to be divided by; None: nothing
    normaliser: Tensor | float
    right: Tensor | float
    """The sum of the labels' logits."""


def softmax_slope(logits: Tensor, labels: Tensor, smoothing: float, totals: Tensor) -> Slope:
    """p − (1 − ε)·onehot of logits `N V`, which may be overwritten; there may be more rows than labels, of zeros, below.

    `totals` `N 1` are ones in the type that sums are taken in; they may be overwritten too.
    """
    if choice.supports_kernels(totals) and logits.dtype is not torch.float16:
        return Slope(logits, totals, *kernels.softmax_loss(logits[: len(labels)], labels, smoothing, totals))
    powers = logits.to(totals.dtype)
    highest = powers.amax(dim=1, keepdim=True)
    right = powers.gather(1, labels[:, None]).sum()
    powers.sub_(highest).exp_()
    total = powers.sum(dim=1, keepdim=True)
    normaliser = (highest + total.log()).sum()
    powers.scatter_add_(1, labels[:, None], (smoothing - 1) * total)
    if powers.dtype == logits.dtype:
        return Slope(powers, total, normaliser, right)
    return Slope(powers.div_(total).to(logits.dtype), None, normaliser, right)


def consistent_slopes(first: Tensor, second: Tensor, labels: Tensor, smoothing: float, kl_weight: float) -> Tensor:
    """The logits `N V` of two passes become their gradients; the sums of normalisers, of labels' logits, of divergences (R-Drop).

    Smoothing's constant part is left out. With x and y the logits of both passes, p and q their probabilities, c the
    difference of their normalisers: KL(p, q) = p · (x − y) − c and KL(q, p) = c − q · (x − y). Their gradients for x are
    p (x − y − c − KL(p, q)) and p − q.
    """
    if choice.supports_kernels() and first.is_cpu and first.dtype in (torch.float32, torch.bfloat16):
        return torch.tensor(kernels.consistent_loss(first, second, labels, smoothing, kl_weight))
    logits = first, second
    right = (first + second).gather(1, labels[:, None]).sum()
    norms = [each.logsumexp(dim=1, keepdim=True) for each in logits]
    p, q = ((each - norm).exp_() for each, norm in zip(logits, norms, strict=True))
    gap, c = first - second, norms[0] - norms[1]
    distances = torch.linalg.vecdot(p, gap)[:, None] - c, c - torch.linalg.vecdot(q, gap)[:, None]
    for out, own, other, sign, distance in zip(logits, (p, q), (q, p), (1, -1), distances, strict=True):
        torch.add(0.5 + kl_weight * (1 - sign * c - distance), gap, alpha=sign * kl_weight, out=out)
        out.mul_(own).sub_(other, alpha=kl_weight)
        out.scatter_add_(1, labels[:, None], out.new_full((len(labels), 1), (smoothing - 1) / 2))
    return torch.stack([(norms[0] + norms[1]).sum(), right, (distances[0] + distances[1]).sum()])
