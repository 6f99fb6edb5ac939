"""Which elements dropout keeps: one random byte an element, a function of the mask's seed; the same in C and here. [paper 5.4]"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from undivided.core.random import mix_bits

_STEP = np.uint64(0x9E3779B97F4A7C15)
"""Between the numbers that become random words: neighbours differ in many bits."""


@dataclass(frozen=True, slots=True)
class DropoutMask:
    """Which elements stay, and times what: those whose random byte, a function of the seed, reaches the threshold."""

    seed: int
    threshold: int
    scale: float

    @property
    def arguments(self) -> tuple[int, int, float]:
        """As the kernels take them."""
        return self.seed, self.threshold, self.scale


KEEP_ALL = DropoutMask(0, 0, 1.0)
"""Everything stays."""


def mask_factors(mask: DropoutMask, like: Tensor) -> Tensor:
    """The scale where an element stays, 0 elsewhere: the same mask as that of the kernels, by PyTorch."""
    words = mix_bits(np.arange(1, -(-like.numel() // 8) + 1, dtype=np.uint64) * _STEP + np.uint64(mask.seed))
    kept = torch.from_numpy(words.view(np.uint8))[: like.numel()].view(like.shape) >= mask.threshold
    return kept.to(like.dtype) * mask.scale
