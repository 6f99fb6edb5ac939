"""The cost of training: by the paper's accounting, and counted from a model's own shapes. [paper 6.1, Table 2]"""

from __future__ import annotations

import time
from typing import NamedTuple

import torch

from undivided.config import ModelConfig

SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""Single-precision operations a second that the paper assumes of a GPU (its footnote to 6.1)."""


def paper_cost(hours: float, gpus: int, sustained: float) -> float:
    """Training time × number of GPUs × sustained operations a second of each. [paper 6.1]"""
    return hours * 3600 * gpus * sustained


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

PAPER_TRAINING = {"base": (12.0, 100_000), "big": (84.0, 300_000)}
"""Hours on eight P100 and steps: 12 hours, and 3.5 days. [paper 5.2]"""


class Work(NamedTuple):
    """Products of a forward pass in pairs of a multiplication and an addition, of one batch."""

    projections: int
    """With weights: attention projections and feed-forward layers."""
    attention: int
    """Between positions: scores, and sums of values."""
    output: int
    """The projection to the vocabulary."""

    @property
    def forward(self) -> int:
        """Of the whole pass."""
        return self.projections + self.attention + self.output

    @property
    def training_flops(self) -> int:
        """Operations of forward and backward: a multiplication and an addition each, and twice as many backward."""
        return 3 * 2 * self.forward


def work(config: ModelConfig, vocab: int, sentences: int, src: int, tgt: int) -> Work:
    """The products of a Transformer for so many pairs of `src` and `tgt` tokens. [paper 3]"""
    d, keys, values = config.d_model, config.n_heads * config.key_width, config.n_heads * config.value_width
    gates = 2 if config.activation == "swiglu" else 1
    feed = (gates + 1) * d * config.d_ff
    ours = d * (2 * keys + values) + values * d
    source = config.encoder_layers * (ours + feed) + config.decoder_layers * d * (keys + values)
    target = config.decoder_layers * (ours + d * keys + values * d + feed)
    scores = config.encoder_layers * src * src + config.decoder_layers * (tgt * tgt + tgt * src)
    joined = 2 * d * d * (src + tgt) if config.join_positions == "concatenate" else 0
    return Work(
        sentences * (src * source + tgt * target + joined), sentences * scores * (keys + values), sentences * tgt * d * vocab
    )


def training_cost(config: ModelConfig, vocab: int, steps: int, batch_tokens: int, length: int) -> float:
    """Operations of a whole training on sentences of one length, as many tokens a side and step as the batch allows."""
    return float(steps) * work(config, vocab, max(1, batch_tokens // length), length, length).training_flops


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
