"""`undivided demo`: what `make demo` runs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.core.console import Console


def add_demo(verbs: Any) -> None:
    """`undivided demo`."""
    verb = verbs.add_parser(
        "demo",
        help="what `make demo` runs",
        description="Download a real corpus, train on it for a few minutes, score the model and show translations.",
    )
    verb.add_argument("--pair", default="en-de", help="language pair: en-de, en-fr or en-ko (default: en-de)")
    verb.add_argument("--minutes", type=float, default=10.0, help="minutes of training (default: 10)")
    verb.add_argument("--out", default="demo", metavar="DIR", help="folder for corpus and model (default: demo)")
    verb.set_defaults(run=run_demo)


def run_demo(options: argparse.Namespace) -> None:
    """Run the demo."""
    from undivided.cli.demo.run import demo

    demo(options.pair, options.minutes, Path(options.out), Console())
