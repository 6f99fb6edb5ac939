"""What all reports share: the command that made them, tables, and bootstrap intervals."""

from __future__ import annotations

import os
import platform
import shlex
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from undivided import __version__
from undivided.core.files import write_atomic
from undivided.core.random import random_bits


def table(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table; columns of numbers are right-aligned."""
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
    """A command that can be run again as it is, from the same directory: paths in it or below it are written from there."""
    parts = []
    for argument in arguments:
        flag, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
        parts.append(flag + equals + (_from_here(value) if value.startswith("/") else value))
    return shlex.join(["undivided", *parts])


def _from_here(path: str) -> str:
    """An absolute path as written from the working directory, also where it is beside that; another path as it is."""
    try:
        near = Path(path).is_relative_to(Path.cwd()) or Path(path).is_relative_to(Path.cwd().parent)
        return os.path.relpath(path) if near else path
    except OSError:
        return path


def head(title: str, arguments: Sequence[str]) -> list[str]:
    """The first lines of a report: title, version, date, machine and command."""
    import torch

    where = f"{os.cpu_count()} CPU cores, {platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    stamp = f"Written by undivided {__version__} on {date.today().isoformat()} ({where}) with"
    return [f"# {title}", "", stamp, "", "```", format_command(arguments), "```", ""]


def write(path: Path, lines: Sequence[str]) -> None:
    """Write a report atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, "\n".join(lines).rstrip("\n") + "\n")


def bootstrap_interval(
    figure: Callable[[np.ndarray], float], counts: np.ndarray, times: int = 1000, share: float = 0.95
) -> tuple[float, float]:
    """The bootstrap interval of a figure: the range of a share of its values when sentences are resampled with replacement.

    `counts` has a row of additive counts for each sentence; the figure is computed from their sums. The draws are always the same.
    """
    size = len(counts)
    draws = (random_bits(times * size, size, times) % np.uint64(size)).astype(np.int64).reshape(times, size)
    values = [figure(counts[draw].sum(axis=0)) for draw in draws]
    low, high = np.quantile(values, [(1 - share) / 2, (1 + share) / 2])
    return float(low), float(high)
