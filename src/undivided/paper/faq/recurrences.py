"""What a repeated step does to its state and gradient: tanh saturates, ReLU diverges, singular values decide. [paper 4]"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from undivided.models.cells import CELLS, Recurrence
from undivided.paper.faq.picture import BLACK, BLUE, GREEN, ORANGE
from undivided.paper.faq.question import Answer, Question, format_magnitude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, STEPS = 64, 100
SCALES = (0.9, 1.0, 1.1)
SHOWN = (1, 10, 50, 100)


def orthogonal(scale: float) -> Tensor:
    """A matrix whose singular values are all `scale`."""
    return scale * nn.init.orthogonal_(torch.empty(WIDTH, WIDTH), generator=torch.Generator().manual_seed(1))


class Growth(NamedTuple):
    """Over the steps of a recurrence whose U stretches by 1.8: the size of the state, and the slope of the non-linearity."""

    size: dict[str, list[float]]
    slope: dict[str, list[float]]
    saturated: float
    """The share of tanh units beyond 0.99 at the end, with U that stretches by 5."""


def grow(kind: str, scale: float) -> tuple[list[float], list[float]]:
    """Root mean square of the state and mean slope, at every step, with random inputs."""
    chance, u = torch.Generator().manual_seed(2), orthogonal(scale)
    sizes, slopes, h = [], [], torch.zeros(WIDTH)
    for _ in range(STEPS):
        before = 0.5 * torch.randn(WIDTH, generator=chance) + u @ h
        h = torch.tanh(before) if kind == "tanh" else torch.relu(before)
        slope = 1 - h.square() if kind == "tanh" else (before > 0).float()
        sizes.append(float(h.square().mean().sqrt()))
        slopes.append(float(slope.mean()))
    return sizes, slopes


def compute_growth(quick: bool) -> Growth:
    """tanh beside ReLU."""
    found = {kind: grow(kind, 1.8) for kind in ("tanh", "relu")}
    h, u, chance = torch.zeros(WIDTH), orthogonal(5.0), torch.Generator().manual_seed(3)
    for _ in range(STEPS):
        h = torch.tanh(torch.randn(WIDTH, generator=chance) + u @ h)
    return Growth(
        {kind: run[0] for kind, run in found.items()},
        {kind: run[1] for kind, run in found.items()},
        float((h.abs() > 0.99).float().mean()),
    )


def summarise_growth(found: Growth) -> Answer:
    """Each step shown is a row."""
    rows = [
        [f"`{at}`", *(format_magnitude(part[kind][at - 1]) for kind in ("tanh", "relu") for part in (found.size, found.slope))]
        for at in SHOWN
    ]
    fields = {
        "tanh": f"{found.size['tanh'][-1]:.2f}",
        "slope": f"{found.slope['tanh'][-1]:.2f}",
        "relu": format_magnitude(found.size["relu"][-1]),
        "saturated": f"{100 * found.saturated:.0f}",
        "steps": str(STEPS),
    }
    return Answer(fields, rows)


def draw_growth(found: Growth, figure: Figure) -> None:
    """Sizes on a logarithmic scale, and slopes."""
    left, right = figure.subplots(1, 2)
    for kind, label, colour in (("tanh", "tanh", BLUE), ("relu", "ReLU", ORANGE)):
        left.plot(range(1, STEPS + 1), found.size[kind], color=colour, label=label, lw=1.8)
        right.plot(range(1, STEPS + 1), found.slope[kind], color=colour, label=label, lw=1.8)
    left.set_yscale("log")
    left.set(title="size of the state", xlabel="steps")
    right.set(title="mean slope of the non-linearity", xlabel="steps", ylim=(0, 1))
    left.legend()


class Spectrum(NamedTuple):
    """Of each scale of U: the norm of the gradient over distance, without and with tanh, and after clipping."""

    linear: dict[float, list[float]]
    tanh: dict[float, list[float]]
    clipped: dict[float, float]
    """The norm of the gradient of U over 100 steps, as the optimizer gets it after clipping to 1."""
    whole: dict[float, float]
    """And before."""


def over_distance(scale: float, bend: bool) -> list[float]:
    """The norm of the gradient of the last state by the state so many steps before, in one direction."""
    u, chance = orthogonal(scale), torch.Generator().manual_seed(4)
    states = [0.1 * torch.randn(WIDTH, generator=chance)]
    states[0].requires_grad_()
    for _ in range(STEPS):
        h = u @ states[-1]
        states.append(torch.tanh(h) if bend else h)
    direction = torch.nn.functional.normalize(torch.randn(WIDTH, generator=chance), dim=0)
    gradients = torch.autograd.grad(states[-1] @ direction, states)
    return [float(each.norm()) for each in reversed(gradients)]


def clipped_norm(scale: float) -> tuple[float, float]:
    """The norm of U's gradient before and after clipping to 1, as training does it. [paper 5.3]"""
    u = nn.Parameter(orthogonal(scale))
    h = torch.ones(WIDTH) / WIDTH**0.5
    for _ in range(STEPS):
        h = u @ h
    h.square().sum().backward()
    whole = float(nn.utils.clip_grad_norm_([u], 1.0))
    assert u.grad is not None
    return whole, float(u.grad.norm())


