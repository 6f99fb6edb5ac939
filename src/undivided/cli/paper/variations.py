"""`undivided paper table3` and `race`: recipes trained beside each other."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, report_of, settings_of
from undivided.config import CorpusFiles, Recipe, build_recipe
from undivided.config.flags import add_settings
from undivided.config.settings import Values, iter_settings, merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.paper.table3.variations import ROWS, chosen


def add_table3(tables: Any) -> None:
    """`undivided paper table3`."""
    table = tables.add_parser(
        "table3",
        help="variations of a recipe: rows A to E and big",
        description="Train the rows of Table 3 as variations of a recipe, each with the same budget (--minutes or --max-steps), "
        "score them, and report them beside the paper's. Run again after a stop, it goes on; finished rows are kept. The rows, "
        "as in the paper, each scaled to the recipe: " + ", ".join(f"{row.name} ({row.change})" for row in ROWS.values()) + ".",
    )
    table.add_argument("recipe", nargs="?", help="a YAML file with the settings that are varied")
    table.add_argument("--rows", default="all", metavar="A1,B,…", help="rows, or letters of rows, beside base (default: all)")
    table.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of the base row (default: 3)")
    table.add_argument("--other-seeds", type=int, default=1, metavar="N", help="trainings of each other row (default: 1)")
    table.add_argument("--test", nargs="+", metavar="FILE", help="SOURCE TARGET to measure on (default: the first --valid)")
    table.add_argument("--out", default="models/table3", metavar="DIR", help="where the trainings go (default: models/table3)")
    add_common(table, "OUT/report.md")
    add_settings(table, Recipe, without=("train.out", "train.seed"))
    table.set_defaults(run=run_table3)


def run_table3(options: argparse.Namespace) -> None:
    """Variations of a recipe."""
    faults: list[str] = []
    rows = []
    try:
        rows = chosen(options.rows)
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
    from undivided.paper.table3.table import BUDGET, NO_AVERAGE, Plan, table3

    out, console = Path(options.out), Console(options.quiet)
    plan = Plan(merge(merge(BUDGET, values), NO_AVERAGE), rows, options.seeds, options.other_seeds, test, out)
    table = table3(plan, console)
    path = report_of(options, out)
    print(write_report(plan, table, path, options.arguments))
    console.say(f"the report is in {path}")


def add_race(tables: Any) -> None:
    """`undivided paper race`."""
    table = tables.add_parser(
        "race",
        help="RNN, LSTM, GRU, convolutional and Transformer with equal parameters, data and budget",
        description="Train what came before the Transformer beside it: the same text, subwords, batches, parameters and budget "
        "(--minutes or --max-steps, of each). Reports BLEU, also by sentence length, speed, and how far gradients reach. "
        "Run again after a stop, it goes on; finished trainings are kept.",
    )
    table.add_argument(
        "recipes",
        nargs="+",
        metavar="RECIPE",
        help="a YAML file for the Transformer, and where you have them others for recurrent and convolutional models",
    )
    table.add_argument("--models", default="all", metavar="NAME,…", help="who runs, such as lstm-attention (default: all)")
    table.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each (default: 1)")
    table.add_argument("--test", nargs="+", metavar="FILE", help="SOURCE TARGET to measure on (default: the first --valid)")
    table.add_argument("--out", default="models/race", metavar="DIR", help="where the trainings go (default: models/race)")
    add_common(table, "OUT/report.md")
    budget = ("minutes", "max_steps", "threads", "device")
    others = [
        name for name, _, _ in iter_settings(Recipe) if name.partition(".")[0] == "train" and name.partition(".")[2] not in budget
    ]
    add_settings(table, Recipe, without=[*others, *(name for name, _, _ in iter_settings(Recipe) if name.startswith("model."))])
    table.set_defaults(run=run_race)


def run_race(options: argparse.Namespace) -> None:
    """The race."""
    from undivided.paper.race.race import Plan, by_kind, chosen, race, settings_for
    from undivided.paper.race.report import write_report

    faults: list[str] = []
    names: list[str] = []
    recipes: dict[str, Values] = {}
    try:
        names = chosen(options.models)
    except InputError as error:
        faults.append(str(error))
    if options.seeds < 1:
        faults.append(f"--seeds: {options.seeds} is less than 1")
    try:
        recipes = by_kind([merge(read_yaml(path), settings_of(options)) for path in options.recipes])
        base = build_recipe(recipes["transformer"])
        if not (base.data.train and base.data.valid):
            faults.append("name pairs to learn from and held-out ones: --train SOURCE TARGET --valid SOURCE TARGET")
    except InputError as error:
        faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    test = CorpusFiles(*options.test) if options.test else base.data.valid[0]
    plan = Plan(recipes, names, options.seeds, test, Path(options.out))
    for name in names:
        build_recipe(settings_for(plan, name))
    console, path = Console(options.quiet), report_of(options, Path(options.out))
    print(write_report(plan, race(plan, console), path, options.arguments))
    console.say(f"the report is in {path}")
