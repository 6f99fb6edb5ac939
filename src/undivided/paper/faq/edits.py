"""What a trimmed, an omitted and a swapped word change in a recurrent network and in a Transformer. [paper 4]"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from undivided.config import ModelConfig
from undivided.models import make_model
from undivided.models.cells import Recurrence
from undivided.paper.faq.picture import BLUE, GREEN, ORANGE
from undivided.paper.faq.question import Answer, Question

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, LENGTH, MIDDLE = 32, 12, 5
"""Of a sentence of twelve words, the change is at the sixth."""

EDITS: dict[str, list[int]] = {
    "trimmed": list(range(LENGTH - 3)),
    "omitted": [place for place in range(LENGTH) if place != MIDDLE],
    "swapped": [*range(MIDDLE), MIDDLE + 1, MIDDLE, *range(MIDDLE + 2, LENGTH)],
}
"""Which word of the whole sentence stands at each place of the edited one."""

Reader = Callable[[Tensor], Tensor]
"""A state for every word, `T` ids → `T D`."""


def recurrent() -> Reader:
    """A tanh recurrence from left to right."""
    torch.manual_seed(1)
    layer, words = Recurrence("rnn", WIDTH, WIDTH), torch.randn(LENGTH, WIDTH)
    layer.initialise()
    return lambda ids: layer(words[ids][None])[0]


def transformer(positions: str) -> Reader:
    """Two encoder layers."""
    torch.manual_seed(1)
    config = ModelConfig(d_model=WIDTH, d_ff=64, n_heads=4, encoder_layers=2, decoder_layers=1, dropout=0.0, positions=positions)  # type: ignore[arg-type]
    model = make_model(config, LENGTH, LENGTH).eval()
    return lambda ids: model.encode(ids[None], None).states[0]


READERS: dict[str, tuple[Callable[[], Reader], str]] = {
    "RNN": (recurrent, ORANGE),
    "Transformer": (lambda: transformer("sinusoidal"), BLUE),
    "without positions": (lambda: transformer("none"), GREEN),
}


class Changes(NamedTuple):
    """Of each reader and each edit: how much the state of each word changed, relative to it; at its old place."""

    by_word: dict[str, dict[str, list[float | None]]]


def changes(reader: Reader, order: list[int]) -> list[float | None]:
    """For every word of the whole sentence, the change of its state; None for a word that is gone."""
    with torch.inference_mode():
        whole, edited = reader(torch.arange(LENGTH)), reader(torch.tensor(order))
    found: list[float | None] = [None] * LENGTH
    for place, word in enumerate(order):
        found[word] = float((edited[place] - whole[word]).norm() / whole[word].norm())
    return found


def compute(quick: bool) -> Changes:
    """All edits for all readers."""
    return Changes({name: {edit: changes(make(), order) for edit, order in EDITS.items()} for name, (make, _) in READERS.items()})


def describe(values: list[float | None]) -> tuple[int, int, float]:
    """Words whose state changed, words that are left, and the mean change."""
    left = [value for value in values if value is not None]
    return sum(value > 1e-5 for value in left), len(left), sum(left) / len(left)


def summarise(found: Changes) -> Answer:
    """Each edit a row."""
    rows, fields = [], {}
    for edit in EDITS:
        cells = []
        for name in READERS:
            changed, left, mean = describe(found.by_word[name][edit])
            cells += [f"{changed} / {left}", f"{mean:.2f}"]
            fields[f"{name.split()[0].lower()}_{edit}"] = str(changed)
        rows.append([f"`{edit}`", *cells])
    return Answer(fields | {"length": str(LENGTH), "place": str(MIDDLE + 1)}, rows)


def draw(found: Changes, figure: Figure) -> None:
    """A panel for each edit, a line for each reader."""
    top = max(value for each in found.by_word.values() for values in each.values() for value in values if value is not None)
    for axes, edit in zip(figure.subplots(1, 3, sharey=True), EDITS, strict=True):
        for name, (_, colour) in READERS.items():
            values = found.by_word[name][edit]
            places = [place + 1 for place, value in enumerate(values) if value is not None]
            axes.plot(places, [value for value in values if value is not None], "o-", color=colour, label=name, ms=3, lw=1.4)
        axes.set(title=edit, xlabel="word", ylim=(-0.05, 1.1 * top))
    figure.axes[0].set_ylabel("change of its state")
    figure.axes[0].legend(loc="upper left")


SEQUENCE_EDITS = Question("sequence-edits", compute, summarise, draw)
