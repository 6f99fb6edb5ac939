"""`undivided paper race`: the Transformer beside the models before it."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import PART_DONE, add_common, add_part, choose_report, settings_of
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
        "same number of parameters and the same budget each (--minutes or --max-steps). Reports BLEU, also by sentence length and "
        "over the minutes, speed, and how far gradients reach. Says first how long it takes. After a stop, run the same command "
        "again to resume; finished trainings are kept.",
    )
    table.add_argument(
        "recipes",
        nargs="+",
        metavar="RECIPE",
        help="a YAML file for the Transformer, and optionally others for recurrent and convolutional models",
    )
    table.add_argument("--models", default="all", metavar="NAME,…", help="which models, such as lstm-attention (default: all)")
    table.add_argument("--seeds", type=int, default=1, metavar="N", help="trainings of each model (default: 1)")
    table.add_argument(
        "--seeded", default="all", metavar="NAME,…", help="models that have all --seeds; others have one (default: all)"
    )
    table.add_argument(
        "--trials", type=positive_minutes, metavar="MINUTES",
        help="choose each model's learning rate (half, once, twice the recipe's) and dropout (0.1, 0.3) by six trainings of so "
        "many minutes, on validation (default: as the recipes say)",
    )  # fmt: skip
    add_part(table)
    table.add_argument("--test", nargs="+", metavar="FILE", help="SOURCE TARGET files to test on (default: the first --valid)")
    table.add_argument("--out", default="models/race", metavar="DIR", help="folder for the trainings (default: models/race)")
    add_common(table, "OUT/report.md")
    budget = ("minutes", "max_steps", "threads", "device", "validate_every", "validate_lines")
    names = [name for name, _, _ in iter_settings(Recipe)]
    hidden = [name for name in names if name.startswith(("model.", "train.")) and name.removeprefix("train.") not in budget]
    add_settings(table, Recipe, without=hidden)
    table.set_defaults(run=run_race)


def run_race(options: argparse.Namespace) -> None:
    """Train, measure and report the models."""
    from undivided.paper.race.race import RaceConfig, by_kind, race, select_models, settings_for
    from undivided.paper.race.report import write_report
    from undivided.paper.race.trials import TrialPlan
    from undivided.paper.runs import WHOLE, Part

    faults: list[str] = []
    names: list[str] = []
    seeded: list[str] = []
    recipes: dict[str, Values] = {}
    try:
        names, seeded = select_models(options.models), select_models(options.seeded, "--seeded")
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
    trials = TrialPlan(options.trials) if options.trials else None
    config = RaceConfig(recipes, names, options.seeds, test, Path(options.out), tuple(seeded), trials, Part(*options.part))
    for name in names:
        build_recipe(settings_for(config, name))
    console, path = Console(options.quiet), choose_report(options, config.out / "report.md")
    found = race(config, console)
    if config.part != WHOLE:
        console.say(PART_DONE)
        return
    print(write_report(config, found, path, options.arguments))
    console.say(f"the report is in {path}")


def positive_minutes(text: str) -> float:
    """A number of minutes above 0."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < 100_000:
        raise argparse.ArgumentTypeError(f"expected minutes above 0, got {text!r}")
    return minutes