def compute_spectrum(quick: bool) -> Spectrum:
    """Below, at and above one."""
    norms = {scale: clipped_norm(scale) for scale in SCALES}
    return Spectrum(
        {scale: over_distance(scale, False) for scale in SCALES},
        {scale: over_distance(scale, True) for scale in SCALES},
        {scale: after for scale, (_, after) in norms.items()},
        {scale: before for scale, (before, _) in norms.items()},
    )


def summarise_spectrum(found: Spectrum) -> Answer:
    """Each scale a row."""
    rows = [
        [
            f"`{scale}`",
            *(format_magnitude(found.linear[scale][at]) for at in SHOWN[1:]),
            format_magnitude(found.tanh[scale][STEPS]),
            format_magnitude(found.whole[scale]),
            format_magnitude(found.clipped[scale]),
        ]
        for scale in SCALES
    ]
    fields = {
        f"linear_{name}": format_magnitude(found.linear[scale][STEPS])
        for name, scale in zip(("low", "one", "high"), SCALES, strict=True)
    }
    fields |= {"power": format_magnitude(SCALES[-1] ** STEPS), "steps": str(STEPS), "low": str(SCALES[0]), "high": str(SCALES[-1])}
    fields |= {
        "whole": format_magnitude(found.whole[1.1]),
        "clipped": f"{found.clipped[1.1]:.2f}",
        "left": format_magnitude(found.clipped[0.9]),
    }
    return Answer(fields, rows)


def draw_spectrum(found: Spectrum, figure: Figure) -> None:
    """Gradients over distance, straight and through tanh."""
    left, right = figure.subplots(1, 2, sharey=True)
    for axes, part, title in ((left, found.linear, "h' = Uh"), (right, found.tanh, "h' = tanh(Uh)")):
        for scale, colour in zip(SCALES, (BLUE, BLACK, ORANGE), strict=True):
            axes.plot(range(STEPS + 1), part[scale], color=colour, label=f"singular values {scale}", lw=1.8)
        axes.axhline(1, color=GREEN, lw=0.8, ls=":")
        axes.set_yscale("log")
        axes.set(title=title, xlabel="distance")
    left.set_ylabel("norm of the gradient")
    left.legend()


class Counted(NamedTuple):
    """Parameters of a layer of width d: counted, and by the formula."""

    counted: dict[str, int]
    formula: dict[str, int]


FORMULAS = {"rnn": "2d² + 2d", "gru": "3 (2d² + 2d)", "lstm": "4 (2d² + 2d)", "attention": "4d²", "feed-forward": "8d² + 5d"}


def compute_parameters(quick: bool) -> Counted:
    """One layer of each at the paper's width."""
    from undivided.config import ModelConfig
    from undivided.nn.attention import MultiHeadAttention
    from undivided.nn.layers import FeedForward

    d = 512
    config = ModelConfig(d_model=d, d_ff=4 * d, n_heads=8, attention_bias=False)
    layers: dict[str, nn.Module] = {kind: Recurrence(kind, d, d) for kind in ("rnn", "gru", "lstm")}
    layers |= {"attention": MultiHeadAttention(config), "feed-forward": FeedForward(config)}
    counted = {name: sum(part.numel() for part in layer.parameters()) for name, layer in layers.items()}
    formula = {kind: CELLS[kind].gates * (2 * d * d + 2 * d) for kind in ("rnn", "gru", "lstm")}
    return Counted(counted, formula | {"attention": 4 * d * d, "feed-forward": 8 * d * d + 5 * d})


def summarise_parameters(found: Counted) -> Answer:
    """Each layer a row."""
    rows = [
        [f"`{name}`", FORMULAS[name], f"{number:,}", f"{number / found.counted['rnn']:.2f}"]
        for name, number in found.counted.items()
    ]
    ratios = {name: number / found.counted["rnn"] for name, number in found.counted.items()}
    fields = {"lstm": f"{ratios['lstm']:.0f}", "gru": f"{ratios['gru']:.0f}", "attention": f"{ratios['attention']:.0f}"}
    layer = found.counted["attention"] + found.counted["feed-forward"]
    return Answer(fields | {"layer": f"{layer / found.counted['lstm']:.2f}", "width": "512"}, rows)


def draw_parameters(found: Counted, figure: Figure) -> None:
    """Bars of millions."""
    axes = figure.subplots()
    names = list(found.counted)
    axes.barh(names[::-1], [found.counted[name] / 1e6 for name in names[::-1]], color=[ORANGE, ORANGE, BLUE, BLUE, BLUE])
    axes.set(xlabel="million parameters, d = 512")


SATURATION = Question("saturation", compute_growth, summarise_growth, draw_growth)
SINGULAR_VALUES = Question("singular-values", compute_spectrum, summarise_spectrum, draw_spectrum)
PARAMETERS = Question("parameters", compute_parameters, summarise_parameters, draw_parameters, (5.6, 2.2))
