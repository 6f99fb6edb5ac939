"""`undivided paper parse`: text into trees."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from undivided.cli.options import add_compute, add_quiet, search_options
from undivided.cli.streams import input_text
from undivided.config import SearchConfig
from undivided.config.flags import add_settings
from undivided.core.console import Console
from undivided.core.errors import InputError


def add_parse(verbs: Any) -> None:
    """`undivided paper parse`."""
    verb = verbs.add_parser(
        "parse",
        help="parse text with a model trained by table4",
        description="Print a tree for every line of text, over exactly its words. An empty line stays empty.",
    )
    verb.add_argument("model", help="a model folder, such as models/table4/craft-parsing/model")
    verb.add_argument("file", nargs="?", default="-", help="one sentence a line (default: stdin)")
    verb.add_argument("--tokenised", action="store_true", help="words are already separated by spaces, as in a treebank")
    add_compute(verb, None)
    add_quiet(verb)
    left_out = ("sentences", "n_best", "sample", "temperature", "top_k", "top_p", "seed")
    add_settings(verb, SearchConfig, without=left_out, default="the model's own")
    verb.set_defaults(run=run_parse)


def run_parse(options: argparse.Namespace) -> None:
    """Print a tree for each line."""
    search = search_options(options)
    if options.file != "-" and not Path(options.file).is_file():
        raise InputError(f"{options.file}: no such file")
    from undivided.paper.parsing.parser import parse_lines
    from undivided.paper.parsing.trees import to_brackets

    trees = parse_lines(
        options.model, input_text(options.file), search, ready=options.tokenised, device=options.device, threads=options.threads,
        console=Console(options.quiet), trust=options.trust,
    )  # fmt: skip
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    for tree in trees:
        print("" if tree is None else to_brackets(tree), flush=True)
