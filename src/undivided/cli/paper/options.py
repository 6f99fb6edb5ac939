"""Flags that the tables share."""

from __future__ import annotations

import argparse
from pathlib import Path

from undivided.cli.options import add_quiet
from undivided.config import Recipe
from undivided.config.flags import given_settings
from undivided.config.settings import Values, nest_values


def add_common(table: argparse.ArgumentParser, report: str) -> None:
    """`--report` and `--quiet`."""
    table.add_argument("--report", type=report_path, default="", metavar="FILE.md", help=f"file for the report (default: {report})")
    add_quiet(table)


PART_DONE = "this part is done; when all are, the same command without --part writes the report"


def add_part(table: argparse.ArgumentParser) -> None:
    """`--part`."""
    table.add_argument(
        "--part", type=part, default=(1, 1), metavar="K/N",
        help="do only every Nth training, from the Kth on, for N commands side by side that share --out; the same command without "
        "--part then writes the report",
    )  # fmt: skip


def part(text: str) -> tuple[int, int]:
    """`1/2` as numbers."""
    number, _, of_all = text.partition("/")
    if not (number.isdecimal() and of_all.isdecimal() and 1 <= int(number) <= int(of_all) <= 1000):
        raise argparse.ArgumentTypeError(f"expected K/N such as 1/2 and 2/2, got {text!r}")
    return int(number), int(of_all)


def report_path(text: str) -> str:
    """Check that a report can be written there, before hours are spent on it."""
    if text and (not Path(text).name or Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a file name; use one such as report.md")
    return text


def choose_report(options: argparse.Namespace, default: Path) -> Path:
    """The path of the report; a missing matplotlib is an error now, not after hours of training."""
    from undivided.look.picture import require_matplotlib

    require_matplotlib()
    return Path(options.report) if options.report else default


def settings_of(options: argparse.Namespace) -> Values:
    """The recipe settings that were given as flags."""
    return nest_values(given_settings(options, Recipe))


def numbers(text: str) -> list[int]:
    """`64,128` as sorted numbers."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers separated by commas, got {text!r}") from None


def at_least_0(text: str) -> int:
    """A whole number, at least 0."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, at least 0, got {text!r}")
    return int(text)


def at_least_1(text: str) -> int:
    """A whole number, at least 1."""
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number, at least 1, got {text!r}")
    return int(text)


def rates(text: str) -> list[float]:
    """`0.001,0.003` as sorted learning rates."""
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(0 < rate < 1 for rate in found):
        raise argparse.ArgumentTypeError(f"expected learning rates between 0 and 1, separated by commas, got {text!r}")
    return found
