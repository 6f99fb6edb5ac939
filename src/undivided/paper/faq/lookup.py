"""An embedding is a linear layer on one-hot vectors that nobody multiplies; and what a long context costs. [paper 3.4, 4]"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F

from undivided.config import ModelConfig
from undivided.nn.attention import attention
from undivided.nn.layers import Embedding
from undivided.paper.faq.picture import BLUE, GREEN, ORANGE
from undivided.paper.faq.question import Answer, Question, format_tiny

if TYPE_CHECKING:
    from matplotlib.figure import Figure

D_MODEL, LENGTH = 512, 25
VOCABULARIES = (1_000, 8_000, 37_000)


class Lookup(NamedTuple):
    """A sentence of 25 tokens by both ways."""

    difference: float
    gradients: float
    """The largest difference of the gradients of the table."""
    rows: int
    """Rows of the table that have a gradient."""
    products: dict[int, int]
    """Multiplications of the linear layer, by the size of the vocabulary."""


def compute_lookup(quick: bool) -> Lookup:
    """The embedding of the model beside the product with one-hot vectors."""
    vocabulary = VOCABULARIES[0]
    weight = torch.nn.Parameter(torch.randn(vocabulary, D_MODEL, generator=torch.Generator().manual_seed(1)))
    tokens = torch.randint(vocabulary, (LENGTH,), generator=torch.Generator().manual_seed(2))
    embedding = Embedding(ModelConfig(d_model=D_MODEL, dropout=0.0, scale_embeddings=False), weight, None)
    looked_up = embedding(tokens[None])[0]
    multiplied = F.one_hot(tokens, vocabulary).float() @ weight
    direction = torch.randn(LENGTH, D_MODEL, generator=torch.Generator().manual_seed(3))
    one, other = (torch.autograd.grad((each * direction).sum(), weight)[0] for each in (looked_up, multiplied))
    return Lookup(
        float((looked_up - multiplied).detach().abs().max()),
        float((one - other).abs().max()),
        int((one != 0).any(dim=1).sum()),
        {size: LENGTH * size * D_MODEL for size in VOCABULARIES},
    )


def summarise_lookup(found: Lookup) -> Answer:
    """Each vocabulary a row."""
    rows = [
        [f"`{size}`", f"{products / 1e6:,.0f}", "0", f"{LENGTH * size * 4 / 1e6:.2f}", f"{LENGTH * 8 / 1e6:.4f}"]
        for size, products in found.products.items()
    ]
    fields = {"difference": format_tiny(found.difference), "gradients": format_tiny(found.gradients), "length": str(LENGTH)}
    fields |= {"products": f"{found.products[VOCABULARIES[-1]] / 1e6:,.0f}", "vocabulary": f"{VOCABULARIES[-1]:,}"}
    return Answer(fields | {"touched": str(found.rows), "small": f"{VOCABULARIES[0]:,}"}, rows)


def draw_lookup(found: Lookup, figure: Figure) -> None:
    """A one-hot vector chooses a row."""
    left, right = figure.subplots(1, 2, width_ratios=(1.4, 1))
    small = torch.randn(8, 5, generator=torch.Generator().manual_seed(1))
    chosen = F.one_hot(torch.tensor([2]), 8).float()
    canvas = torch.full((8, 8), math.nan)
    canvas[:, 3:] = small
    left.imshow(canvas.tolist(), cmap="RdBu", vmin=-3, vmax=3)
    for place in range(8):
        left.text(
            0.4, place, f"{int(chosen[0, place])}", ha="center", va="center", fontsize=9, color=BLUE if place == 2 else "#999"
        )
    left.annotate("", (2.6, 2), (0.9, 2), arrowprops={"arrowstyle": "->", "color": BLUE})
    left.set_xticks([0.4, 5], ["one-hot", "table"])
    left.set_yticks(range(8), [f"id {place}" for place in range(8)], fontsize=7)
    left.grid(False)
    left.tick_params(length=0)
    right.bar([f"{size:,}" for size in found.products], [products / 1e6 for products in found.products.values()], color=ORANGE)
    right.set(title="million multiplications, 25 tokens", xlabel="vocabulary")


LENGTHS = (128, 512, 2048, 8192, 32768)
HEADS = 8


class Context(NamedTuple):
    """Of each length: megabytes of one layer in float32."""

    weights: dict[int, float]
    states: dict[int, float]
    longest: dict[int, int]
    """The longest context whose weights of one layer fit into so many gigabytes."""


def compute_context(quick: bool) -> Context:
    """Shapes of Eq. 1, without the memory: tensors of PyTorch's device `meta`."""
    weights, states = {}, {}
    for length in LENGTHS:
        x = torch.empty(1, HEADS, length, D_MODEL // HEADS, device="meta")
        output, seen = attention(x, x, x)
        weights[length], states[length] = (each.numel() * each.element_size() / 1e6 for each in (seen, output))
    longest = {size: math.isqrt(size * 10**9 // (4 * HEADS)) for size in (1, 8, 80)}
    return Context(weights, states, longest)


def summarise_context(found: Context) -> Answer:
    """Each length a row."""
    rows = [
        [f"`{n}`", f"{found.states[n]:,.2f}", f"{found.weights[n]:,.1f}", f"{found.weights[n] / found.states[n]:.1f}"]
        for n in LENGTHS
    ]
    fields = {f"longest_{size}": f"{length:,}" for size, length in found.longest.items()}
    fields |= {
        "long": f"{LENGTHS[-1]:,}",
        "weights": f"{found.weights[LENGTHS[-1]] / 1e3:.1f}",
        "states": f"{found.states[LENGTHS[-1]]:.0f}",
    }
    return Answer(fields | {"equal": str(D_MODEL // HEADS), "heads": str(HEADS)}, rows)


def draw_context(found: Context, figure: Figure) -> None:
    """Both on logarithmic scales."""
    axes = figure.subplots()
    axes.plot(LENGTHS, [found.weights[n] for n in LENGTHS], "o-", color=ORANGE, label="attention weights, n²", ms=4)
    axes.plot(LENGTHS, [found.states[n] for n in LENGTHS], "s-", color=GREEN, label="states, n", ms=4)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xticks(LENGTHS, [f"{n:,}" for n in LENGTHS])
    axes.set(xlabel="tokens", ylabel="MB in one layer")
    axes.legend()


LOOKUP = Question("lookup", compute_lookup, summarise_lookup, draw_lookup)
CONTEXT_LENGTH = Question("context-length", compute_context, summarise_context, draw_context, (5.6, 2.8))
