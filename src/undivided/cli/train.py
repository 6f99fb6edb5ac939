"""`undivided train`, `distill` and `average`: the verbs that make models."""

from __future__ import annotations

import argparse
from typing import Any

from undivided.cli.options import add_quiet, add_trust, recipe_values
from undivided.config import PRESETS, Recipe
from undivided.config.flags import add_settings
from undivided.core.console import Console
from undivided.core.errors import InputError


def add_train(verbs: Any) -> None:
    """`undivided train`."""
    verb = verbs.add_parser(
        "train",
        help="train a model, or resume a training",
        description="Train a model: a translator from parallel text, or the kind of model that the recipe names. Settings come "
        f"from a recipe, from flags, or from both (flags win). Presets: {', '.join(PRESETS)}. After a stop, run the same command "
        "again to resume.",
    )
    verb.add_argument("recipe", nargs="?", help="a YAML file with the settings")
    verb.add_argument(
        "--verify-resume",
        nargs="?",
        type=int,
        const=0,
        metavar="K",
        help="train nothing; repeat K steps from the second-last checkpoint (without K: up to the last checkpoint) and check that "
        "they equal bit for bit what was logged and saved",
    )
    verb.add_argument(
        "--restart",
        action="store_true",
        help="start the training in --out over, from step 1; its checkpoints and log are kept there under other names",
    )
    add_settings(verb, Recipe)
    add_quiet(verb)
    verb.set_defaults(run=run_train)


def run_train(options: argparse.Namespace) -> None:
    """Train or resume a model, or verify that resuming is exact."""
    values = recipe_values(options)
    if options.verify_resume is not None:
        if options.verify_resume < 0:
            raise InputError(f"--verify-resume {options.verify_resume}: expected a number of steps, at least 0")
        from undivided.training.replay import verify_resume

        print(verify_resume(values, options.verify_resume, Console(options.quiet)))
        return
    from undivided.training.loop import train

    train(values, Console(options.quiet), options.restart)


def add_distill(verbs: Any) -> None:
    """`undivided distill`."""
    verb = verbs.add_parser(
        "distill",
        help="train a smaller, faster model on the translations of another",
        description="Sequence-level distillation: translate the training text with a teacher model, then train a student on the "
        "result. By default the student has the teacher's recipe with two more encoder layers and one decoder layer; a preset and "
        "settings change that. The text is the teacher's own training text unless --train names another. After a stop, run the "
        "same command again to resume.",
    )
    verb.add_argument("teacher", help="a model folder")
    verb.add_argument("recipe", nargs="?", help="a YAML file with the student's settings")
    verb.add_argument(
        "--originals",
        type=float,
        default=0.0,
        metavar="X",
        help="also train on the original pairs, X times each for every time on the teacher's version (default: 0)",
    )
    verb.add_argument(
        "--drafts",
        action="store_true",
        help="train no student but a draft decoder for the teacher: one layer that proposes tokens to it. --out gets the teacher "
        "with its draft decoder, and translate --beam 1 --draft 4 writes what greedy search writes in fewer steps",
    )
    add_trust(verb)
    add_settings(verb, Recipe, default="the teacher's, or the preset's")
    add_quiet(verb)
    verb.set_defaults(run=run_distill)


def run_distill(options: argparse.Namespace) -> None:
    """Train a student of a teacher model, or a draft decoder for it."""
    values = recipe_values(options)
    from undivided.training.distill import distill, distill_drafts

    if options.drafts:
        if options.originals:
            raise InputError("--originals: a draft decoder learns from what the teacher writes, and nothing else; leave it out")
        distill_drafts(options.teacher, values, Console(options.quiet), options.trust)
        return
    distill(options.teacher, values, Console(options.quiet), options.originals, options.trust)


def add_average(verbs: Any) -> None:
    """`undivided average`."""
    verb = verbs.add_parser(
        "average",
        help="average the last checkpoints of a training",
        description="Write a model whose weights are the mean of the last checkpoints of a training run.",
    )
    verb.add_argument("model", help="the folder of a training run")
    verb.add_argument("--last", type=int, metavar="N", help="how many checkpoints (default: 5, or as many as there are)")
    verb.add_argument("-o", "--output", required=True, metavar="DIR", help="where the averaged model goes")
    verb.set_defaults(run=run_average)


def run_average(options: argparse.Namespace) -> None:
    """Average checkpoints."""
    from undivided.training.checkpoint import average

    average(options.model, options.last, options.output)
