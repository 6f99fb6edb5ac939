"""What padding costs and why masks work. The paper does not speak of padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.data.batches import budget_bounds, pad_rows
from undivided.models import Transformer
from undivided.nn.attention import attention_hook
from undivided.paper.faq.picture import BLUE, ORANGE, draw_heat_map
from undivided.paper.faq.question import Answer, Question, format_tiny
from undivided.paper.table1.measure import time_call

if TYPE_CHECKING:
    from matplotlib.figure import Figure

REAL, PADS = 4, 3
"""Words and paddings of the sentence in the picture."""


class Order(NamedTuple):
    """Batches of the same sentences, put together in one order."""

    name: str
    batches: int
    padding: float
    """Share of all places."""
    time: float
    """Of encoding all of them, in units of the sorted order."""


class Padding(NamedTuple):
    """What it costs, and what a mask does: (with mask, without)."""

    orders: list[Order]
    weights: tuple[list[list[float]], list[list[float]]]
    change: tuple[float, float]
    """Of a sentence's states by padding, relative to them."""
    on_padding: tuple[float, float]
    """Share of attention that goes to padding."""


def model() -> Transformer:
    """A fresh small Transformer."""
    torch.manual_seed(3)
    config = ModelConfig(d_model=32, d_ff=64, n_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0)
    return Transformer(config, 50, 50).eval()


def split_batches(lengths: np.ndarray, budget: int) -> list[np.ndarray]:
    """The lengths of each batch within a budget of tokens, padding included, as training cuts them."""
    return [lengths[start:end] for start, end in budget_bounds(lengths, lengths, budget)]


def orders(count: int, budget: int = 400) -> list[Order]:
    """Sentences of lengths as in prose (log-normal, about 18 words), in random order and sorted."""
    lengths = np.clip(np.random.default_rng(1).lognormal(2.7, 0.6, count), 2, 80).astype(np.int64)
    encoder, found = model(), []
    for name, order in (("random", lengths), ("sorted", np.sort(lengths))):
        batches = split_batches(order, budget)
        places = sum(len(batch) * int(batch.max()) for batch in batches)
        rows = [pad_rows([[5] * int(length) for length in batch]) for batch in batches]

        def encode(_: Tensor, rows: list[Tensor] = rows) -> Tensor:
            return torch.stack([encoder.encode(src, src != 0).states.sum() for src in rows])

        with torch.inference_mode():
            found.append((name, len(batches), 1 - int(lengths.sum()) / places, time_call(encode, rows[0])))
    return [Order(name, size, share, seconds / found[-1][3]) for name, size, share, seconds in found]


def encode_recording(src: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """States `S D` of a sentence, and the weights `S S` of the first head."""
    encoder, caught = model(), []

    def watcher(owner: nn.Module, weights: Tensor) -> Tensor:
        caught.append(weights[0, 0])
        return weights

    with torch.inference_mode(), attention_hook(watcher):
        states = encoder.encode(src, mask).states[0]
    return states, caught[0]


def compute(quick: bool) -> Padding:
    """Costs over many sentences, masks on one."""
    alone = torch.tensor([[11, 12, 13, 14]])
    src = pad_rows([alone[0].tolist(), [20] * (REAL + PADS)])[:1]
    states, _ = encode_recording(alone, None)
    weights, change, share = [], [], []
    for mask in (src != 0, None):
        with_padding, seen = encode_recording(src, mask)
        weights.append(seen[:REAL].tolist())
        change.append(float((with_padding[:REAL] - states).norm() / states.norm()))
        share.append(float(seen[:REAL, REAL:].sum() / REAL))
    return Padding(orders(150 if quick else 600), (weights[0], weights[1]), (change[0], change[1]), (share[0], share[1]))


def summarise(found: Padding) -> Answer:
    """Each order of the sentences a row."""
    rows = [[f"`{each.name}`", str(each.batches), f"{100 * each.padding:.0f} %", f"{each.time:.2f}"] for each in found.orders]
    fields = {
        "random": f"{100 * found.orders[0].padding:.0f}",
        "sorted": f"{100 * found.orders[1].padding:.0f}",
        "slower": f"{found.orders[0].time:.1f}",
        "share": f"{100 * found.on_padding[1]:.0f}",
        "change": format_tiny(found.change[0]),
        "change_unmasked": f"{found.change[1]:.2f}",
        "pads": str(PADS),
    }
    return Answer(fields, rows)


def draw(found: Padding, figure: Figure) -> None:
    """Cost, and the weights with and without a mask."""
    cost, without, masked = figure.subplots(1, 3, width_ratios=(0.75, 1.2, 1.2))
    names = [each.name for each in found.orders]
    shares = [100 * each.padding for each in found.orders]
    cost.bar(names, shares, color=[ORANGE, BLUE], width=0.6)
    for place, share in enumerate(shares):
        cost.text(place, share, f"{share:.0f} %", ha="center", va="bottom")
    cost.set(title="padding in batches", ylim=(0, 1.15 * max(shares)), ylabel="% of places")
    words = [f"w{number}" for number in range(1, REAL + 1)]
    for axes, cells, title in ((without, found.weights[1], "weights, no mask"), (masked, found.weights[0], "weights, mask")):
        draw_heat_map(axes, cells, [*words, *["pad"] * PADS], words)
        axes.set_title(title)


PADDING = Question("padding", compute, summarise, draw, timed=True)
