"""`undivided paper table4`: constituency parsing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, at_least_0, choose_report, settings_of
from undivided.config import Recipe
from undivided.config.flags import add_settings
from undivided.config.settings import merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError


def add_table4(tables: Any) -> None:
    """`undivided paper table4`."""
    table = tables.add_parser(
        "table4",
        help="constituency parsing: train parsers, compare with a grammar",
        description="Train recipes to parse on a folder of Penn-style trees, estimate a grammar (PCFG) from the same trees, parse "
        "dev and test with each, score by EVALB's conventions, and report. After a stop, run the same command again to resume.",
    )
    table.add_argument("recipes", nargs="*", metavar="RECIPE", help="YAML files with settings, such as recipes/craft-parsing.yaml")
    table.add_argument("--trees", required=True, metavar="DIR", help="folder with train.mrg, dev.mrg and test.mrg")
    table.add_argument(
        "--out", default="models/table4", metavar="DIR", help="folder for models and parses (default: models/table4)"
    )
    table.add_argument(
        "--form", default="compact", choices=("compact", "vinyals"), help="how trees are written as text (default: compact)"
    )
    table.add_argument(
        "--tags", default="keep", choices=("keep", "xx"), help="part-of-speech tags in these texts: kept, or all XX (default: keep)"
    )
    table.add_argument(
        "--first",
        type=at_least_0,
        default=0,
        metavar="N",
        help="use only the first N trees of each part, for a trial run; 0 is all",
    )
    table.add_argument(
        "--grafts", type=at_least_0, default=0, metavar="N",
        help="augmentation: N more copies of every training tree, with constituents swapped in from other trees (default: 0)",
    )  # fmt: skip
    table.add_argument("--no-grammar", action="store_true", help="skip the grammar (PCFG)")
    add_common(table, "OUT/report.md")
    add_settings(table, Recipe, without=("data.train", "data.valid", "tokens.ready", "tokens.joint", "train.out"))
    table.set_defaults(run=run_table4)


def run_table4(options: argparse.Namespace) -> None:
    """Train, measure and report parsers."""
    recipes = {Path(path).stem: merge(read_yaml(path), settings_of(options)) for path in options.recipes}
    if len(recipes) < len(options.recipes):
        raise InputError("two recipes have the same file name; rename one, as rows are named after them")
    from undivided.paper.parsing.parser import TreeFormat
    from undivided.paper.parsing.table4 import table4, write_report

    out, trees, tree_format = Path(options.out), Path(options.trees), TreeFormat(options.form, options.tags)
    path = choose_report(options, out / "report.md")
    console = Console(options.quiet)
    entries = table4(
        recipes, trees, tree_format, out, console, first=options.first, grafts=options.grafts, grammar=not options.no_grammar
    )
    write_report(entries, trees, tree_format, path, options.arguments)
    console.say(f"the report is in {path}")
    for entry in entries:
        print(f"{entry.name}: {entry.agreement}")
