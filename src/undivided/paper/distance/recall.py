"""A task whose answer lies n tokens back, and the models that learn it, each from its layers of Table 1. [paper 4, Table 1]"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import cache
from typing import NamedTuple, cast

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models import DecoderOnly
from undivided.models.cells import CELLS, Recurrence
from undivided.models.convolutional import HALF, GatedConvolution
from undivided.nn.layers import initialise_linear
from undivided.paper.table1.layers import CONTIGUOUS, CONVOLUTIONAL, RECURRENT, RESTRICTED, SELF_ATTENTION, Kind, Shape

VALUES = 8
"""Kinds of tokens that may be the answer, and of which the noise is: guessing is right once in so many times."""
MARK, QUERY = VALUES, VALUES + 1
LEAD = 8
"""At most so many tokens of noise come first, so that the answer has no fixed place."""

EMBEDDING, HEADS, INNER, DEPTH = 64, 4, 256, 2
"""Sizes of the Transformers; the others are made as large in parameters."""
KERNEL, WINDOW = 3, 64
"""The paper's k and r here."""


class Examples(NamedTuple):
    """Sequences `B T` that end in a query, and the answers `B`."""

    tokens: Tensor
    answers: Tensor


def draw_examples(count: int, distance: int, chance: torch.Generator) -> Examples:
    """Noise with a mark in it; the token behind the mark is the answer, `distance` tokens before the query at the end."""
    lead = int(torch.randint(1, LEAD + 1, (), generator=chance))
    tokens = torch.randint(VALUES, (count, lead + 1 + distance + 1), generator=chance)
    tokens[:, lead], tokens[:, -1] = MARK, QUERY
    return Examples(tokens, tokens[:, -1 - distance].clone())


class RecurrentBody(nn.Module):
    """Layers of cells over embeddings."""

    def __init__(self, cell: str, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(QUERY + 1, EMBEDDING)
        layers = [Recurrence(cell, width if at else EMBEDDING, width) for at in range(DEPTH)]
        for layer in layers:
            layer.initialise()
        self.layers = nn.ModuleList(layers)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return x


class ConvolutionalBody(nn.Module):
    """Gated causal convolutions with residual sums (Gehring et al., 2017); the holes of dilated ones grow k-fold a layer."""

    def __init__(self, width: int, depth: int, *, dilated: bool) -> None:
        super().__init__()
        config = ModelConfig(kind="convolutional", d_model=EMBEDDING, d_hidden=width, kernel_width=KERNEL, dropout=0.0)
        self.embedding, self.join = nn.Embedding(QUERY + 1, EMBEDDING), nn.Linear(EMBEDDING, width)
        layers = [GatedConvolution(config) for _ in range(depth)]
        self.holes = [KERNEL**at if dilated else 1 for at in range(depth)]
        initialise_linear(self.join)
        for layer in layers:
            layer.initialise()
        self.layers = nn.ModuleList(layers)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.join(self.embedding(tokens))
        for layer, hole in zip(cast("Iterable[GatedConvolution]", self.layers), self.holes, strict=True):
            length, past = x.shape[1], nn.functional.pad(x, (0, 0, hole * (KERNEL - 1), 0))
            windows = [past[:, hole * at : hole * at + length] for at in range(KERNEL)]
            x = (layer.gate(torch.cat(windows, dim=-1)) + x) * HALF
        return x


def transformer_body(window: int) -> DecoderOnly:
    """The decoder alone, with sinusoidal positions."""
    sizes = {"d_model": EMBEDDING, "d_ff": INNER, "n_heads": HEADS, "decoder_layers": DEPTH, "window": window}
    return DecoderOnly(ModelConfig(kind="decoder_only", norm="pre", dropout=0.0, **sizes), QUERY + 1)  # type: ignore[arg-type]


class Reader(nn.Module):
    """Reads a sequence and answers from the last state."""

    def __init__(self, body: nn.Module, width: int) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(width, VALUES)
        initialise_linear(self.head)

    def forward(self, tokens: Tensor) -> Tensor:
        """`B T` → logits `B VALUES`."""
        return self.head(self.body(tokens)[:, -1])


class Competitor(NamedTuple):
    """A kind of model: how it is made for some width and depth, and its row of Table 1."""

    name: str
    kind: Kind
    make: Callable[[int, int], Reader]
    """Width and depth, of which the Transformers mind neither and the recurrent ones only the first."""
    reach: Callable[[int], float]
    """How many tokens back the last state can see, by the depth."""


def _recurrent(cell: str) -> Competitor:
    return Competitor(
        cell.upper(), RECURRENT, lambda width, depth: Reader(RecurrentBody(cell, width), width), lambda depth: math.inf
    )


def _convolutional(name: str, kind: Kind, *, dilated: bool) -> Competitor:
    def make(width: int, depth: int) -> Reader:
        return Reader(ConvolutionalBody(width, depth, dilated=dilated), width)

    return Competitor(name, kind, make, lambda depth: KERNEL**depth - 1 if dilated else depth * (KERNEL - 1))


COMPETITORS = {
    **{cell: _recurrent(cell) for cell in CELLS},
    "convolution": _convolutional("convolution", CONTIGUOUS, dilated=False),
    "dilated": _convolutional("dilated convolution", CONVOLUTIONAL, dilated=True),
    "local": Competitor(
        f"Transformer, r = {WINDOW}", RESTRICTED, lambda width, depth: Reader(transformer_body(WINDOW), EMBEDDING),
        lambda depth: DEPTH * (WINDOW // 2),
    ),
    "transformer": Competitor(
        "Transformer", SELF_ATTENTION, lambda width, depth: Reader(transformer_body(0), EMBEDDING), lambda depth: math.inf
    ),
}  # fmt: skip
"""By their names in `--models`."""


def path_length(name: str, distance: int) -> int:
    """The layers or steps between the answer and the query. [paper Table 1]"""
    return int(COMPETITORS[name].kind.path_length(Shape(distance + 1, EMBEDDING, KERNEL, WINDOW)))


def convolution_depth(longest: int) -> int:
    """The layers with which dilated convolutions see as far back as the longest distance."""
    return next(depth for depth in range(1, 40) if COMPETITORS["dilated"].reach(depth) >= longest)


def count_parameters(model: nn.Module) -> int:
    """All of them."""
    return sum(parameter.numel() for parameter in model.parameters())


@cache
def matched_width(name: str, depth: int) -> int:
    """The width with which a model has about as many parameters as the Transformer."""
    if name in ("transformer", "local"):
        return EMBEDDING
    with torch.device("meta"):
        target = count_parameters(COMPETITORS["transformer"].make(0, 0))
        return min(range(8, 257, 4), key=lambda width: abs(count_parameters(COMPETITORS[name].make(width, depth)) - target))


def make_reader(name: str, longest: int, seed: int) -> Reader:
    """A model with fresh weights, a function of the seed."""
    depth = convolution_depth(longest)
    width = matched_width(name, depth)
    torch.manual_seed(seed)
    return COMPETITORS[name].make(width, depth)
