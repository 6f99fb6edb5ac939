"""`undivided paper race`: the Transformer beside the models before it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, choose_report, settings_of
from undivided.config import CorpusFiles, Recipe, build_recipe
from undivided.config.flags import add_settings
from undivided.config.settings import Values, iter_settings, merge
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError


def add_race(tables: Any) -> None:
    """`undivided paper race`."""
    table = tables.add_parser(
        "race",
        help="compare RNN, LSTM, GRU, convolutional model and Transformer at equal size, data and budget",
        description="Train the Transformer and the models that came before it on the same text, subwords and batches, with the "
        "same number of parameters and the same budget each (--minutes or --max-steps). Reports BLEU, also by sentence length, "
        "speed, and how far gradients reach. After a stop, run the same command again to resume; finished trainings are kept.",
    )
    table.add_argument(
        "recipes",
        nargs="+",
        metavar="RECIPE",
        help="a YAML file for the Transformer, and optionally others for recurrent and convolutional models",
    )
    table.add_argument("--models", default="all", metavar="NAME,…", help="which models, such as lstm-attention (default: all)")
    table.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each model (default: 1)")
    table.add_argument("--test", nargs="+", metavar="FILE", help="SOURCE TARGET files to test on (default: the first --valid)")
    table.add_argument("--out", default="models/race", metavar="DIR", help="folder for the trainings (default: models/race)")
    add_common(table, "OUT/report.md")
    budget = ("minutes", "max_steps", "threads", "device")
    names = [name for name, _, _ in iter_settings(Recipe)]
    hidden = [name for name in names if name.startswith(("model.", "train.")) and name.removeprefix("train.") not in budget]
    add_settings(table, Recipe, without=hidden)
    table.set_defaults(run=run_race)


def run_race(options: argparse.Namespace) -> None:
    """Train, measure and report the models."""
    from undivided.paper.race.race import RaceConfig, by_kind, race, select_models, settings_for
    from undivided.paper.race.report import write_report

    faults: list[str] = []
    names: list[str] = []
    recipes: dict[str, Values] = {}
    try:
        names = select_models(options.models)
    except InputError as error:
        faults.append(str(error))
    if options.seeds < 1:
        faults.append(f"--seeds: {options.seeds} is less than 1")
    try:
        recipes = by_kind([merge(read_yaml(path), settings_of(options)) for path in options.recipes])
        base = build_recipe(recipes["transformer"])
        if not (base.data.train and base.data.valid):
            faults.append("no training or validation data: add --train SOURCE TARGET --valid SOURCE TARGET")
    except InputError as error:
        faults.append(str(error))
    if faults:
        raise InputError("\n".join(faults))
    test = CorpusFiles(*options.test) if options.test else base.data.valid[0]
    config = RaceConfig(recipes, names, options.seeds, test, Path(options.out))
    for name in names:
        build_recipe(settings_for(config, name))
    console, path = Console(options.quiet), choose_report(options, config.out / "report.md")
    print(write_report(config, race(config, console), path, options.arguments))
    console.say(f"the report is in {path}")
