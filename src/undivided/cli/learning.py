"""The verbs that make models: train, plan, distill, average, demo."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.options import add_quiet, recipe_values
from undivided.config import PRESETS, Recipe
from undivided.config.flags import add_settings
from undivided.core.console import Console
from undivided.core.errors import InputError


def add_train(verbs: Any) -> None:
    """`undivided train`."""
    verb = verbs.add_parser(
        "train",
        help="learn a model; on an existing directory, go on",
        description="Learn a model: a translator from parallel text, or another kind as its recipe says. Settings come from a "
        "recipe, from flags, or from both (flags win). "
        f"Presets: {', '.join(PRESETS)}. Run again on the same --out to go on after a stop.",
    )
    verb.add_argument("recipe", nargs="?", help="a YAML file with the settings")
    verb.add_argument(
        "--verify-resume",
        nargs="?",
        type=int,
        const=0,
        metavar="K",
        help="train nothing: take the steps after the last checkpoint but one again (K of them; without a number up to the last "
        "checkpoint) and compare them bit for bit with what was logged and saved",
    )
    add_settings(verb, Recipe)
    add_quiet(verb)
    verb.set_defaults(run=run_train)


def run_train(options: argparse.Namespace) -> None:
    """Learn a model."""
    values = recipe_values(options)
    if options.verify_resume is not None:
        if options.verify_resume < 0:
            raise InputError(f"--verify-resume {options.verify_resume}: expected a number of steps")
        from undivided.training.replay import verify_resume

        print(verify_resume(values, options.verify_resume, Console(options.quiet)))
        return
    from undivided.training.loop import train

    train(values, Console(options.quiet))


def add_plan(verbs: Any) -> None:
    """`undivided plan`."""
    verb = verbs.add_parser(
        "plan",
        help="parameters, FLOPs, memory, time, before anything runs",
        description="What a training will cost: counted from the recipe, timed by some seconds of training on this machine. "
        "Times on GPUs are reckoned, not measured.",
    )
    verb.add_argument("recipe", nargs="?", help="a YAML file with the settings")
    verb.add_argument("--seconds", type=float, default=10.0, help="how long to measure this machine; 0 is not (default: 10)")
    verb.add_argument("--length", type=int, default=25, help="tokens of a sentence, for the cost of attention (default: 25)")
    add_settings(verb, Recipe)
    verb.set_defaults(run=run_plan)


def run_plan(options: argparse.Namespace) -> None:
    """Say what a training will cost."""
    values = recipe_values(options)
    if options.length < 1 or options.seconds < 0:
        raise InputError(f"--length {options.length}, --seconds {options.seconds:g}: expected positive numbers")
    from undivided.nn.device import use_threads
    from undivided.training.plan import make_plan, measure, report
    from undivided.training.prepare import foreseen

    recipe = foreseen(values, Console())

    use_threads(recipe.train.threads)
    plan = make_plan(recipe, options.length)
    print(report(plan, measure(plan, options.seconds) if options.seconds else None))


def add_distill(verbs: Any) -> None:
    """`undivided distill`."""
    verb = verbs.add_parser(
        "distill",
        help="a faster student of a trained model",
        description="Translate the training text with a teacher's beam and train a student on that: the teacher's own recipe "
        "with two encoder layers more and one decoder layer, or a preset and settings as given. The text is the one "
        "that the teacher learned from, unless --train names another. Run again on the same --out to go on after a stop.",
    )
    verb.add_argument("teacher", help="a model folder")
    verb.add_argument("recipe", nargs="?", help="a YAML file with the student's settings")
    verb.add_argument(
        "--originals",
        type=float,
        default=0.0,
        metavar="X",
        help="learn from the pairs as they were too, each X times for once as the teacher says it (default: 0, not at all)",
    )
    add_settings(verb, Recipe)
    add_quiet(verb)
    verb.set_defaults(run=run_distill)


def run_distill(options: argparse.Namespace) -> None:
    """Train a student."""
    values = recipe_values(options)
    from undivided.training.distill import distill

    distill(options.teacher, values, Console(options.quiet), options.originals)


def add_average(verbs: Any) -> None:
    """`undivided average`."""
    verb = verbs.add_parser("average", help="averaged checkpoints", description="Average the last checkpoints of a training run.")
    verb.add_argument("model", help="the directory of a training run")
    verb.add_argument("--last", type=int, default=5, metavar="N", help="how many checkpoints (default: 5)")
    verb.add_argument("-o", "--output", required=True, metavar="DIR", help="the new model folder")
    verb.set_defaults(run=run_average)


def run_average(options: argparse.Namespace) -> None:
    """Average checkpoints."""
    from undivided.training.checkpoint import average

    average(options.model, options.last, options.output)


def add_demo(verbs: Any) -> None:
    """`undivided demo`."""
    verb = verbs.add_parser(
        "demo", help="what `make demo` runs", description="Get a real corpus, train on it for minutes, score, translate."
    )
    verb.add_argument("--pair", default="en-de", help="language pair: en-de, en-fr or en-ko (default: en-de)")
    verb.add_argument("--minutes", type=float, default=10.0, help="minutes of training (default: 10)")
    verb.add_argument("--out", default="demo", metavar="DIR", help="where corpus and model go (default: demo)")
    verb.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> None:
    """The demo."""
    from undivided.cli.demo import demo

    demo(options.pair, options.minutes, Path(options.out), Console())
