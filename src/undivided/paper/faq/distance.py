"""What a tanh recurrence does to gradients over distance, and what LSTM, GRU and attention do to that. [paper 4]"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from undivided.config import ModelConfig
from undivided.models.cells import Recurrence
from undivided.nn.attention import MultiHeadAttention
from undivided.nn.layers import initialise_linear
from undivided.paper.faq.picture import BLACK, BLUE, GREEN, ORANGE, YELLOW
from undivided.paper.faq.question import Answer, Question, format_magnitude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 32
OPEN = 4.0
"""A bias that a cell can learn: its gate then keeps σ(4) = 98 % of what the cell holds."""

KEEPING_GATE = 1
"""The forget gate of an LSTM and the update gate of a GRU are both the second of their gates."""

Layer = Callable[[Tensor], Tensor]


def recurrence(kind: str, bias: float | None = None, stretched: float = 1.0) -> Layer:
    """A fresh recurrence; its keeping gate with another bias, its U stretched."""
    layer = Recurrence(kind, WIDTH, WIDTH)
    layer.initialise()
    weights = layer.weights()
    with torch.no_grad():
        weights.h.mul_(stretched)
        if bias is not None:
            weights.x_bias.chunk(layer.cell.gates)[KEEPING_GATE].fill_(bias)
    return layer


def self_attention() -> Layer:
    """One layer of multi-head attention, everybody may see everybody."""
    layer = MultiHeadAttention(ModelConfig(d_model=WIDTH, n_heads=4, dropout=0.0))
    for part in (layer.qkv, layer.output):
        initialise_linear(part)
    return lambda x: layer(x, None)


LAYERS: dict[str, tuple[Callable[[], Layer], str, str]] = {
    "tanh": (lambda: recurrence("rnn"), ORANGE, "-"),
    "tanh, U × 3": (lambda: recurrence("rnn", stretched=3.0), YELLOW, "-"),
    "LSTM": (lambda: recurrence("lstm"), BLUE, "-"),
    "LSTM, gate open": (lambda: recurrence("lstm", OPEN), BLUE, "--"),
    "GRU": (lambda: recurrence("gru"), GREEN, "-"),
    "GRU, gate open": (lambda: recurrence("gru", OPEN), GREEN, "--"),
    "attention": (self_attention, BLACK, "-"),
}
"""Each with its colour and line."""


class Distances(NamedTuple):
    """Of each layer, for each seed: the gradient of the last output by the input so many places before it."""

    longest: int
    gradients: dict[str, list[list[float]]]

    def mean(self, name: str, distance: int) -> float:
        """The geometric mean over the seeds."""
        values = torch.tensor([run[distance] for run in self.gradients[name]], dtype=torch.float64)
        return float(values.clamp(min=1e-300).log().mean().exp())


def gradients(make: Callable[[], Layer], seed: int, longest: int) -> list[float]:
    """Norms at distances 0, 1, 2 … in a sequence of random inputs."""
    torch.manual_seed(seed)
    layer = make()
    x = torch.randn(1, longest + 1, WIDTH, requires_grad=True)
    direction = torch.nn.functional.normalize(torch.randn(WIDTH), dim=0)
    (gradient,) = torch.autograd.grad(layer(x)[0, -1] @ direction, x)
    return gradient[0].norm(dim=-1).flip(0).tolist()


def compute(quick: bool) -> Distances:
    """All layers over the same seeds."""
    longest, seeds = (40, range(2)) if quick else (100, range(8))
    return Distances(longest, {name: [gradients(make, seed, longest) for seed in seeds] for name, (make, _, _) in LAYERS.items()})


def summarise(found: Distances) -> Answer:
    """Each layer a row, at distances from near to far."""
    far = found.longest
    rows = [[f"`{name}`", *(format_magnitude(found.mean(name, at)) for at in (1, far // 10, far // 2, far))] for name in LAYERS]
    fields = {name: format_magnitude(found.mean(key, far) / found.mean(key, 1)) for name, key in (
        ("tanh", "tanh"), ("lstm", "LSTM"), ("gru", "GRU"), ("lstm_open", "LSTM, gate open"), ("gru_open", "GRU, gate open"),
    )}  # fmt: skip
    attention = found.mean("attention", far) / found.mean("attention", 1)
    fields |= {"attention": f"{attention:.1f}", "stretched": format_magnitude(found.mean("tanh, U × 3", far))}
    fields |= {"near": "1", "tenth": str(far // 10), "half": str(far // 2), "far": str(far), "open": f"{OPEN:g}"}
    return Answer(fields, rows)


def draw(found: Distances, figure: Figure) -> None:
    """Gradients over distance, on a scale of powers of ten."""
    axes = figure.subplots()
    for name, (_, colour, style) in LAYERS.items():
        places = range(found.longest + 1)
        seeds = list(zip(*found.gradients[name], strict=True))
        axes.fill_between(places, [min(each) for each in seeds], [max(each) for each in seeds], color=colour, alpha=0.15, lw=0)
        axes.plot(places, [found.mean(name, place) for place in places], style, color=colour, label=name, lw=1.8)
    axes.set_yscale("log")
    axes.set(xlabel="distance from the input to the last output", ylabel="norm of the gradient", xlim=(0, found.longest))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


GRADIENTS = Question("gradients", compute, summarise, draw, (7.0, 3.2))
