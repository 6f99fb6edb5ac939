"""`undivided corpus`: real parallel text to try things with."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

from undivided.cli.options import add_quiet
from undivided.core.console import Console
from undivided.core.errors import InputError

NAMES = ("office-help", "home-assistant")


def add_corpus(verbs: Any) -> None:
    """`undivided corpus`."""
    verb = verbs.add_parser(
        "corpus",
        help="download a corpus of real parallel text",
        description="Download free parallel text from Debian's or Python's packages, align its sentences, and write train, valid "
        "and test, without a text in common, one sentence a line. Origin and licence are printed, and written beside it as "
        "ORIGIN.txt. `undivided demo` uses the same.",
    )
    verb.add_argument("name", choices=NAMES, help="office-help (MPL-2.0, needs apt-get) or home-assistant (Apache-2.0, needs pip)")
    verb.add_argument("pair", help="language pair from English: en-de, en-fr, en-ko, en-es, en-pt-br, …")
    verb.add_argument("output", metavar="OUT", help="folder to write: OUT/train.en, OUT/train.de, OUT/valid.en, …")
    add_quiet(verb)
    verb.set_defaults(run=run_corpus)


def run_corpus(options: argparse.Namespace) -> None:
    """Write a corpus."""
    from undivided.cli.demo.corpus import prepare_corpus

    pair = options.pair.lower()
    if not re.fullmatch(r"en-[a-z]{2,3}(?:-[a-z]{2,4})?", pair) or pair == "en-en":
        raise InputError(f"{options.pair}: expected a language pair from English, such as en-de")
    folder = Path(options.output)
    if folder.exists():
        raise InputError(f"{folder}: is already there; remove it, or name another folder")
    if not folder.parent.is_dir():
        raise InputError(f"{folder.parent}: no such directory")
    prepare_corpus(pair, folder, Console(options.quiet), options.name)
