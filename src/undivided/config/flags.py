"""Settings on the command line: a flag for each, and those that were given."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from undivided.config.settings import Values, iter_settings


def add_settings(
    verb: argparse.ArgumentParser, config_class: type, prefix: str = "", without: Iterable[str] = (), default: str = ""
) -> None:
    """A flag for every setting except those in `without`: `--section.key`, and the usual short names.

    `default` is what help says of a flag that is not given, where that is not the default of the setting.
    """
    groups: dict[str, Any] = {}
    for name, item, kind in iter_settings(config_class, prefix):
        if name in without:
            continue
        section = name.rpartition(".")[0]
        group = groups.get(section) or groups.setdefault(section, verb.add_argument_group(section or "settings"))
        names = list(dict.fromkeys([*item.metadata["flags"], f"--{name}"]))
        usual = default or (item.default if item.default is not dataclasses.MISSING else "")
        shown = "" if usual in ("", False) else f" (default: {usual})"
        kinds = f" [{', '.join(item.metadata['of'])}]" if item.metadata["of"] else ""
        text = item.metadata["help"].replace("%", "%%") + kinds + shown
        common: dict[str, Any] = {"dest": name, "default": argparse.SUPPRESS, "help": text}
        if typing.get_origin(kind) is list:
            metavar = "FILE" if dataclasses.is_dataclass(typing.get_args(kind)[0]) else "TEXT"
            group.add_argument(*names, nargs="+", action="append", metavar=metavar, **common)
        elif kind is bool:
            group.add_argument(*names, nargs="?", const=True, metavar="true|false", **common)
        elif typing.get_origin(kind) is typing.Literal:
            group.add_argument(*names, metavar="|".join(typing.get_args(kind)), **common)
        else:
            group.add_argument(*names, metavar={int: "N", float: "X", str: "TEXT"}[kind], **common)


def given_settings(options: argparse.Namespace, config_class: type, prefix: str = "") -> Values:
    """The settings that were written on the command line."""
    names = [name for name, _, _ in iter_settings(config_class, prefix)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}
