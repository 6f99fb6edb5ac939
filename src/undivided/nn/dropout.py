"""Dropout with cheap random masks that can be a function of (seed, step) alone. [paper 5.4]"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.core.random import random_bits
from undivided.nn import backend
from undivided.nn.backend import KEEP_ALL, DropoutMask


class _Generator(threading.local):
    """Each thread draws its CPU masks from a seed of its own, or from torch's generator."""

    seed: int | None = None
    masks = 0
    """How many were drawn from the seed."""


_generator = _Generator()


@contextmanager
def seeded_dropout(seed: int) -> Iterator[None]:
    """Within, the CPU masks of this thread are a function of the seed; afterwards they are torch's again."""
    _generator.seed, _generator.masks = seed, 0
    try:
        yield
    finally:
        _generator.seed = None


def _draw_seed() -> int:
    """The seed of the next mask."""
    if _generator.seed is None:
        return int(torch.empty((), dtype=torch.int64).random_())
    _generator.masks += 1
    return int(random_bits(1, _generator.seed, _generator.masks)[0])


class Dropout(nn.Module):
    """Zero a share of the elements in training and scale up the rest. [paper 5.4]

    Differs from the paper: on a CPU the rate is rounded to n/256, because one random byte an element is far cheaper
    than one random float; the scale is that of the rounded rate, so expectations are exact.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def is_active(self) -> bool:
        """Whether anything is dropped: in training, at a rate above 0."""
        return self.training and self.rate > 0

    def forward(self, x: Tensor) -> Tensor:
        if not self.is_active():
            return x
        # A GPU draws its own masks.
        return backend.dropout(x, self.mask()) if x.device.type == "cpu" else F.dropout(x, self.rate)

    def mask(self) -> DropoutMask:
        """The next mask on a CPU."""
        if not self.is_active():
            return KEEP_ALL
        threshold = min(255, round(self.rate * 256))
        return DropoutMask(_draw_seed(), threshold, 256 / (256 - threshold))
