"""Why residual connections: signals and gradients through many layers, with them and without. [paper 3.1]"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.config import ModelConfig
from undivided.models.transformer import EncoderLayer
from undivided.nn.layers import initialise_linear
from undivided.paper.faq.picture import BLUE, ORANGE
from undivided.paper.faq.question import Answer, Question, format_magnitude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, WORDS = 32, 6
DEPTHS = (1, 2, 4, 8, 16, 32)


class Through(NamedTuple):
    """Of each depth: (with residuals, without)."""

    gradient: dict[int, tuple[float, float]]
    """The norm of the gradient at the first layer relative to that at the last, of what tells the words apart."""
    alike: dict[int, tuple[float, float]]
    """The mean cosine of the states of different words behind the last layer."""


def make_layers(depth: int) -> list[EncoderLayer]:
    """Fresh encoder layers with the norm before each sub-layer."""
    torch.manual_seed(1)
    layers = [EncoderLayer(ModelConfig(d_model=WIDTH, d_ff=64, n_heads=4, dropout=0.0, norm="pre")) for _ in range(depth)]
    for layer in layers:
        for module in layer.modules():
            if isinstance(module, torch.nn.Linear):
                initialise_linear(module)
    return layers


def pass_layer(layer: EncoderLayer, x: Tensor, residual: bool) -> Tensor:
    """An encoder layer as it is, or with its sub-layers alone: nothing is added to what they give."""
    if residual:
        return layer(x, None)
    x = layer.self_attention(layer.residuals[0].norm(x), None)  # type: ignore[operator]
    return layer.feed_forward(layer.residuals[1].norm(x))  # type: ignore[operator]


def measure(depth: int, residual: bool) -> tuple[float, float]:
    """Gradient at the first layer relative to the last, and how alike the words have become."""
    layers = make_layers(depth)
    x = torch.randn(1, WORDS, WIDTH, generator=torch.Generator().manual_seed(2), requires_grad=True)
    states = [x]
    for layer in layers:
        states.append(pass_layer(layer, states[-1], residual))
    direction = torch.randn(states[-1].shape, generator=torch.Generator().manual_seed(3))
    direction = direction - direction.mean(dim=1, keepdim=True)
    first, last = torch.autograd.grad((states[-1] * direction).sum(), (states[0], states[-1]))
    vectors = F.normalize(states[-1][0].detach(), dim=1)
    cosines = (vectors @ vectors.T)[~torch.eye(WORDS, dtype=torch.bool)]
    return float(first.norm() / last.norm()), float(cosines.mean())


def compute(quick: bool) -> Through:
    """Shallow to deep."""
    found = {depth: (measure(depth, True), measure(depth, False)) for depth in DEPTHS[: 3 if quick else None]}
    gradient = {depth: (with_it[0], without[0]) for depth, (with_it, without) in found.items()}
    return Through(gradient, {depth: (with_it[1], without[1]) for depth, (with_it, without) in found.items()})


def summarise(found: Through) -> Answer:
    """Each depth a row."""
    rows = [
        [f"`{depth}`", *(format_small(value) for value in found.gradient[depth]), *(f"{value:.2f}" for value in found.alike[depth])]
        for depth in found.gradient
    ]
    deepest = max(found.gradient)
    fields = {"deepest": str(deepest)}
    for side, name in enumerate(("with", "without")):
        fields |= {name: format_small(found.gradient[deepest][side]), f"alike_{name}": f"{found.alike[deepest][side]:.2f}"}
    return Answer(fields, rows)


def format_small(value: float) -> str:
    """A magnitude; below a millionth it is rounding, of which only that is said."""
    return "< 1e-06" if value < 1e-6 else format_magnitude(value)


def draw(found: Through, figure: Figure) -> None:
    """Gradient and sameness over depth."""
    left, right = figure.subplots(1, 2)
    depths = list(found.gradient)
    for side, (label, colour) in enumerate((("with residuals", BLUE), ("without", ORANGE))):
        left.plot(depths, [found.gradient[depth][side] for depth in depths], "o-", color=colour, label=label, ms=4)
        right.plot(depths, [found.alike[depth][side] for depth in depths], "o-", color=colour, label=label, ms=4)
    left.set_yscale("log")
    left.set(title="gradient at the first layer")
    right.set(title="cosine of different words", ylim=(-0.3, 1.05))
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(depths, [str(depth) for depth in depths])
        axes.set_xlabel("layers")
    left.legend(loc="lower left")


RESIDUALS = Question("residuals", compute, summarise, draw)
