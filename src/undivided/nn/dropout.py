"""Dropout with cheap random masks that can be a function of (seed, step) alone. [paper 5.4]"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.core.random import mix_bits, random_bits
from undivided.nn.backend import kernels

_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Between the numbers that become random words: neighbours differ in many bits."""


class _Chance(threading.local):
    """Each thread draws its CPU masks from a seed of its own, or from torch's generator."""

    seed: int | None = None
    masks = 0
    """So many were drawn from the seed."""


_chance = _Chance()


@contextmanager
def seeded_dropout(seed: int) -> Iterator[None]:
    """Within, the CPU masks of this thread are a function of the seed; afterwards they are torch's again."""
    _chance.seed, _chance.masks = seed, 0
    try:
        yield
    finally:
        _chance.seed = None


def _drawn() -> int:
    """The seed of the next mask."""
    if _chance.seed is None:
        return int(torch.empty((), dtype=torch.int64).random_())
    _chance.masks += 1
    return int(random_bits(1, _chance.seed, _chance.masks)[0])


class Dropout(nn.Module):
    """Zero a share of the elements in training and scale up the rest. [paper 5.4]

    Differs from the paper: on a CPU the share is rounded to n/256, because one random byte an element is far cheaper
    than one random float; the scale is that of the rounded share, so expectations are exact.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or not self.rate:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        mask = self.mask()
        return kernels.drop(x, mask) if kernels.serve(x) else x * as_factors(mask, x)

    def mask(self) -> kernels.DropoutMask:
        """The next mask on a CPU."""
        if not self.training or not self.rate:
            return kernels.KEEP_ALL
        threshold = min(255, round(self.rate * 256))
        return kernels.DropoutMask(_drawn(), threshold, 256 / (256 - threshold))


def as_factors(mask: kernels.DropoutMask, like: Tensor) -> Tensor:
    """The scale where an element stays, 0 elsewhere: the same mask as that of the kernels, by PyTorch."""
    words = mix_bits(np.arange(1, -(-like.numel() // 8) + 1, dtype=np.uint64) * _STEP + np.uint64(mask.seed))
    kept = torch.from_numpy(words.view(np.uint8))[: like.numel()].view(like.shape) >= mask.threshold
    return kept.to(like.dtype) * mask.scale
