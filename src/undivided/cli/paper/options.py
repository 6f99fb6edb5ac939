"""What the tables have in common on the command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from undivided.config import Recipe
from undivided.config.flags import given_settings
from undivided.config.settings import Values, nest_values


def add_common(table: argparse.ArgumentParser, report: str) -> None:
    """`--report` and `--quiet`."""
    table.add_argument(
        "--report", type=report_path, default="", metavar="FILE.md", help=f"where the report goes (default: {report})"
    )
    table.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")


def report_path(text: str) -> str:
    """Where a report can be written, known before hours are spent on it."""
    if text and (not Path(text).name or Path(text).is_dir()):
        raise argparse.ArgumentTypeError(f"{text!r} is not the name of a file; name one such as report.md")
    return text


def report_of(options: argparse.Namespace, folder: Path) -> Path:
    """Where the report goes: where `--report` says, else into the folder of the work."""
    return Path(options.report) if options.report else folder / "report.md"


def settings_of(options: argparse.Namespace) -> Values:
    """The settings of a recipe that were written as flags."""
    return nest_values(given_settings(options, Recipe))


def numbers(text: str) -> list[int]:
    """`64,128` as numbers."""
    try:
        return sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected whole numbers with commas between, got {text!r}") from None


def at_least_0(text: str) -> int:
    """A count."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number that is not below 0, got {text!r}")
    return int(text)
