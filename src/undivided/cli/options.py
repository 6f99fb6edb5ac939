"""What several verbs share: flags, settings, lines in and out."""

from __future__ import annotations

import argparse
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undivided.config import ENGINES, Recipe, SearchConfig
from undivided.config.flags import given_settings
from undivided.config.settings import Values, coerce, iter_settings, merge, nest_values
from undivided.config.yaml_file import read_yaml
from undivided.core.errors import InputError
from undivided.core.files import create_file


def add_quiet(verb: argparse.ArgumentParser) -> None:
    """`--quiet`."""
    verb.add_argument("-q", "--quiet", action="store_true", help="say nothing but warnings and errors on stderr")


def add_compute(verb: argparse.ArgumentParser, engine: str | None) -> None:
    """`--device` and `--threads`, and `--engine` where there is a choice."""
    if engine:
        verb.add_argument(
            "--engine",
            default=engine,
            choices=ENGINES,
            help="torch is the reference, torch-bfloat16 the same with rounded products, for CPUs made for that; ctranslate2 is "
            f"faster on a CPU, and auto takes it where it can serve (default: {engine})",
        )
    verb.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:N or mps (default: auto)")
    verb.add_argument("--threads", type=int, default=0, metavar="N", help="CPU threads; 0 is all cores (default: 0)")


def recipe_values(options: argparse.Namespace) -> Values:
    """What a recipe file and the flags say; flags win."""
    return merge(read_yaml(options.recipe) if options.recipe else {}, nest_values(given_settings(options, Recipe)))


def search_options(options: argparse.Namespace) -> dict[str, Any]:
    """The search settings of the command line, in their types."""
    kinds = {name: kind for name, _, kind in iter_settings(SearchConfig)}
    result, faults = {}, []
    for name, value in given_settings(options, SearchConfig).items():
        try:
            result[name] = coerce(value, kinds[name])
        except ValueError as error:
            faults.append(f"--{name.replace('_', '-')}: {error}")
    if faults:
        raise InputError("; ".join(faults))
    return result


def keep_apart(output: str | None, *inputs: str | None) -> None:
    """An output that would replace what it is made from is refused, and one that cannot be a file."""
    if output and output != "-" and Path(output).is_dir():
        raise InputError(f"{output}: is a folder; name a file with --output")
    if output and output != "-" and Path(output).exists():
        for name in inputs:
            if name and name != "-" and Path(name).exists() and Path(output).samefile(name):
                raise InputError(f"{output}: it is read from, so it cannot be written to; choose another --output")


class Output:
    """Stdout, or a file that appears whole or not at all."""

    def __init__(self, name: str) -> None:
        self.path = None if name == "-" else Path(name)

    def __enter__(self) -> Any:
        if self.path is None:
            sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")  # type: ignore[union-attr]
            return sys.stdout
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path.parent}: no such directory")
        self.part = self.path.with_name(self.path.name + ".part")
        self.stream = io.TextIOWrapper(create_file(self.part), encoding="utf-8", newline="\n")
        return self.stream

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self.path is not None:
            self.stream.close()
            if kind is None:
                self.part.replace(self.path)


def count_lines(name: str) -> int | None:
    """How many lines a plain file has, for the time that is left."""
    path = Path(name)
    if name == "-" or path.suffix in (".gz", ".xz", ".zst") or not path.is_file():
        return None
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def input_lines(name: str) -> Iterator[bytes]:
    """The lines of a file, or of stdin; through a reader of our own: Python aborts at exit if a thread waits in `sys.stdin`."""
    from undivided.data.corpus import raw_lines, split_lines, strip_bom

    if name != "-":
        yield from raw_lines(name)
        return
    with open(0, "rb", closefd=False) as stream:
        yield from strip_bom(split_lines(stream))
