"""Why a non-linearity between attention layers. [paper 3.3]"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.nn.attention import MultiHeadAttention, attention_hook
from undivided.nn.layers import FeedForward
from undivided.paper.faq.picture import BLUE, GREEN, ORANGE
from undivided.paper.faq.question import Answer, Question, format_spread, format_tiny
from undivided.paper.faq.trial import WORDS, Tagger, accuracy, previous, train_tagger

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 32
VARIANTS = ("relu", "linear", "none")
"""The feed-forward layer as it is, without its non-linearity, and left out."""


def sum_with_previous(words: Tensor) -> Tensor:
    """The number of the word plus that of the word before, modulo the vocabulary: no weighted mean of the two says it."""
    return (words + previous(words)) % WORDS


def remove_non_linearity(model: nn.Module) -> None:
    """The same layers and parameters with (xW₁ + b₁)W₂ + b₂ for Eq. 2."""
    for module in model.modules():
        if isinstance(module, FeedForward):
            module.activation = "identity"  # type: ignore[assignment]


class Nothing(nn.Module):
    """In the place of a feed-forward layer: adds nothing to the residual sum."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def train_variant(variant: str, steps: int, seed: int) -> float:
    """How well one layer learns the sum of two neighbours."""
    torch.manual_seed(seed)
    model = Tagger(ModelConfig(d_model=WIDTH, d_ff=4 * WIDTH, n_heads=2, encoder_layers=1, dropout=0.0))
    if variant == "linear":
        remove_non_linearity(model)
    if variant == "none":
        for layer in model.layers:
            layer.feed_forward = Nothing()
    return accuracy(train_tagger(model, sum_with_previous, steps, seed).model, sum_with_previous, 12)


def non_linear_share(between: nn.Module, seed: int) -> float:
    """With attention weights held fast: how far f(x + z) is from f(x) + f(z) − f(0), relative to f(x + z).

    f is two attention layers with something between them. A linear f, whatever its depth, is one matrix, and gives zero.
    """
    torch.manual_seed(seed)
    config = ModelConfig(d_model=WIDTH, n_heads=4, dropout=0.0)
    layers = [MultiHeadAttention(config) for _ in range(2)]
    x, z = torch.randn(2, 1, 8, WIDTH)
    held: dict[nn.Module, Tensor] = {}

    def hold(owner: nn.Module, weights: Tensor) -> Tensor:
        return held.setdefault(owner, weights)

    def stack(states: Tensor) -> Tensor:
        return layers[1](between(layers[0](states, None)), None)

    with torch.inference_mode(), attention_hook(hold):
        both, one, other, nothing = (stack(each) for each in (x + z, x, z, torch.zeros_like(x)))
    return float((both - one - other + nothing).norm() / both.norm())


class Depth(NamedTuple):
    """Of each variant, for each seed: accuracy, and what two attention layers with it between them cannot be one matrix for."""

    accuracy: dict[str, list[float]]
    unmixed: dict[str, list[float]]


def compute(quick: bool) -> Depth:
    """Teach each variant with several seeds."""
    seeds, steps = (range(1, 2), 30) if quick else (range(1, 4), 400)
    apart = {}
    for variant in VARIANTS:
        found = []
        for seed in seeds:
            torch.manual_seed(100 + seed)
            between = nn.Identity() if variant == "none" else FeedForward(ModelConfig(d_model=WIDTH, d_ff=4 * WIDTH))
            if variant == "linear":
                remove_non_linearity(between)
            found.append(non_linear_share(between, seed))
        apart[variant] = found
    return Depth({variant: [train_variant(variant, steps, seed) for seed in seeds] for variant in VARIANTS}, apart)


def summarise(found: Depth) -> Answer:
    """Each variant a row."""
    rows = [
        [
            f"`{variant}`",
            format_tiny(max(found.unmixed[variant])) if variant != "relu" else format_spread(found.unmixed[variant]),
            format_spread(right),
        ]
        for variant, right in found.accuracy.items()
    ]
    fields = {variant: f"{100 * sum(right) / len(right):.0f}" for variant, right in found.accuracy.items()}
    fields |= {"seeds": str(len(found.accuracy["relu"])), "words": str(WORDS), "chance": f"{100 / WORDS:.0f}"}
    fields["bent"] = f"{100 * sum(found.unmixed['relu']) / len(found.unmixed['relu']):.0f}"
    return Answer(fields, rows)


def draw(found: Depth, figure: Figure) -> None:
    """Both measures, every seed a dot."""
    left, right = figure.subplots(1, 2)
    plot_dots(left, found.unmixed)
    left.set_title("two attention layers: share no matrix can be")
    plot_dots(right, found.accuracy)
    right.axhline(1 / WORDS, color="#888", ls=":", lw=1)
    right.text(0.5, 1 / WORDS + 0.015, "chance", ha="center", fontsize=7, color="#555")
    right.set(title="right: sum of two words, after training", ylim=(0, 1.05))


def plot_dots(axes: Axes, values: dict[str, list[float]]) -> None:
    """A bar for the mean and a dot for each seed."""
    labels = {"relu": "feed-forward\nwith ReLU", "linear": "feed-forward\nwithout ReLU", "none": "no\nfeed-forward"}
    for place, (variant, colour) in enumerate(zip(VARIANTS, (BLUE, ORANGE, GREEN), strict=True)):
        each = values[variant]
        axes.bar(place, sum(each) / len(each), color=colour, width=0.6, alpha=0.75)
        axes.plot([place] * len(each), each, "o", color="black", ms=3)
        if max(each) < 1e-5:
            axes.text(place, 0.01, "0", ha="center", va="bottom")
    axes.set_xticks(range(len(VARIANTS)), [labels[variant] for variant in VARIANTS], fontsize=8)


NON_LINEARITY = Question("non-linearity", compute, summarise, draw)
