"""Flags and settings that several verbs share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any, cast

from undivided.config import ENGINES, Recipe, SearchConfig
from undivided.config.flags import given_settings
from undivided.config.settings import Values, check_range, coerce, iter_settings, merge, nest_values
from undivided.config.yaml_file import read_yaml
from undivided.core.errors import InputError

if TYPE_CHECKING:
    from undivided.inference.search_settings import SearchChanges


def add_quiet(verb: argparse.ArgumentParser) -> None:
    """`--quiet`."""
    verb.add_argument("-q", "--quiet", action="store_true", help="print only warnings and errors on stderr")


def add_trust(verb: argparse.ArgumentParser) -> None:
    """`--trust`."""
    verb.add_argument(
        "--trust", action="store_true", help="let the model's settings ask for more memory than half of this machine's"
    )


def add_compute(verb: argparse.ArgumentParser, engine: str | None) -> None:
    """`--device` and `--threads`, and `--engine` where a default is given."""
    if engine:
        verb.add_argument(
            "--engine",
            default=engine,
            choices=ENGINES,
            help="torch is the reference, torch-bfloat16 the same with matrix products in bfloat16, for CPUs that support it; "
            "int8 computes products in 8 bits, on CPUs with such instructions (AVX-512 VNNI); ctranslate2 does so on others, but a "
            "rare line may be translated differently among other lines, because its sums are rounded differently in another batch; "
            f"auto takes the first of int8, ctranslate2 and torch that supports the CPU and the model (default: {engine})",
        )
    verb.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    add_trust(verb)
    verb.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads; 0 is all cores (default: 0)")


def recipe_values(options: argparse.Namespace) -> Values:
    """The settings of the recipe file and the flags; flags win."""
    return merge(read_yaml(options.recipe) if options.recipe else {}, nest_values(given_settings(options, Recipe)))


def search_options(options: argparse.Namespace) -> SearchChanges:
    """The search settings given on the command line, checked one by one."""
    known = {name: (field, kind) for name, field, kind in iter_settings(SearchConfig)}
    result: dict[str, Any] = {}
    faults = []
    for name, value in given_settings(options, SearchConfig).items():
        field, kind = known[name]
        try:
            result[name] = coerce(value, kind)
            check_range(result[name], field)
        except ValueError as error:
            faults.append(f"--{name.replace('_', '-')}: {error}")
    if faults:
        raise InputError("; ".join(faults))
    return cast("SearchChanges", result)
