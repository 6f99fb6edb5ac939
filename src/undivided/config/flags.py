"""Settings on the command line: a flag for each, and those that were given."""

from __future__ import annotations

import argparse
import dataclasses
import typing
from collections.abc import Iterable
from typing import Any

from undivided.config.presets import FITTED, PRESETS
from undivided.config.settings import Values, in_words, iter_settings

COMMON = (
    "data.train", "data.valid", "train.out", "preset", "data.source_lang", "data.target_lang", "train.minutes", "train.max_steps",
    "train.patience", "tokens.vocab_size", "train.start", "train.device", "train.threads", "data.encoding",
)  # fmt: skip
"""Settings that most people need; help shows them first."""

COMMON_HEADING = "common settings"


def add_settings(
    verb: argparse.ArgumentParser, config_class: type, prefix: str = "", without: Iterable[str] = (), default: str = ""
) -> None:
    """A flag for every setting except those in `without`: `--section.key`, and the usual short names.

    `default` is what help says of a flag that is not given, where that is not the default of the setting.
    """
    known = {name: (item, kind) for name, item, kind in iter_settings(config_class, prefix) if name not in without}
    groups: dict[str, Any] = {}
    for name in [*(name for name in COMMON if name in known), *(name for name in known if name not in COMMON)]:
        item, kind = known[name]
        section = COMMON_HEADING if name in COMMON else f"more settings: {name.rpartition('.')[0]}" if "." in name else "settings"
        group = groups.get(section) or groups.setdefault(section, verb.add_argument_group(section))
        names = list(dict.fromkeys([*item.metadata["flags"], f"--{name}"]))
        decided = _what_decides(name, item)
        shown = default if default and decided else decided
        kinds = f" [{', '.join(item.metadata['of'])}]" if item.metadata["of"] else ""
        text = item.metadata["help"].replace("%", "%%") + kinds + (f" (default: {shown})" if shown else "")
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


def _what_decides(name: str, item: dataclasses.Field[Any]) -> str:
    """The value that is used where nobody says otherwise, or what decides it; empty where the help text says it."""
    if item.metadata["decided"]:
        return str(item.metadata["decided"])
    usual = item.default if item.default is not dataclasses.MISSING else ""
    section, _, key = name.partition(".")
    by_preset = {preset: values.get(section, {}).get(key, usual) for preset, values in PRESETS.items()} if key else {}
    if name in FITTED:
        same = len(set(map(str, by_preset.values()))) == 1
        return f"{FIT}; with a preset: {in_words(usual)}" if same else f"{FIT}; by preset: {_list_presets(by_preset)}"
    others = {preset: value for preset, value in by_preset.items() if value != usual}
    shown = "" if usual == "" else in_words(usual)
    return f"{shown}; preset {_list_presets(others)}" if others else shown


def _list_presets(values: Values) -> str:
    return ", ".join(f"{preset} {in_words(value)}" for preset, value in values.items())


FIT = "fitted to data and budget"
"""What decides where training fits a setting."""


def given_settings(options: argparse.Namespace, config_class: type, prefix: str = "") -> Values:
    """The settings that were written on the command line."""
    names = [name for name, _, _ in iter_settings(config_class, prefix)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}
