"""Why LayerNorm and not BatchNorm for sequences. [paper 3.1]"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.transformer import EncoderLayer
from undivided.nn.attention import causal_mask, padding_mask
from undivided.nn.layers import initialise_linear
from undivided.paper.faq.picture import BLUE, ORANGE, plot_band
from undivided.paper.faq.question import Answer, Question, format_spread, format_tiny

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, LENGTH = 32, 8
SIZES = (2, 4, 8, 16, 32)
KINDS = ("layer", "batch")


class BatchNorm(nn.Module):
    """Every feature to mean 0 and variance 1 over all tokens of a batch, as BatchNorm does in training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x.flatten(0, 1)).view_as(x)


def layer(kind: str, seed: int) -> EncoderLayer:
    """A layer of the Transformer with either norm, and otherwise the same weights."""
    torch.manual_seed(seed)
    made = EncoderLayer(ModelConfig(d_model=WIDTH, d_ff=64, n_heads=2, dropout=0.0))
    for module in made.modules():
        if isinstance(module, nn.Linear):
            initialise_linear(module)
    if kind == "batch":
        for residual in made.residuals:
            residual.norm = BatchNorm(WIDTH)
    return made


class Changes(NamedTuple):
    """By how much the states of one sentence change, relative to them, though the sentence itself does not: over seeds."""

    companions: list[float]
    """Other sentences stand beside it in the batch."""
    padding: list[float]
    """Its batch is padded to twice the length, under a mask."""
    future: list[float]
    """Under a causal mask, later words of all sentences are others: the state of the first word."""


def relative(first: Tensor, second: Tensor) -> float:
    """‖a − b‖ / ‖a‖."""
    return float((first - second).norm() / first.norm())


def companions(kind: str, seed: int, size: int) -> float:
    """How much one sentence changes as the other sentences of its batch do."""
    chance, made = torch.Generator().manual_seed(seed), layer(kind, seed)
    one = torch.randn(1, LENGTH, WIDTH, generator=chance)
    batches = [torch.cat([one, torch.randn(size - 1, LENGTH, WIDTH, generator=chance)]) for _ in range(2)]
    with torch.no_grad():
        return relative(*(made(batch, None)[0] for batch in batches))


def padding(kind: str, seed: int, size: int) -> float:
    """How much a sentence changes as zeros that nobody attends to are put behind it."""
    chance, made = torch.Generator().manual_seed(seed), layer(kind, seed)
    batch = torch.randn(size, LENGTH, WIDTH, generator=chance)
    longer = torch.cat([batch, torch.zeros_like(batch)], dim=1)
    real = torch.arange(2 * LENGTH).expand(size, -1) < LENGTH
    with torch.no_grad():
        return relative(made(batch, None)[0], made(longer, padding_mask(real))[0, :LENGTH])


def future(kind: str, seed: int, size: int) -> float:
    """How much the first word hears of those after it, though the mask hides them."""
    chance, made = torch.Generator().manual_seed(seed), layer(kind, seed)
    batch = torch.randn(size, LENGTH, WIDTH, generator=chance)
    other = batch.clone()
    other[:, 1:] = torch.randn(size, LENGTH - 1, WIDTH, generator=chance)
    with torch.no_grad():
        return relative(*(made(each, causal_mask(LENGTH))[0, 0] for each in (batch, other)))


class Norms(NamedTuple):
    """Of each kind of norm: changes in batches of 8, and by the size of the batch, for each seed."""

    changes: dict[str, Changes]
    by_size: dict[str, list[list[float]]]


def compute(quick: bool) -> Norms:
    """Both norms under the same three trials."""
    seeds = range(2 if quick else 10)
    changes = {
        kind: Changes(*([trial(kind, seed, 8) for seed in seeds] for trial in (companions, padding, future))) for kind in KINDS
    }
    return Norms(changes, {kind: [[companions(kind, seed, size) for size in SIZES] for seed in seeds] for kind in KINDS})


def summarise(found: Norms) -> Answer:
    """Each trial a row."""
    rows = []
    for name in Changes._fields:
        calm, moved = (getattr(found.changes[kind], name) for kind in KINDS)
        rows.append([f"`{name}`", format_tiny(max(calm)), format_spread(moved)])
    fields = {name: f"{100 * sum(values) / len(values):.0f}" for name, values in found.changes["batch"]._asdict().items()}
    fields["seeds"] = str(len(found.by_size["batch"]))
    return Answer(fields, rows)


def draw(found: Norms, figure: Figure) -> None:
    """The three trials, and the size of the batch."""
    left, right = figure.subplots(1, 2)
    labels = ["other sentences\nin the batch", "more padding", "later words,\nmasked"]
    for side, (kind, colour) in enumerate((("layer", BLUE), ("batch", ORANGE))):
        means = [sum(values) / len(values) for values in found.changes[kind]]
        places = [place + 0.38 * side - 0.19 for place in range(len(labels))]
        left.bar(places, means, width=0.36, color=colour)
        for place, mean in zip(places, means, strict=True):
            left.text(place, mean, f"{mean:.2f}" if mean > 1e-5 else "0", ha="center", va="bottom", fontsize=8)
        plot_band(right, SIZES, found.by_size[kind], colour, f"{kind.capitalize()}Norm")
    left.set_xticks(range(len(labels)), labels, fontsize=8)
    top = 1.15 * max(sum(values) / len(values) for values in found.changes["batch"])
    left.set(title="change of a sentence's states by …", ylabel="relative to the states", ylim=(0, top))
    right.set_xscale("log", base=2)
    right.set_xticks(SIZES, [str(size) for size in SIZES])
    right.set(title="… by other sentences in the batch", xlabel="sentences in the batch", ylim=(-0.02, None))
    right.legend()


LAYER_NORM = Question("layer-norm", compute, summarise, draw)
