"""What all reports share: the command that made them, tables, charts, and intervals by resampling."""

from __future__ import annotations

import math
import os
import platform
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undivided import __version__
from undivided.core.files import write_atomic
from undivided.core.random import random_bits


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; columns of numbers stand to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    columns = list(zip(*cells, strict=True)) if cells else [()] * len(header)
    marks = ["---:" if column and all(map(_numeric, column)) else "---" for column in columns]
    lines = [header, marks, *cells]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _numeric(cell: str) -> bool:
    return cell in ("", "–") or cell[0] in "0123456789+−-.<"


def interval(low: float, high: float, digits: int = 1) -> str:
    """`26.1–27.3`."""
    return f"{low:.{digits}f}–{high:.{digits}f}"


def format_command(arguments: Sequence[str]) -> str:
    """A command as a reader would type it; of absolute paths, only the last part is theirs to know."""
    parts = []
    for argument in arguments:
        flag, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        parts.append(flag + equals + (Path(value).name if value.startswith("/") else value))
    return shlex.join(["undivided", *parts])


def head(title: str, arguments: Sequence[str]) -> list[str]:
    """The first lines of a report: what it is, who wrote it when and where, and the command."""
    import torch

    where = f"{os.cpu_count()} CPU cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    stamp = f"Written by undivided {__version__} on {date.today().isoformat()} ({where}) with"
    return [f"# {title}", "", stamp, "", "```", format_command(arguments), "```", ""]


def write(path: Path, lines: Sequence[str]) -> None:
    """Write a report, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "\n".join(lines).rstrip("\n") + "\n")


def bootstrap_interval(
    figure: Callable[[np.ndarray], float], counts: np.ndarray, times: int = 1000, share: float = 0.95
) -> tuple[float, float]:
    """The interval that holds a share of a figure's values when sentences are drawn anew with replacement.

    `counts` has a row of additive counts for each sentence; the figure is computed from their sums. Always the same draws.
    """
    size = len(counts)
    draws = (random_bits(times * size, size, times) % np.uint64(size)).astype(np.int64).reshape(times, size)
    values = [figure(counts[draw].sum(axis=0)) for draw in draws]
    low, high = np.quantile(values, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)


class Series(NamedTuple):
    """One line of a chart. Where there are bounds, each point has its interval; `joined` draws a line through the points."""

    name: str
    points: Sequence[tuple[float, float]]
    bounds: Sequence[tuple[float, float]] = ()
    joined: bool = True


COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
"""Told apart also by people who do not see all colours (Okabe and Ito)."""

WIDTH, HEIGHT, LEFT, RIGHT, TOP_EDGE, BOTTOM = 760, 440, 70, 200, 40, 90


@dataclass(frozen=True)
class Chart:
    """A line chart in SVG. `names` puts words at 0, 1, 2 … of the x axis."""

    title: str
    x: str
    y: str
    series: Sequence[Series]
    log: bool = False
    names: Sequence[str] = ()

    def write(self, path: Path) -> None:
        """As a file beside a report."""
        write(path, [self.svg()])

    def svg(self) -> str:
        """The whole picture."""
        xs = [x for each in self.series for x, _ in each.points] or [1.0]
        ys = [y for each in self.series for _, y in each.points] + [b for each in self.series for pair in each.bounds for b in pair]
        across = Axis(min(xs), max(xs), LEFT, WIDTH - RIGHT, self.log)
        up = Axis(min(ys or [1.0]), max(ys or [1.0]), HEIGHT - BOTTOM, TOP_EDGE, self.log)
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
            _text(WIDTH / 2, 20, self.title, "middle", 'font-size="15"'),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, self.x, "middle"),
            _text(16, (TOP_EDGE + HEIGHT - BOTTOM) / 2, self.y, "middle", f'transform="rotate(-90 16 {HEIGHT / 2 - 25})"'),
        ]
        for value in up.ticks():
            parts.append(_line(LEFT, up(value), WIDTH - RIGHT, up(value), "#ddd"))
            parts.append(_text(LEFT - 6, up(value) + 4, f"{value:g}", "end"))
        parts += self._x_ticks(across)
        for number, each in enumerate(self.series):
            parts += _drawn(each, across, up, COLOURS[number % len(COLOURS)], TOP_EDGE + 18 * number)
        return "\n".join([*parts, "</svg>"])

    def _x_ticks(self, across: Axis) -> list[str]:
        if not self.names:
            ticks = across.ticks()
            return [_text(across(value), HEIGHT - BOTTOM + 18, f"{value:g}", "middle") for value in ticks]
        result = []
        for place, name in enumerate(self.names):
            x, y = across(place), HEIGHT - BOTTOM + 14
            result.append(_text(x, y, name, "end", f'transform="rotate(-45 {x:.1f} {y})"'))
        return result


class Axis:
    """From values to places on the page, with room at both ends."""

    def __init__(self, low: float, high: float, begin: float, end: float, log: bool) -> None:
        self.log = log
        low, high = (math.log2(low), math.log2(high)) if log else (low, high)
        room = (high - low) * 0.05 or 0.5
        self.low, self.high, self.begin, self.end = low - room, high + room, begin, end

    def __call__(self, value: float) -> float:
        place = math.log2(value) if self.log else value
        return self.begin + (place - self.low) / (self.high - self.low) * (self.end - self.begin)

    def ticks(self) -> list[float]:
        """Round values, five or so."""
        if self.log:
            powers = range(math.ceil(self.low), math.floor(self.high) + 1)
            return [2.0**power for power in powers[:: max(1, len(powers) // 8)]]
        step = 10.0 ** math.floor(math.log10((self.high - self.low) / 4))
        step *= next(factor for factor in (1, 2, 2.5, 5, 10) if (self.high - self.low) / (step * factor) <= 7)
        return [round(step * n, 10) for n in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]


def _drawn(series: Series, across: Axis, up: Axis, colour: str, legend: float) -> list[str]:
    places = [(across(x), up(y)) for x, y in series.points]
    parts = [
        _line(x, up(low), x, up(high), colour, 'stroke-width="2"')
        for (x, _), (low, high) in zip(places, series.bounds, strict=False)
    ]
    if series.joined:
        through = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{through}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{colour}"/>' for x, y in places]
    parts.append(f'<circle cx="{WIDTH - RIGHT + 16}" cy="{legend:.0f}" r="5" fill="{colour}"/>')
    parts.append(_text(WIDTH - RIGHT + 28, legend + 4, series.name, "start"))
    return parts


def _line(x1: float, y1: float, x2: float, y2: float, colour: str, more: str = "") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" {more}/>'


def _text(x: float, y: float, text: str, anchor: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" {more}>{escape(text)}</text>'
