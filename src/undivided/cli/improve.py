"""`undivided improve` and `tune`: the best from the text and the minutes that there are."""

from __future__ import annotations

import argparse
from typing import Any, TypeVar

from undivided.cli.options import add_quiet
from undivided.config import Recipe
from undivided.config.flags import add_settings, given_settings
from undivided.config.improve import ImproveConfig, TuneConfig
from undivided.config.settings import Values, build_config, list_faults, nest_values
from undivided.core.console import Console
from undivided.core.errors import InputError

Config = TypeVar("Config")

WITHOUT = ("train.minutes", "train.pull", "train.ewc", "data.mix", "data.old_train", "data.old_valid")
"""Settings of a single training, or of fine-tuning, that have no place here."""


def add_improve(verbs: Any) -> None:
    """`undivided improve`."""
    verb = verbs.add_parser(
        "improve",
        help="make a translator better with text in one language and its own translations",
        description="Make a translator better: it translates text of its source language, a reverse model translates text of the "
        "target language back, both rewrite the training pairs, and a new model learns from all of it; then again, while this "
        "helps on validation data. Settings are those of the model or recipe unless flags say otherwise. After a stop, run the "
        "same command again to resume. Prints what each stage brought.",
    )
    verb.add_argument(
        "model", nargs="?", default="", help="a model folder, or a YAML file with settings; without it, flags say all"
    )
    _add_all(verb, ImproveConfig)
    verb.set_defaults(run=run_improve)


def _add_all(verb: argparse.ArgumentParser, config_class: type) -> None:
    add_settings(verb, config_class)
    add_settings(verb, Recipe, without=WITHOUT, default="that of the model or recipe")
    add_quiet(verb)


def run_improve(options: argparse.Namespace) -> None:
    """Improve a translator, or resume that."""
    config, values = _given(options, ImproveConfig)
    from undivided.training.improve import improve

    for row in improve(options.model, values, config, Console(options.quiet)).rows:
        print(row)


def add_tune(verbs: Any) -> None:
    """`undivided tune`."""
    verb = verbs.add_parser(
        "tune",
        help="find settings that suit a small corpus",
        description="Try settings that decide much where there is little text (dropout, layers, subwords, label smoothing, batch "
        "size): many briefly, the better half of them longer, and so on. What is given by a flag is not varied. Writes the best as "
        "a recipe into --out. After a stop, run the same command again to resume. Prints what each trial reached on validation.",
    )
    verb.add_argument(
        "model", nargs="?", default="", help="a YAML file with settings, or a model folder; without it, flags say all"
    )
    _add_all(verb, TuneConfig)
    verb.set_defaults(run=run_tune)


def run_tune(options: argparse.Namespace) -> None:
    """Find settings, or resume that."""
    config, values = _given(options, TuneConfig)
    from undivided.training.tune import tune

    for trial in tune(options.model, values, config, Console(options.quiet)).trials:
        print(trial)


def _given(options: argparse.Namespace, config_class: type[Config]) -> tuple[Config, Values]:
    """What the command itself is asked for, and the settings of its trainings."""
    faults: list[str] = []
    config: Config = build_config(config_class, given_settings(options, config_class), "", faults)
    if faults:
        raise InputError(list_faults("the command has", faults))
    return config, nest_values(given_settings(options, Recipe))
