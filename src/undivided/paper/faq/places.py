"""Rows of positions: each unique, each a turn of another, and nearly at right angles to words. [paper 3.5]"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.nn.layers import sinusoids
from undivided.paper.faq.picture import BLACK, BLUE, GREEN, ORANGE
from undivided.paper.faq.question import Answer, Question, format_magnitude, format_tiny
from undivided.paper.faq.trial import FIRST_WORD, WORDS, train_repeater

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, PLACES = 128, 2048


class Rows(NamedTuple):
    """Of the first places: how far apart rows are, and what the pairs of dimensions do."""

    nearest: float
    """The smallest distance between any two rows."""
    neighbours: float
    """The distance between neighbours, the same everywhere."""
    halves: dict[int, tuple[float, float]]
    """Squared distance of two rows so far apart: (first half of the dimensions, second half)."""
    waves: list[tuple[int, float]]
    """Wavelengths of some dimensions."""


def compute_rows(quick: bool) -> Rows:
    """From the paper's table of sines and cosines."""
    table = sinusoids(512 if quick else PLACES, WIDTH).double()
    distances = torch.cdist(table, table)
    distances.fill_diagonal_(math.inf)
    halves = {}
    for gap in (1, 100, 400 if quick else 1000):
        change = (table[gap:] - table[:-gap]).square()
        halves[gap] = (float(change[:, : WIDTH // 2].sum(1).mean()), float(change[:, WIDTH // 2 :].sum(1).mean()))
    waves = [(i, 2 * math.pi * 10000 ** (i / WIDTH)) for i in (0, 32, 64, 96, WIDTH - 2)]
    return Rows(float(distances.min()), float((table[1:] - table[:-1]).norm(dim=1).mean()), halves, waves)


def summarise_rows(found: Rows) -> Answer:
    """Each dimension a row."""
    rows = [[f"`{i}` `{i + 1}`", f"{length:,.1f}", f"{min(2.0, 2 * math.sin(math.pi / length)):.4f}"] for i, length in found.waves]
    fields = {
        "places": f"{PLACES:,}",
        "width": str(WIDTH),
        "nearest": f"{found.nearest:.2f}",
        "neighbours": f"{found.neighbours:.2f}",
    }
    for name, (first, second) in zip(("near", "middle", "far"), found.halves.values(), strict=True):
        fields[f"first_{name}"] = f"{100 * first / (first + second):.0f}"
    fields["far"] = f"{max(found.halves):,}"
    fields |= {"shortest": f"{found.waves[0][1]:.1f}", "longest": f"{found.waves[-1][1]:,.0f}"}
    return Answer(fields, rows)


def draw_rows(found: Rows, figure: Figure) -> None:
    """The table as a picture, and a fast, a middle and a slow dimension."""
    left, right = figure.subplots(1, 2, width_ratios=(1.1, 1))
    table = sinusoids(100, WIDTH)
    left.imshow(table.tolist(), cmap="RdBu", vmin=-1, vmax=1, aspect="auto")
    left.grid(False)
    left.set(title="rows of 100 places", xlabel="dimension", ylabel="place")
    for i, colour in ((0, BLUE), (32, GREEN), (64, ORANGE), (126, BLACK)):
        right.plot(table[:, i].tolist(), color=colour, lw=1.4, label=f"dimension {i}")
    right.set(title="a dimension over the places", xlabel="place", ylim=(-1.1, 1.9))
    right.legend(loc="upper center", ncols=2)


PHRASE = ("I", "walk", "my", "dog")
STARTS = (0, 5, 20, 100)


class Relative(NamedTuple):
    """The phrase at several places in a sentence."""

    by_place: dict[int, list[list[float]]]
    """Dot products of positions within the phrase, by the place where it begins."""
    moved: float
    """The largest change of any of them."""
    turned: float
    """How far a row is from the row `offset` places before it, turned by a matrix that does not know the place."""
    words_moved: float
    """The change of dot products of words and positions together, relative to their spread."""


def turn(offset: int, width: int) -> Tensor:
    """The matrix that turns the row of any place into that of the place `offset` later."""
    angle = offset * 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    blocks = torch.stack([torch.stack([angle.cos(), angle.sin()], -1), torch.stack([-angle.sin(), angle.cos()], -1)], -2)
    return torch.block_diag(*blocks)


def compute_relative(quick: bool) -> Relative:
    """Positions alone, then with words."""
    table = sinusoids(256, WIDTH).double()
    length = len(PHRASE)
    by_place = {start: (table[start : start + length] @ table[start : start + length].T) for start in STARTS}
    first = by_place[STARTS[0]]
    moved = max(float((each - first).abs().max()) for each in by_place.values())
    turned = float((table[:200] @ turn(7, WIDTH).T - table[7:207]).abs().max())
    words = torch.randn(length, WIDTH, generator=torch.Generator().manual_seed(1)).double()
    together = [(words + table[start : start + length]) @ (words + table[start : start + length]).T for start in STARTS]
    change = max(float((each - together[0]).abs().mean()) for each in together)
    return Relative({start: each.tolist() for start, each in by_place.items()}, moved, turned, change / float(together[0].std()))


def summarise_relative(found: Relative) -> Answer:
    """Each place where the phrase begins is a row: dot products of neighbours, of two apart, of three apart."""
    rows = [[f"`{start}`", *(f"{dots[0][gap]:.3f}" for gap in range(len(PHRASE)))] for start, dots in found.by_place.items()]
    fields = {"phrase": " ".join(PHRASE), "moved": format_tiny(found.moved), "turned": format_tiny(found.turned)}
    return Answer(fields | {"words_moved": f"{100 * found.words_moved:.0f}"}, rows)


def draw_relative(found: Relative, figure: Figure) -> None:
    """The same square at every place."""
    top = found.by_place[0][0][0]
    for axes, (start, dots) in zip(figure.subplots(1, len(STARTS)), found.by_place.items(), strict=True):
        axes.imshow(dots, cmap="Blues", vmin=0.5 * top, vmax=1.15 * top)
        axes.grid(False)
        axes.set_xticks(range(len(PHRASE)), PHRASE, fontsize=7)
        axes.set_yticks(range(len(PHRASE)), PHRASE, fontsize=7)
        axes.tick_params(length=0)
        axes.set_title(f"from place {start}")
        for y, row in enumerate(dots):
            for x, value in enumerate(row):
                axes.text(x, y, f"{value:.0f}", ha="center", va="center", fontsize=7)


class Angles(NamedTuple):
    """Mean size of a cosine: of random vectors by width, and of words and positions of a small translator."""

    random: dict[int, float]
    expected: dict[int, float]
    between: dict[str, tuple[float, float]]
    """By what is compared: (fresh model, trained model)."""
    width: int


def mean_cosine(one: Tensor, other: Tensor) -> float:
    """The mean size of the cosine of each vector with each; with itself aside."""
    cosines = (F.normalize(one, dim=1) @ F.normalize(other, dim=1).T).abs()
    if one is other:
        cosines = cosines[~torch.eye(len(one), dtype=torch.bool)]
    return float(cosines.mean())


def compute_angles(quick: bool) -> Angles:
    """Random vectors, then a model before and after it has learned to say every word twice."""
    chance = torch.Generator().manual_seed(1)
    widths = (2, 8, 32, 128, 512)
    random = {width: mean_cosine(*(torch.randn(2, 500, width, generator=chance))) for width in widths}
    expected = {
        width: math.gamma(width / 2) / (math.sqrt(math.pi) * math.gamma((width + 1) / 2)) for width in widths if width < 300
    }
    expected |= {width: math.sqrt(2 / (math.pi * width)) for width in widths if width >= 300}
    found: dict[str, list[float]] = {"words, words": [], "words, positions": [], "positions, positions": []}
    for steps in (0, 40 if quick else 400):
        model, _ = train_repeater(shifted=True, steps=steps)
        words = model.source_embedding.weight.detach()[FIRST_WORD : FIRST_WORD + WORDS]
        places = sinusoids(WORDS, words.shape[1])
        for name, pair in zip(found, ((words, words), (words, places), (places, places)), strict=True):
            found[name].append(mean_cosine(*pair))
    between = {name: (values[0], values[1]) for name, values in found.items()}
    return Angles(random, expected, between, words.shape[1])


def summarise_angles(found: Angles) -> Answer:
    """Widths, then what the model has."""
    rows = [[f"`{width}`", f"{value:.3f}", f"{math.degrees(math.acos(value)):.0f}°"] for width, value in found.random.items()]
    fields = {"width": str(found.width)}
    for name, (fresh, trained) in found.between.items():
        key = name.replace(", ", "_")
        fields |= {f"{key}_fresh": f"{fresh:.2f}", f"{key}_trained": f"{trained:.2f}"}
    fields |= {"widest": "512", "cosine": f"{found.random[512]:.3f}", "least": format_magnitude(found.expected[512])}
    return Answer(fields, rows)


def draw_angles(found: Angles, figure: Figure) -> None:
    """Cosines of random vectors by width; of a model as bars."""
    left, right = figure.subplots(1, 2)
    widths = list(found.random)
    left.plot(widths, list(found.expected.values()), color=BLACK, lw=1, ls=":", label="expected")
    left.plot(widths, list(found.random.values()), "o-", color=BLUE, ms=4, label="random vectors")
    left.set_xscale("log", base=2)
    left.set_xticks(widths, [str(width) for width in widths])
    left.set(xlabel="dimensions", title="mean size of the cosine", ylim=(0, 0.75))
    left.legend()
    for side, (label, colour) in enumerate((("fresh model", ORANGE), ("trained model", BLUE))):
        places = [place + 0.38 * side - 0.19 for place in range(3)]
        values = [pair[side] for pair in found.between.values()]
        right.bar(places, values, width=0.36, color=colour, label=label)
        for place, value in zip(places, values, strict=True):
            right.text(place, value, f"{value:.2f}", ha="center", va="bottom", fontsize=7)
    right.set_xticks(range(3), ["words,\nwords", "words,\npositions", "positions,\npositions"])
    right.set(title=f"in a model of {found.width} dimensions", ylim=(0, 1))
    right.legend(loc="upper left")


POSITION_ROWS = Question("position-rows", compute_rows, summarise_rows, draw_rows, (7.2, 3.0))
RELATIVE = Question("relative-positions", compute_relative, summarise_relative, draw_relative, (7.2, 2.2))
ORTHOGONAL = Question("orthogonal", compute_angles, summarise_angles, draw_angles)
