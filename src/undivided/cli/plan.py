"""`undivided plan`: what a training will cost."""

from __future__ import annotations

import argparse
from typing import Any

from undivided.cli.options import recipe_values
from undivided.config import Recipe
from undivided.config.flags import add_settings
from undivided.core.console import Console
from undivided.core.errors import InputError


def add_plan(verbs: Any) -> None:
    """`undivided plan`."""
    verb = verbs.add_parser(
        "plan",
        help="parameters, FLOPs, memory and time of a training, before it runs",
        description="What a training will cost: counted from the recipe, and timed by training on this machine for a few seconds. "
        "Times on GPUs are estimates, not measurements.",
    )
    verb.add_argument("recipe", nargs="?", help="a YAML file with the settings")
    verb.add_argument("--seconds", type=float, default=10.0, help="how long to measure this machine; 0 skips it (default: 10)")
    verb.add_argument("--length", type=int, default=25, help="tokens per sentence assumed for the cost of attention (default: 25)")
    add_settings(verb, Recipe)
    verb.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> None:
    """Print what a training will cost."""
    values = recipe_values(options)
    if options.length < 1 or options.seconds < 0:
        raise InputError(
            f"--length {options.length}, --seconds {options.seconds:g}: expected at least 1 token and at least 0 seconds"
        )
    from undivided.nn.device import use_threads
    from undivided.training.plan import make_plan, measure, report
    from undivided.training.recipe import preview_recipe

    recipe = preview_recipe(values, Console())

    use_threads(recipe.train.threads)
    plan = make_plan(recipe, options.length)
    print(report(plan, measure(plan, options.seconds) if options.seconds else None))
