"""A question: how to compute its numbers, summarise them and draw them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers = TypeVar("Numbers")


@dataclass(frozen=True)
class Answer:
    """The numbers on a page, in any language: named fields of its sentences, and the rows of its table."""

    fields: dict[str, str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Question(Generic[Numbers]):
    """A learner's question, answered by an experiment."""

    name: str
    compute: Callable[[bool], Numbers]
    """Takes `quick`: fewer samples, seeds and steps."""
    summarise: Callable[[Numbers], Answer]
    draw: Callable[[Numbers, Figure], None]
    size: tuple[float, float] = (7.2, 2.9)
    """Size of the picture in inches."""
    timed: bool = False
    """Whether some numbers are ratios of times, which no seed makes reproducible."""


def format_spread(values: Sequence[float], digits: int = 2) -> str:
    """Mean over seeds with minimum and maximum: `0.97 (0.95–0.99)`."""
    low, high = min(values), max(values)
    return f"{sum(values) / len(values):.{digits}f} ({low:.{digits}f}–{high:.{digits}f})"


def format_tiny(value: float) -> str:
    """Three decimals; `< 0.00001` for what is zero up to rounding."""
    if value == 0:
        return "0"
    return "< 0.00001" if value < 1e-5 else f"{value:.3f}"


def format_magnitude(value: float) -> str:
    """Numbers of very different sizes: `0.52`, or `3e-07`."""
    return f"{value:.2f}" if 0.01 <= value < 1000 else f"{value:.0e}"
