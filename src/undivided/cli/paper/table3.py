"""`undivided paper table3`: variations of a recipe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, choose_report, settings_of
from undivided.config import CorpusFiles, Recipe, build_recipe
from undivided.config.flags import add_settings
from undivided.config.settings import merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.paper.table3.variations import ROWS, select_rows


def add_table3(tables: Any) -> None:
    """`undivided paper table3`."""
    table = tables.add_parser(
        "table3",
        help="train variations of a recipe: rows A to E and big",
        description="Train the rows of Table 3 as variations of a recipe, each with the same budget (--minutes or --max-steps), "
        "score them, and report them beside the paper's. After a stop, run the same command again to resume; finished rows are "
        "kept. The rows, as in the paper, each scaled to the recipe: "
        + ", ".join(f"{row.name} ({row.change})" for row in ROWS.values())
        + ".",
    )
    table.add_argument("recipe", nargs="?", help="a YAML file with the settings to vary")
    table.add_argument("--rows", default="all", metavar="A1,B,…", help="rows, or letters of rows, besides base (default: all)")
    table.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of the base row (default: 3)")
    table.add_argument("--other-seeds", type=int, default=1, metavar="N", help="trainings of each other row (default: 1)")
    table.add_argument("--test", nargs="+", metavar="FILE", help="SOURCE TARGET files to test on (default: the first --valid)")
    table.add_argument("--out", default="models/table3", metavar="DIR", help="folder for the trainings (default: models/table3)")
    add_common(table, "OUT/report.md")
    add_settings(table, Recipe, without=("train.out", "train.seed"))
    table.set_defaults(run=run_table3)


def run_table3(options: argparse.Namespace) -> None:
    """Train, measure and report variations of a recipe."""
    faults: list[str] = []
    rows = []
    try:
        rows = select_rows(options.rows)
    except InputError as error:
        faults.append(str(error))
    for flag, count in (("--seeds", options.seeds), ("--other-seeds", options.other_seeds)):
        if count < 1:
            faults.append(f"{flag}: {count} is less than 1")
    values = merge(read_yaml(options.recipe) if options.recipe else {}, settings_of(options))
    try:
        recipe = build_recipe(values)
    except InputError as error:
        faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    test = CorpusFiles(*options.test) if options.test else next(iter(recipe.data.valid), CorpusFiles())
    from undivided.paper.table3.report import write_report
    from undivided.paper.table3.table import BUDGET, NO_AVERAGE, Table3Config, table3

    out, console = Path(options.out), Console(options.quiet)
    config = Table3Config(merge(merge(BUDGET, values), NO_AVERAGE), rows, options.seeds, options.other_seeds, test, out)
    path = choose_report(options, out / "report.md")
    table = table3(config, console)
    print(write_report(config, table, path, options.arguments))
    console.say(f"the report is in {path}")
