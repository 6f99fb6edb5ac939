"""`undivided paper table2`: what trainings cost, and WMT 2014."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, choose_report, settings_of
from undivided.config import Recipe
from undivided.config.flags import add_settings
from undivided.config.settings import merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.paper.table2.wmt import SIZES


def add_table2(tables: Any) -> None:
    """`undivided paper table2`."""
    table = tables.add_parser(
        "table2",
        help="cost of training; prepare, train and score WMT 2014",
        description="The training cost of base and big, by the paper's accounting and counted from their shapes. With a recipe and "
        "the files of WMT 2014: prepare them, train, average, translate newstest2014, and score as the paper did and with "
        f"sacreBLEU. English–French: {SIZES['fr']} After a stop, run the same command again to resume.",
    )
    table.add_argument(
        "recipe", nargs="?", help="a YAML file such as recipes/wmt14-en-de-base.yaml; without it, only the costs are reported"
    )
    table.add_argument("--data", default="", metavar="DIR", help="folder with the files of WMT 2014 as published")
    table.add_argument(
        "--checksums", default="", metavar="FILE", help="output of sha256sum for these files; they are checked against it"
    )
    table.add_argument(
        "--prepare-only",
        action="store_true",
        help="only write text and recipe to OUT, and print the commands to train on several GPUs with torchrun",
    )
    table.add_argument("--out", default="models/table2", metavar="DIR", help="folder for text and model (default: models/table2)")
    add_common(table, "OUT/report.md")
    add_settings(table, Recipe, without=("data.train", "data.valid", "train.out", "search.sentences"))
    table.set_defaults(run=run_table2)


def run_table2(options: argparse.Namespace) -> None:
    """Report the cost of training; with a recipe, train and score it on WMT 2014."""
    if bool(options.recipe) != bool(options.data):
        raise InputError("a recipe and --data DIR go together; give both, or neither to report only the costs")
    if options.prepare_only and not options.recipe:
        raise InputError("--prepare-only needs a recipe and --data DIR")
    values = merge(read_yaml(options.recipe), settings_of(options)) if options.recipe else {}
    from undivided.paper.table2.table import commands, prepare, refuse_torchrun, train_and_score, write_report

    out, console = Path(options.out), Console(options.quiet)
    checksums = Path(options.checksums) if options.checksums else None
    refuse_torchrun(options.arguments, out)
    if options.prepare_only:
        prepare(values, Path(options.data), out, checksums, console)
        console.say("the data is prepared; now train on all GPUs of this machine, then score:")
        print("\n".join(commands(options.arguments, out)[1:]))
        return
    path = choose_report(options, out / "report.md")
    run = train_and_score(values, Path(options.data), out, checksums, console) if options.recipe else None
    print(write_report(run, path, options.arguments))
    for score in run.scores if run is not None else ():
        print(score)
    console.say(f"the report is in {path}")
