"""`undivided push` and `pull`: model folders to and from a Hugging Face hub."""

from __future__ import annotations

import argparse
from typing import Any

from undivided.cli.options import add_quiet
from undivided.core.console import Console


def add_push(verbs: Any) -> None:
    """`undivided push`."""
    verb = verbs.add_parser(
        "push",
        help="publish a model folder on a Hugging Face hub (extra: hub)",
        description="Upload a model folder, with a card that names languages, licence and scores. Log in first (`hf auth login`), "
        "or set HF_TOKEN; HF_ENDPOINT names another hub. The training beside the model stays here.",
    )
    verb.add_argument("model", help="a model folder")
    verb.add_argument("name", help="owner/name on the hub")
    verb.add_argument("--license", default="", metavar="NAME", help="the licence to publish it under, e.g. cc-by-4.0")
    verb.add_argument("--private", action="store_true", help="for you alone, if the repository is new")
    add_quiet(verb)
    verb.set_defaults(run=run_push)


def run_push(options: argparse.Namespace) -> None:
    """Upload a model folder."""
    from undivided.interop.hub import push

    print(push(options.model, options.name, Console(options.quiet), options.license, options.private))


def add_pull(verbs: Any) -> None:
    """`undivided pull`."""
    verb = verbs.add_parser(
        "pull",
        help="get a model folder from a Hugging Face hub (extra: hub)",
        description="Download a model folder that `undivided push` has published. Only its known files are fetched, nothing in "
        "them is run, and all digests are checked. Models of other engines: undivided import NAME OUT.",
    )
    verb.add_argument("name", help="owner/name on the hub, or owner/name@revision")
    verb.add_argument("out", help="the new model folder")
    add_quiet(verb)
    verb.set_defaults(run=run_pull)


def run_pull(options: argparse.Namespace) -> None:
    """Download a model folder."""
    from undivided.interop.hub import pull

    pull(options.name, options.out, Console(options.quiet))
