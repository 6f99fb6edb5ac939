"""Sentences of write-ups about the paper that do not hold, each checked by running. [paper 3.1, 3.2, 3.5]"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from undivided.config import ModelConfig
from undivided.models import Transformer
from undivided.nn.attention import attention, attention_hook, causal_mask
from undivided.nn.layers import sinusoids
from undivided.paper.faq.picture import BLUE, ORANGE
from undivided.paper.faq.question import Answer, Question, format_tiny

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, LAYERS = 64, 3


class Checked(NamedTuple):
    """What running says of each sentence."""

    waves: list[float]
    """Wavelengths over the pairs of dimensions, measured by counting zeros of the sines."""
    reads: list[list[float]]
    """How much each decoder layer's cross-attention changes when the output of each encoder layer alone does."""
    rows: float
    """The largest difference from 1 of a sum of weights over the keys of a query."""
    columns: tuple[float, float]
    """The smallest and the largest sum over the queries of a key."""
    future: float
    """The weight on later words, with the mask and every score equal."""


def wavelength(column: Tensor) -> float:
    """Twice the mean distance between zeros of a wave."""
    zeros = (column[1:].sign() != column[:-1].sign()).nonzero().flatten()
    return 2 * float(zeros[-1] - zeros[0]) / (len(zeros) - 1)


def cross_reads() -> list[list[float]]:
    """Add noise behind one encoder layer, but give the decoder what the last layer gave before: nothing changes unless it is read.

    A decoder that read layer i of the encoder in its own layer i would answer.
    """
    torch.manual_seed(1)
    config = ModelConfig(d_model=32, d_ff=64, n_heads=4, encoder_layers=LAYERS, decoder_layers=LAYERS, dropout=0.0)
    model = Transformer(config, 20, 20).eval()
    src, tgt = torch.arange(4, 12)[None], torch.arange(2, 8)[None]

    def cross_weights(noisy: int) -> list[Tensor]:
        seen: list[Tensor] = []
        across = {layer.cross_attention for layer in model.decoder}

        def record(owner: torch.nn.Module, weights: Tensor) -> Tensor:
            if owner in across:
                seen.append(weights)
            return weights

        def disturb(layer: torch.nn.Module, inputs: object, output: Tensor) -> Tensor:
            return output + torch.randn(output.shape, generator=torch.Generator().manual_seed(2))

        handle = model.encoder[noisy].register_forward_hook(disturb) if noisy >= 0 else None
        with torch.inference_mode(), attention_hook(record):
            memory = model.encode(src, None)
            if noisy >= 0 and noisy < LAYERS - 1:
                memory.states.copy_(clean.states)
            model.decode(memory, tgt)
        if handle is not None:
            handle.remove()
        return seen

    with torch.inference_mode():
        clean = model.encode(src, None)
    before = cross_weights(-1)
    return [[float((a - b).abs().max()) for a, b in zip(before, cross_weights(layer), strict=True)] for layer in range(LAYERS)]


def compute(quick: bool) -> Checked:
    """All sentences."""
    table = sinusoids(20_000 if quick else 60_000, WIDTH)
    waves = [wavelength(table[:, i]) for i in range(0, WIDTH - 16, 8)]
    chance = torch.Generator().manual_seed(1)
    query, key = torch.randn(2, 8, 16, generator=chance)
    weights = attention(query, key, key)[1]
    equal = attention(torch.zeros(8, 16), torch.zeros(8, 16), torch.zeros(8, 16), causal_mask(8))[1]
    sums = weights.sum(0)
    return Checked(
        waves,
        cross_reads(),
        float((weights.sum(1) - 1).abs().max()),
        (float(sums.min()), float(sums.max())),
        float(equal.triu(1).sum()),
    )


def summarise(found: Checked) -> Answer:
    """Each encoder layer a row: does any decoder layer read it?"""
    rows = [[f"`{layer + 1}`", *(format_tiny(value) for value in row)] for layer, row in enumerate(found.reads)]
    fields = {
        "shortest": f"{found.waves[0]:.1f}",
        "longest": f"{found.waves[-1]:,.0f}",
        "two_pi": f"{2 * math.pi:.1f}",
        "row_sum": format_tiny(found.rows),
        "least": f"{found.columns[0]:.2f}",
        "most": f"{found.columns[1]:.2f}",
        "future": format_tiny(found.future),
        "layers": str(LAYERS),
    }
    return Answer(fields, rows)


def draw(found: Checked, figure: Figure) -> None:
    """Wavelengths over i, and who reads what."""
    left, right = figure.subplots(1, 2)
    places = [4 * place for place in range(len(found.waves))]
    left.plot(places, found.waves, "o-", color=BLUE, ms=4, label="counted")
    left.plot(places, [2 * math.pi * 10000 ** (2 * i / WIDTH) for i in places], color=ORANGE, ls=":", label="2π · 10000^(2i/d)")
    left.set_yscale("log")
    left.set(title="wavelength", xlabel="i")
    left.legend()
    right.imshow([[value > 1e-5 for value in row] for row in found.reads], cmap="Blues", vmin=0, vmax=1.6)
    right.grid(False)
    names = [f"layer {layer + 1}" for layer in range(LAYERS)]
    right.set_xticks(range(LAYERS), names)
    right.set_yticks(range(LAYERS), names)
    right.set(title="read in encoder-decoder attention", xlabel="decoder", ylabel="encoder")
    right.tick_params(length=0)


WRITE_UPS = Question("write-ups", compute, summarise, draw, (7.2, 2.8))
