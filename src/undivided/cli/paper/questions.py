"""`undivided paper faq`: the questions learners ask."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from undivided.core.console import Console


def add_faq(tables: Any) -> None:
    """`undivided paper faq`."""
    verb = tables.add_parser(
        "faq",
        help="the questions learners ask, answered by running: pages with pictures",
        description="Compute, draw and write a page for each question, in English and Korean. Needs matplotlib (extra: look).",
    )
    verb.add_argument("--out", default="docs/faq", metavar="DIR", help="where the pages go (default: docs/faq)")
    verb.add_argument("--only", default="", metavar="NAME", help="one question by the name of its page, such as sqrt-dk")
    verb.add_argument("--quick", action="store_true", help="fewer draws, seeds and steps: a trial, not an answer")
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")
    verb.set_defaults(run=run_faq)


def run_faq(options: argparse.Namespace) -> None:
    """Answer the questions."""
    from undivided.paper.faq import faq

    for path in faq(Path(options.out), Console(options.quiet), options.only, options.quick):
        print(path)
