"""`undivided paper distance`: answers that lie many tokens back."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.paper.options import add_common, at_least_1, choose_report, numbers, rates
from undivided.core.console import Console
from undivided.core.errors import InputError

NAMES = ("rnn", "lstm", "gru", "convolution", "dilated", "local", "transformer")
DISTANCES = [8, 16, 32, 64, 128, 256, 512]
FARTHEST = 8192


def add_distance(tables: Any) -> None:
    """`undivided paper distance`."""
    table = tables.add_parser(
        "distance",
        help="train RNN, LSTM, GRU, convolutions and Transformer on an answer that lies n tokens back",
        description="Train models of equal size to recall a token that stands n tokens before the end among noise, for growing n, "
        "and report their accuracy beside the maximum path lengths of Table 1. Says first how long it takes at most. After a stop, "
        "run the same command again to resume; finished trainings are kept, also where two commands with different --models "
        "share a folder.",
    )
    table.add_argument("--models", default=",".join(NAMES), metavar="NAME,…", help="which models (default: %(default)s)")
    table.add_argument(
        "--distances", type=numbers, default=DISTANCES, metavar="N,…", help=f"distances (default: {','.join(map(str, DISTANCES))})"
    )
    table.add_argument(
        "--seeds", type=at_least_1, default=3, metavar="N", help="trainings of each model, distance and rate (default: 3)"
    )
    table.add_argument(
        "--rates", type=rates, default=[0.001, 0.003], metavar="RATE,…",
        help="learning rates to try; the best on validation counts (default: 0.001,0.003)",
    )  # fmt: skip
    table.add_argument("--steps", type=at_least_1, default=1500, metavar="N", help="steps of a training at most (default: 1500)")
    table.add_argument("--batch", type=at_least_1, default=32, metavar="N", help="sequences of a step (default: 32)")
    table.add_argument("--out", default="models/distance", metavar="DIR", help="folder for the results (default: models/distance)")
    table.add_argument(
        "--longest", type=at_least_1, default=max(DISTANCES), metavar="N",
        help="the distance that convolutions are deep enough for if dilated (default: %(default)s, or the longest of --distances)",
    )  # fmt: skip
    add_common(table, "OUT/report.md")
    table.set_defaults(run=run_distance)


def run_distance(options: argparse.Namespace) -> None:
    """Train, measure and report."""
    from undivided.config.settings import suggest

    names = [part.strip() for part in options.models.split(",") if part.strip()]
    faults = [f"--models: {name!r} is none of {', '.join(NAMES)}{suggest(name, NAMES)}" for name in names if name not in NAMES]
    faults += [f"--distances: {n} is not between 1 and {FARTHEST:,}" for n in options.distances if not 1 <= n <= FARTHEST]
    if faults or not names:
        raise InputError("\n".join(faults or ["--models: none is named"]))
    from undivided.paper.distance.report import write_report
    from undivided.paper.distance.trials import DistanceConfig, train_all

    wanted = [name for name in NAMES if name in names]
    longest = max(options.longest, *options.distances)
    given = (wanted, options.distances, options.seeds, options.rates, options.steps, options.batch)
    config = DistanceConfig(*given, Path(options.out), longest)
    console, path = Console(options.quiet), choose_report(options, Path(options.out) / "report.md")
    print(write_report(config, train_all(config, console), path, options.arguments))
    console.say(f"the report is in {path}")
