"""Dropout with cheap random masks that can be a function of (seed, step) alone. [paper 5.4]"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class _Chance(threading.local):
    """Each thread draws its CPU masks from a generator of its own, or from torch's."""

    generator: torch.Generator | None = None


_chance = _Chance()


@contextmanager
def seeded_dropout(seed: int) -> Iterator[None]:
    """Within, the CPU masks of this thread are a function of the seed; afterwards they are torch's again."""
    _chance.generator = torch.Generator().manual_seed(seed % (1 << 63))
    try:
        yield
    finally:
        _chance.generator = None


class Dropout(nn.Module):
    """Zero a share of the elements in training and scale up the rest. [paper 5.4]

    Differs from the paper: on a CPU the share is rounded to n/256, because one random byte an element is far cheaper
    than one random float; the scale is that of the rounded share, so expectations are exact.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.share:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.share)
        return _ByteDropout.apply(x, min(255, round(self.share * 256)))


class _ByteDropout(torch.autograd.Function):
    """Dropout whose mask is made of random bytes: 0 below a threshold, else the scale."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, threshold: int) -> Tensor:
        scale = 256 / (256 - threshold)
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None, generator=_chance.generator)
        # Far cheaper than comparing bytes: whole numbers from -128 on, moved so that those to keep are 1 or more, and cut there.
        mask = words.view(torch.int8)[: x.numel()].view(x.shape).to(x.dtype)
        mask.add_(129 - threshold).clamp_(0, 1).mul_(scale)
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return grads[0] * mask, None
