"""The verbs. Importing this must not import torch: help answers at once."""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from undivided import __version__
from undivided.cli.learning import add_average, add_demo, add_distill, add_plan, add_train
from undivided.cli.looking import add_look
from undivided.cli.paper import add_paper
from undivided.cli.relatives import add_classify, add_generate
from undivided.cli.translating import add_score, add_translate
from undivided.core.console import printable
from undivided.core.errors import InputError, UndividedError, describe_error


class Parser(argparse.ArgumentParser):
    """Errors in one line, with exit code 2 and a hint."""

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}\nFor help: {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    # Threads that spin at every barrier stand in each other's way by a factor of ten where another program shares the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        options = parsed(arguments)
        options.arguments = list(arguments if arguments is not None else sys.argv[1:])
        return int(options.run(options) or 0)
    except BrokenPipeError:
        # Whoever read our output has left; Python must not complain about it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (UndividedError, OSError) as error:
        message, code = describe_error(error) or ("", 1)
        print(f"undivided: {printable(message)}", file=sys.stderr)
        return code


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The command line. A file that stands behind options is taken too; for what is unknown, something like it is named."""
    options, rest = parser().parse_known_args(arguments)
    if len(rest) == 1 and (rest[0] == "-" or not rest[0].startswith("-")) and getattr(options, "file", "") == "-":
        options.file = rest.pop()
    if rest:
        names = [name for action in options.verb._actions for name in action.option_strings]
        unknown = rest[0].split("=")[0]
        near = difflib.get_close_matches(unknown, names, 1) if unknown.startswith("-") else []
        hint = f"; did you mean {near[0]}?" if near else ""
        options.verb.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    return options


def parser() -> Parser:
    """The whole command line."""
    top = Parser(prog="undivided", description="Teach a Transformer a language pair from your own text, and translate with it.")
    top.add_argument("--version", action="version", version=f"undivided {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for add in (
        add_train, add_translate, add_score, add_look, add_generate, add_classify, add_plan, add_distill, add_average, add_paper,
        add_demo,
    ):  # fmt: skip
        add(verbs)
    for verb in verbs.choices.values():
        verb.set_defaults(verb=verb)
    return top
