"""The command line: one module for each verb. Importing this must not import torch, so that `--help` is quick."""

from __future__ import annotations

import argparse
import difflib
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import NoReturn

from undivided import __version__
from undivided.cli.check import add_check
from undivided.cli.classify import add_classify
from undivided.cli.corpus import add_corpus
from undivided.cli.demo import add_demo
from undivided.cli.doors import add_export, add_import
from undivided.cli.generate import add_generate
from undivided.cli.hub import add_pull, add_push
from undivided.cli.improve import add_improve, add_tune
from undivided.cli.look import add_look
from undivided.cli.paper import add_paper
from undivided.cli.plan import add_plan
from undivided.cli.score import add_score
from undivided.cli.serve import add_serve
from undivided.cli.train import add_average, add_distill, add_train
from undivided.cli.translate import add_translate
from undivided.config.flags import COMMON_HEADING
from undivided.core.console import printable, safe_stdout
from undivided.core.errors import InputError, describe_error
from undivided.core.process import check_memory_limit, describe_limit, discard_stdout, open_standard_streams
from undivided.core.signals import end_in_order

FIRST = ("positional arguments", COMMON_HEADING)
"""What help begins with."""

FEW_FLAGS = 12
"""Usage lists up to so many flags."""


def _short_usage(parser: argparse.ArgumentParser) -> str | None:
    """Usage with the arguments and `[options]` alone, where there are many of these; else argparse's own."""
    flags = [action for action in parser._actions if action.option_strings]
    if len(flags) <= FEW_FLAGS:
        return None
    forms = {"?": "[{0}]", "*": "[{0} …]", "+": "{0} …"}
    words = [action for action in parser._actions if not action.option_strings]
    names = [forms.get(str(word.nargs), "{0}").format(str(word.metavar or word.dest).upper()) for word in words]
    return " ".join([parser.prog, *names, "[options]"]).replace("%", "%%")


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line and a hint, with exit code 2."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        """Suggest a verb, or another choice, that is similar to an unknown one."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            near = difflib.get_close_matches(str(value), list(map(str, action.choices or ())), 1)
            raise argparse.ArgumentError(action, f"{error.message}{f'; did you mean {near[0]}?' if near else ''}") from None

    def format_usage(self) -> str:
        """One or two lines, however many flags there are."""
        self.usage = self.usage or _short_usage(self)
        return super().format_usage()

    def format_help(self) -> str:
        """The common settings before all other flags, those before the rest of the settings."""
        self.usage = self.usage or _short_usage(self)
        self._action_groups.sort(key=lambda group: group is self._optionals or group.title not in FIRST)
        self._action_groups.sort(key=lambda group: (group.title or "").startswith("more settings"))
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}\nFor help: {self.prog} --help")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    code = _run(arguments)
    if arguments is None:
        # All is done: an impatient Ctrl-C would only interrupt Python's own end, which then prints a traceback.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        end_in_order(code)
    return code


def _run(arguments: Sequence[str] | None) -> int:
    """Run one command; an error that was foreseen becomes a message and an exit code."""
    # Threads that spin at every barrier make it up to ten times slower where another program shares the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    open_standard_streams()
    try:
        return _call_verb(arguments)
    except BrokenPipeError:
        # The reader of our output has closed the pipe.
        discard_stdout()
        return 0
    except KeyboardInterrupt:
        _clear_screen_line(128 + signal.SIGINT)
        return 128 + signal.SIGINT
    except Exception as error:
        described = describe_error(error) or describe_limit(error)
        if described is None:
            raise
        message, code = described
        discard_stdout()
        _clear_screen_line(code)
        if message:
            with suppress(OSError):  # stderr may be full too.
                print(f"undivided: {printable(message)}", file=sys.stderr, flush=True)
        return code


def _clear_screen_line(code: int) -> None:
    """After Ctrl-C, remove what the terminal has echoed of it, and a status line, so that what follows has a line of its own."""
    if code == 128 + signal.SIGINT and sys.stderr.isatty():
        with suppress(OSError):
            print("\r\x1b[2K", end="", file=sys.stderr, flush=True)


def _call_verb(arguments: Sequence[str] | None) -> int:
    """Run one command; what it prints has left this process afterwards."""
    try:
        options = parse_arguments(arguments)
    except SystemExit:  # `--help` and `--version`
        sys.stdout.flush()
        raise
    options.arguments = list(arguments if arguments is not None else sys.argv[1:])
    check_memory_limit(getattr(options, "threads", 0))
    with safe_stdout():
        code = int(options.run(options) or 0)
    sys.stdout.flush()
    return code


def parse_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line. The file may come after the options; for an unknown option a similar one is suggested."""
    options, rest = make_parser().parse_known_args(arguments)
    if len(rest) == 1 and (rest[0] == "-" or not rest[0].startswith("-")) and getattr(options, "file", "") == "-":
        options.file = rest.pop()
    if rest:
        names = [name for action in options.verb._actions for name in action.option_strings]
        unknown = rest[0].split("=")[0]
        near = difflib.get_close_matches(unknown, names, 1) if unknown.startswith("-") else []
        hint = f"; did you mean {near[0]}?" if near else ""
        options.verb.error(f"unrecognized arguments: {' '.join(rest)}{hint}")
    return options


def make_parser() -> Parser:
    """The parser of all verbs."""
    top = Parser(prog="undivided", description="Train a Transformer on your own parallel text, and translate with it.")
    top.add_argument("--version", action="version", version=f"undivided {__version__}")
    verbs = top.add_subparsers(metavar="VERB", required=True, parser_class=Parser)
    for add in (
        add_train, add_translate, add_check, add_corpus, add_score, add_look, add_serve, add_generate, add_classify, add_plan,
        add_distill, add_improve, add_tune, add_average, add_import, add_export, add_push, add_pull, add_paper, add_demo,
    ):  # fmt: skip
        add(verbs)
    for verb in verbs.choices.values():
        verb.set_defaults(verb=verb)
    return top
