"""The cost of training: by the paper's accounting, and counted from a model's own shapes. [paper 6.1, Table 2]"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from undivided.config import ModelConfig
from undivided.models.cost import count_products


class Published(NamedTuple):
    """One row of Table 2: BLEU on newstest2014, and operations; None where the paper has none."""

    name: str
    bleu_de: float | None
    bleu_fr: float | None
    cost_de: float | None
    cost_fr: float | None


PAPER: tuple[Published, ...] = (
    Published("ByteNet", 23.75, None, None, None),
    Published("Deep-Att + PosUnk", None, 39.2, None, 1.0e20),
    Published("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Published("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Published("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Published("Deep-Att + PosUnk Ensemble", None, 40.4, None, 8.0e20),
    Published("GNMT + RL Ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Published("ConvS2S Ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Published("Transformer (base)", 27.3, 38.1, 3.3e18, 3.3e18),
    Published("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
)


def training_cost(config: ModelConfig, vocab: int, steps: int, batch_tokens: int, length: int) -> float:
    """Operations of a whole training on sentences of one length, as many tokens a side and step as the batch allows."""
    pairs = max(1, batch_tokens // length)
    return float(steps) * pairs * count_products(config, vocab, length, length).training_flops


def sustained_here(device: torch.device, size: int = 1024, seconds: float = 0.5) -> float:
    """Single-precision operations a second of a large product on this device: what the paper's accounting multiplies with."""
    left, right = torch.rand(2, size, size, device=device)
    best, began = 0.0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        start = time.perf_counter()
        product = left @ right
        float(product[0, 0])  # waits for a GPU
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best
