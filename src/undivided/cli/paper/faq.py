"""`undivided paper faq`: the questions learners ask."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.cli.options import add_quiet
from undivided.core.console import Console


def add_faq(tables: Any) -> None:
    """`undivided paper faq`."""
    verb = tables.add_parser(
        "faq",
        help="answer learners' questions by experiments: pages with pictures",
        description="Run the experiment of each question and write a page with its picture, in English and Korean. "
        "Needs matplotlib (extra: look).",
    )
    verb.add_argument("--out", default="docs/faq", metavar="DIR", help="folder for the pages (default: docs/faq)")
    verb.add_argument("--only", default="", metavar="NAME", help="one question by the name of its page, such as sqrt-dk")
    verb.add_argument("--quick", action="store_true", help="fewer samples, seeds and steps: a trial run, not an answer")
    add_quiet(verb)
    verb.set_defaults(run=run_faq)


def run_faq(options: argparse.Namespace) -> None:
    """Answer the questions."""
    from undivided.paper.faq import faq

    for path in faq(Path(options.out), Console(options.quiet), options.only, options.quick):
        print(path)
