"""Attention as a picture: PNG, SVG or PDF, drawn by matplotlib (extra: look). [paper Figures 3–5]"""

from __future__ import annotations

import re
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from undivided.core.console import plural
from undivided.core.errors import InputError
from undivided.look.result import USES, Look, Numbers, Token, Use, readable_piece

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

POWER = 0.6
"""Colours follow the weight to this power, as on the page, so that small weights differ visibly from 0."""

MAX_NUMBERED_COLUMNS = 30
"""With more columns, numbers would be too small to read."""

FONTS = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans CJK SC", "Malgun Gothic",
    "Apple SD Gothic Neo", "NanumGothic", "Microsoft YaHei", "Yu Gothic", "Hiragino Sans", "Arial Unicode MS",
    "Noto Sans Arabic", "Noto Sans Hebrew", "Noto Sans Devanagari", "Noto Sans Thai",
)  # fmt: skip


@dataclass(frozen=True)
class View:
    """Which weights a picture shows. Layers and heads count from 1; 0 is the last layer, and the mean of its heads."""

    use: Use = "cross"
    layer: int = 0
    head: int = 0
    grid: bool = False
    """All heads of all layers."""

    def check(self, look: Look) -> None:
        """Raise an error if there is no such layer or head."""
        layers, heads = look.attention(self.use).shape[:2]
        faults = []
        if not layers:
            faults.append(f"there is no {USES[self.use]} to draw. {look.remark}")
        elif not 0 <= self.layer <= layers:
            faults.append(f"layer: {USES[self.use]} has {plural(layers, 'layer')}, there is no layer {self.layer}")
        if layers and not 0 <= self.head <= heads:
            faults.append(f"head: {USES[self.use]} has {plural(heads, 'head')}, there is no head {self.head}")
        if faults:
            raise InputError("; ".join(faults))


def require_matplotlib() -> None:
    """Raise an error that says how to install matplotlib, if it is missing."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("pictures need matplotlib: pip install matplotlib") from None


def draw_attention(look: Look, out: Path | BinaryIO, kind: str, view: View) -> list[str]:
    """Write a picture (`png`, `svg` or `pdf`); returns the characters for which no font was found."""
    require_matplotlib()
    import matplotlib
    from matplotlib import font_manager

    view.check(look)
    there = set(font_manager.fontManager.get_font_names())
    settings: Any = {
        "font.family": [font for font in FONTS if font in there] or ["sans-serif"],
        "svg.hashsalt": "undivided",
        "pdf.fonttype": 42,
    }
    with matplotlib.rc_context(settings), warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        figure = head_grid(look, view) if view.grid else heat_map(look, view)
        # The same look gives the same bytes.
        undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}[kind]
        figure.savefig(out, format=kind, dpi=200, bbox_inches="tight", metadata=undated)
    return _missing(str(warning.message) for warning in said)


def _missing(messages: Any) -> list[str]:
    found = (re.match(r"Glyph (\d+) ", message) for message in messages)
    return sorted({chr(int(match[1])) for match in found if match})


def heat_map(look: Look, view: View) -> Figure:
    """One head, or the mean of a layer's heads, with tokens and numbers."""
    from matplotlib.figure import Figure

    weights = look.attention(view.use)
    layer = (view.layer or len(weights)) - 1
    shown = weights[layer].mean(axis=0) if not view.head else weights[layer, view.head - 1]
    rows, columns = look.labels(view.use)
    figure = Figure(figsize=(1.8 + 0.36 * len(columns), 1.2 + 0.3 * len(rows)))
    axes = figure.add_subplot()
    image = _paint(axes, shown, look.mask(view.use))
    _label(axes, rows, columns)
    if len(columns) <= MAX_NUMBERED_COLUMNS:
        _write_numbers(axes, image, shown, look.mask(view.use))
    which = f"head {view.head}" if view.head else f"mean of {plural(weights.shape[1], 'head')}"
    axes.set_title(f"{USES[view.use]}, layer {layer + 1}, {which}", fontsize=10, pad=10)
    figure.colorbar(image, ax=axes, shrink=min(1.0, 3.2 / (0.3 * len(rows))), ticks=[0, 0.05, 0.1, 0.25, 0.5, 0.75, 1])
    return figure


def head_grid(look: Look, view: View) -> Figure:
    """All heads of all layers as small pictures."""
    from matplotlib.figure import Figure

    weights = look.attention(view.use)
    layers, heads = weights.shape[:2]
    figure = Figure(figsize=(0.5 + 1.15 * heads, 0.7 + 1.15 * layers))
    places = figure.subplots(layers, heads, squeeze=False)
    for layer in range(layers):
        for head in range(heads):
            axes = places[layer, head]
            _paint(axes, weights[layer, head], look.mask(view.use))
            axes.set_xticks([])
            axes.set_yticks([])
            if layer == 0:
                axes.set_title(f"head {head + 1}", fontsize=9)
            if head == 0:
                axes.set_ylabel(f"layer {layer + 1}", fontsize=9)
    figure.suptitle(f"{USES[view.use]}: rows attend to columns", fontsize=10)
    figure.tight_layout(pad=0.4)
    return figure


def _paint(axes: Axes, weights: Numbers, mask: np.ndarray) -> Any:
    from matplotlib.colors import PowerNorm

    axes.set_facecolor("#ececec")
    shown = np.ma.masked_where(~mask, weights)
    return axes.imshow(shown, cmap="Blues", norm=PowerNorm(POWER, 0.0, 1.0), aspect="auto", interpolation="nearest")


def _label(axes: Axes, rows: Sequence[Token], columns: Sequence[Token]) -> None:
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), [readable_piece(token.piece) for token in columns], rotation=90, fontsize=9)
    axes.set_yticks(range(len(rows)), [readable_piece(token.piece) for token in rows], fontsize=9)
    for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]:
        # A price or a formula is text, not TeX.
        label.set_parse_math(False)
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)


def _write_numbers(axes: Axes, image: Any, weights: Numbers, mask: np.ndarray) -> None:
    """Write the numbers in black or white, whichever has more contrast."""
    for row, column in zip(*np.nonzero(mask), strict=True):
        value = float(weights[row, column])
        if value >= 0.005:
            text = "1" if value >= 0.995 else f"{value:.2f}".lstrip("0")
            ink = "black" if luminance(image.to_rgba(value)[:3]) > 0.179 else "white"
            axes.text(column, row, text, ha="center", va="center", fontsize=7, color=ink)


def luminance(colour: Sequence[float]) -> float:
    """Relative luminance of an RGB colour with parts from 0 to 1 (WCAG)."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
