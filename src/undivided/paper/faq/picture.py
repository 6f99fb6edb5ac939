"""Pictures of the questions as small PNG files, by matplotlib (extra: look)."""

from __future__ import annotations

import math
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.core.files import write_atomic
from undivided.paper.chart import COLOURS, STYLE
from undivided.paper.faq.labels import korean_font, translate_labels
from undivided.paper.faq.question import Question

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, BLACK = COLOURS


def write_pictures(question: Question[Any], numbers: Any, out: Path) -> bool:
    """Draw the numbers of a question in every language; whether a font with Korean letters was there.

    The same numbers give the same files. Without such a font, the Korean page gets the English picture.
    """
    font = korean_font()
    _write(question, numbers, out / f"{question.name}.png", "")
    _write(question, numbers, out / f"{question.name}.ko.png", font)
    return bool(font)


def _write(question: Question[Any], numbers: Any, path: Path, korean: str) -> None:
    """One picture; with Korean labels where a font for them is named."""
    import matplotlib
    from matplotlib.figure import Figure
    from PIL import Image

    with matplotlib.rc_context(STYLE | ({"font.family": [*STYLE["font.family"], korean]} if korean else {})):
        figure = Figure(figsize=question.size, layout="constrained")
        question.draw(numbers, figure)
        if korean:
            translate_labels(figure)
        drawn = BytesIO()
        figure.savefig(drawn, format="png", dpi=110)
    # With few colours a picture takes a third of the bytes and looks the same.
    small = BytesIO()
    Image.open(drawn).convert("RGB").quantize(96).save(small, format="png", optimize=True)
    write_atomic(path, small.getvalue())


def plot_band(axes: Axes, xs: Any, runs: Any, colour: str, label: str, style: str = "-") -> None:
    """A line through the means of several runs, and a band from the smallest to the largest."""
    columns = list(zip(*runs, strict=True))
    means = [sum(column) / len(column) for column in columns]
    axes.fill_between(xs, [min(column) for column in columns], [max(column) for column in columns], color=colour, alpha=0.18, lw=0)
    axes.plot(xs, means, style, color=colour, label=label, lw=1.8)


def draw_heat_map(axes: Axes, cells: Any, columns: list[str], rows: list[str]) -> None:
    """A small heat map with its numbers; cells that are exactly 0 stay white and empty."""
    top = max(max(row) for row in cells)
    shades = [[(value / top) ** 0.7 if value else math.nan for value in row] for row in cells]
    axes.imshow(shades, cmap="Blues", vmin=-0.1, vmax=1.7, aspect="auto")
    axes.grid(False)
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    for y, row in enumerate(cells):
        for x, value in enumerate(row):
            if value:
                axes.text(x, y, f"{value:.2f}".removeprefix("0"), ha="center", va="center", fontsize=7)
