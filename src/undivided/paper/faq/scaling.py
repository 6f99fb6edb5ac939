"""Why divide scores by √d_k, and why multiply embeddings by √d_model. [paper 3.2.1, 3.4]"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.config import ModelConfig
from undivided.models import make_model
from undivided.nn.attention import attention
from undivided.nn.layers import Embedding, sinusoids
from undivided.paper.faq.picture import BLUE, GREEN, ORANGE
from undivided.paper.faq.question import Answer, Question, format_magnitude

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEYS = 32


class Scores(NamedTuple):
    """Of one width: (as dot products are, divided by √d_k)."""

    d_k: int
    variance: tuple[float, float]
    largest: tuple[float, float]
    """The largest weight of a softmax over 32 keys."""
    gradient: tuple[float, float]
    """How strongly the softmax answers to its scores: the norm of its Jacobian."""


def scores(d_k: int, draws: int) -> Scores:
    """Random queries and keys of variance 1, through attention as it is and with the division undone."""
    chance = torch.Generator().manual_seed(d_k)
    query, key = torch.randn(draws, 1, d_k, generator=chance), torch.randn(draws, KEYS, d_k, generator=chance)
    dots = query @ key.transpose(1, 2)
    weights = [attention(query * undone, key, key)[1] for undone in (math.sqrt(d_k), 1.0)]
    return Scores(
        d_k,
        (float(dots.var()), float((dots / math.sqrt(d_k)).var())),
        (float(weights[0].amax(-1).mean()), float(weights[1].amax(-1).mean())),
        (float(softmax_gradient(weights[0]).mean()), float(softmax_gradient(weights[1]).mean())),
    )


def softmax_gradient(weights: Tensor) -> Tensor:
    """The Frobenius norm of ∂softmax/∂scores = diag(p) − ppᵀ, from p along the last dimension."""
    square, cube = weights.square().sum(-1), weights.pow(3).sum(-1)
    return (square - 2 * cube + square.square()).clamp(min=0).sqrt()


def compute_scores(quick: bool) -> list[Scores]:
    """From narrow to wide heads."""
    return [scores(d_k, 100 if quick else 1000) for d_k in (4, 16, 64, 256, 1024)]


def summarise_scores(found: list[Scores]) -> Answer:
    """Each width a row."""
    rows = [
        [
            str(each.d_k),
            *(f"{value:.2f}" for value in (*each.variance, *each.largest)),
            *(format_magnitude(value) for value in each.gradient),
        ]
        for each in found
    ]
    last = found[-1]
    fields = {
        "d_k": str(last.d_k),
        "variance": f"{last.variance[0]:.0f}",
        "variance_divided": f"{last.variance[1]:.2f}",
        "largest": f"{last.largest[0]:.2f}",
        "largest_divided": f"{last.largest[1]:.2f}",
        "weaker": f"{found[0].gradient[0] / last.gradient[0]:.1f}",
        "keys": str(KEYS),
    }
    return Answer(fields, rows)


def draw_scores(found: list[Scores], figure: Figure) -> None:
    """Three panels over d_k."""
    widths = [each.d_k for each in found]
    titles = ("variance of the scores", "largest softmax weight", "gradient of the softmax")
    for axes, title, name in zip(figure.subplots(1, 3), titles, ("variance", "largest", "gradient"), strict=True):
        for side, (label, colour) in enumerate((("q·k", ORANGE), ("q·k / √d_k", BLUE))):
            axes.plot(widths, [getattr(each, name)[side] for each in found], "o-", color=colour, label=label, ms=4)
        axes.set_xscale("log", base=2)
        if name == "variance":
            axes.set_yscale("log", base=2)
            axes.legend()
        else:
            axes.set_ylim(0)
        axes.set(title=title, xlabel="d_k")
        axes.set_xticks(widths, [str(width) for width in widths])


class Norms(NamedTuple):
    """Mean norms of vectors at one width, and how alike two words at one place are: (not multiplied, × √d_model)."""

    d_model: int
    bare: float
    scaled: float
    position: float
    alike: tuple[float, float]


PLACES, VOCABULARY = 50, 200


def norms(d_model: int) -> Norms:
    """Of embeddings as a fresh model has them, beside the sinusoids of the first places."""
    torch.manual_seed(d_model)
    config = ModelConfig(d_model=d_model, d_ff=1, n_heads=1, d_k=1, d_v=1, encoder_layers=1, decoder_layers=1, dropout=0.0)
    weight = make_model(config, VOCABULARY, VOCABULARY).source_embedding.weight
    words, places = torch.arange(PLACES), sinusoids(PLACES, d_model)
    with torch.inference_mode():
        scaled, bare = Embedding(config, weight, None)(words), weight[words]
        alike = [F.cosine_similarity(each + places, each.roll(1, 0) + places, dim=-1).mean() for each in (bare, scaled)]
    word, multiplied, position = (float(each.norm(dim=-1).mean()) for each in (bare, scaled, places))
    return Norms(d_model, word, multiplied, position, (float(alike[0]), float(alike[1])))


def compute_norms(quick: bool) -> list[Norms]:
    """From narrow to wide models."""
    return [norms(d_model) for d_model in (64, 128, 256, 512, 1024)]


def summarise_norms(found: list[Norms]) -> Answer:
    """Each width a row; in the text, the paper's base."""
    rows = [
        [str(each.d_model), *(f"{value:.2f}" for value in (each.bare, each.scaled, each.position, *each.alike))] for each in found
    ]
    base = next(each for each in found if each.d_model == 512)
    fields = {
        "d_model": str(base.d_model),
        "bare": f"{base.bare:.2f}",
        "scaled": f"{base.scaled:.1f}",
        "position": f"{base.position:.1f}",
        "alike": f"{base.alike[0]:.2f}",
        "alike_scaled": f"{base.alike[1]:.2f}",
    }
    return Answer(fields, rows)


def draw_norms(found: list[Norms], figure: Figure) -> None:
    """Norms, and how alike different words look."""
    left, right = figure.subplots(1, 2)
    widths = [each.d_model for each in found]
    for name, label, colour in (
        ("scaled", "word × √d_model", BLUE), ("position", "position", GREEN), ("bare", "word, not multiplied", ORANGE),
    ):  # fmt: skip
        left.plot(widths, [getattr(each, name) for each in found], "o-", color=colour, label=label, ms=4)
    left.set_yscale("log", base=2)
    left.set(title="length of the vectors", ylim=(0.7, 110))
    left.legend(loc="upper left")
    for side, (label, colour) in enumerate((("not multiplied", ORANGE), ("× √d_model", BLUE))):
        right.plot(widths, [each.alike[side] for each in found], "o-", color=colour, label=label, ms=4)
    right.set(title="cosine of two different words at one place", ylim=(0, 1.05))
    right.legend(loc="center right")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(widths, [str(width) for width in widths])
        axes.set_xlabel("d_model")


SQRT_DK = Question("sqrt-dk", compute_scores, summarise_scores, draw_scores)
SQRT_D_MODEL = Question("sqrt-d-model", compute_norms, summarise_norms, draw_norms)
