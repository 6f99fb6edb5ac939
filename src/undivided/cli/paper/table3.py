"""`undivided paper table3`: variations of a recipe."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import PART_DONE, add_common, add_part, at_least_1, choose_report, settings_of
from undivided.config import CorpusFiles, Recipe, build_recipe
from undivided.config.flags import add_settings
from undivided.config.settings import Values, merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.paper.table3.variations import ROWS, select_rows

GENERATED = {
    "words": "words of its source (default: 64)",
    "forms": "forms of each word of its target (default: 4)",
    "depth": "brackets within brackets (default: 3)",
    "longest": "words of its longest sentence (default: 20)",
    "pairs": "pairs to train on (default: 30000)",
    "held_out": "pairs of validation, and of test (default: 500)",
}
"""What may be said of the generated language."""


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
    table.add_argument("--seeds", type=int, default=3, metavar="N", help="trainings of each row (default: 3)")
    table.add_argument("--other-seeds", type=int, metavar="N", help="trainings of each row but base (default: as --seeds)")
    table.add_argument(
        "--generated",
        action="store_true",
        help="train on a generated language with one right answer instead of --train (nested groups said backwards, agreement, a "
        "dictionary), on which heads, depth, width and positions have work to do; row E0 is then the model without positions",
    )
    for name, text in GENERATED.items():
        table.add_argument(
            f"--generated-{name.replace('_', '-')}", type=at_least_1, metavar="N", help=f"of the generated language: {text}"
        )
    add_part(table)
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
    other_seeds = options.seeds if options.other_seeds is None else options.other_seeds
    for flag, count in (("--seeds", options.seeds), ("--other-seeds", other_seeds)):
        if count < 1:
            faults.append(f"{flag}: {count} is less than 1")
    values = merge(read_yaml(options.recipe) if options.recipe else {}, settings_of(options))
    generated = {name: value for name in GENERATED if (value := getattr(options, f"generated_{name}")) is not None}
    faults += _generated_faults(options, values, generated)
    try:
        recipe = build_recipe(values)
    except InputError as error:
        faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    test = CorpusFiles(*options.test) if options.test else next(iter(recipe.data.valid), CorpusFiles())
    if options.generated:
        values, test = _generate(values, generated, Path(options.out))
    from undivided.paper.runs import WHOLE, Part
    from undivided.paper.table3.report import write_report
    from undivided.paper.table3.table import BUDGET, NO_AVERAGE, Table3Config, table3

    out, console = Path(options.out), Console(options.quiet)
    given = merge(merge(BUDGET, values), NO_AVERAGE)
    config = Table3Config(given, rows, options.seeds, other_seeds, test, out, Part(*options.part))
    path = choose_report(options, out / "report.md")
    table = table3(config, console)
    if config.part != WHOLE:
        console.say(PART_DONE)
        return
    print(write_report(config, table, path, options.arguments))
    console.say(f"the report is in {path}")


def _generated_faults(options: argparse.Namespace, values: Values, given: dict[str, int]) -> list[str]:
    faults = []
    if given and not options.generated:
        faults.append(f"--generated-{next(iter(given)).replace('_', '-')}: only with --generated")
    if options.generated and (values.get("data", {}).keys() & {"train", "valid"} or options.test):
        faults.append("--generated: the language has files of its own; leave --train, --valid and --test out")
    return faults


def _generate(values: Values, given: dict[str, int], out: Path) -> tuple[Values, CorpusFiles]:
    """The settings with the files of the generated language, and its test files."""
    from undivided.paper.table3.generated import Language, language_settings, write_corpus

    language = Language(**given)
    faults = language.faults()
    if faults:
        raise InputError("\n".join(faults))
    files = write_corpus(language, out / "language")
    return merge(language_settings(language, files), values), CorpusFiles(files["test"][0], files["test"][1])
