"""The machinery of settings: one dataclass field is a YAML key, a command-line flag with help, and what is saved."""

from __future__ import annotations

import argparse
import dataclasses
import difflib
import functools
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal, TypeVar

from undivided.core.errors import InputError
from undivided.core.files import read_bounded

T = TypeVar("T")

Values = dict[str, Any]
"""Settings as nested plain values, section → key → value: what a person wrote, without defaults."""


def setting(
    default: T,
    help: str,
    *,
    flags: tuple[str, ...] = (),
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    of: tuple[str, ...] = (),
) -> T:
    """A config field with its help text, extra flag names, allowed range, and the kinds it is a setting of (all if none)."""
    metadata = {"help": help, "flags": flags, "at_least": at_least, "below": below, "at_most": at_most, "of": of}
    if isinstance(default, list):
        return field(default_factory=lambda: list(default), metadata=metadata)  # type: ignore[return-value]
    return field(default=default, metadata=metadata)


@functools.cache
def field_types(config_class: type) -> dict[str, Any]:
    """The types of a config class's fields."""
    return typing.get_type_hints(config_class)


def iter_settings(config_class: type, prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Each leaf setting as (dotted name, field, type)."""
    for item in dataclasses.fields(config_class):
        kind = field_types(config_class)[item.name]
        name = f"{prefix}{item.name}"
        if dataclasses.is_dataclass(kind):
            yield from iter_settings(typing.cast(type, kind), f"{name}.")
        else:
            yield name, item, kind


def build_config(config_class: type, values: Any, prefix: str, faults: list[str], elsewhere: Iterable[str] = ()) -> Any:
    """A config from nested values; what is wrong is added to `faults`. `elsewhere` are dotted names known in other sections.

    A config class may have a method `faults` that names what is wrong between settings that are each right.
    """
    if not isinstance(values, Mapping):
        faults.append(f"{prefix.rstrip('.') or 'the recipe'}: expected 'key: value' lines, got {shown(values)}")
        return config_class()
    fields = {item.name: item for item in dataclasses.fields(config_class)}
    arguments: dict[str, Any] = {}
    wrong: set[str] = set()
    for key, value in values.items():
        name, where = f"{prefix}{key}", getattr(key, "where", "")
        if key not in fields:
            faults.append(f"{where}{name}: no such setting{_where_known(str(key), prefix, fields, elsewhere)}")
            continue
        kind = field_types(config_class)[key]
        if dataclasses.is_dataclass(kind):
            arguments[key] = build_config(
                typing.cast(type, kind), value if value is not None else {}, f"{name}.", faults, elsewhere
            )
            continue
        try:
            arguments[key] = coerce(value, kind)
            check_range(arguments[key], fields[key])
        except ValueError as error:
            faults.append(f"{where}{name}: {error}")
            wrong.add(key)
    config = config_class(**{key: value for key, value in arguments.items() if key not in wrong})
    if fields.keys() >= values.keys() and hasattr(config, "faults"):
        # A fault that speaks of a setting which is itself wrong says nothing: its default stands in for it.
        faults += [f"{prefix}{fault}" for fault in config.faults() if not wrong & set(re.findall(r"\w+", fault))]
    return config


def _where_known(key: str, prefix: str, fields: Mapping[str, Any], elsewhere: Iterable[str]) -> str:
    homes = [name for name in elsewhere if name.rpartition(".")[2] == key and not name.startswith(prefix or "\0")]
    if homes:
        return f"; did you mean {homes[0]!r}?"
    return suggest(key, fields) or f"; known here: {', '.join(fields)}"


def list_faults(what: str, faults: list[str]) -> str:
    """One message that names every fault."""
    if len(faults) == 1:
        return faults[0]
    return f"{what} {len(faults)} faults:\n" + "\n".join(f"  - {fault}" for fault in faults)


def merge(under: Mapping[str, Any], over: Mapping[str, Any]) -> Values:
    """`over` laid on `under`, section by section."""
    result = dict(under)
    for key, value in over.items():
        below = result.pop(key, None)  # The key goes too: it may say where it was written.
        result[key] = merge(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return result


def shown(value: Any) -> str:
    """A value as a message quotes it: not longer than a person reads."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def suggest(word: str, known: Any) -> str:
    """`; did you mean 'd_model'?` where something known is near, else nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_range(value: Any, item: dataclasses.Field[Any]) -> None:
    """Raise ValueError where a number is outside what its setting allows."""
    low, high, most = (item.metadata.get(bound) for bound in ("at_least", "below", "at_most"))
    if low is not None and not value >= low:
        raise ValueError(f"{value} is less than {low:g}")
    if high is not None and not value < high:
        raise ValueError(f"{value} is not below {high:g}")
    if most is not None and not value <= most:
        raise ValueError(f"{value} is more than {most:g}")


def coerce(value: Any, kind: Any) -> Any:
    """Turn a value from YAML or a flag into the setting's type, or raise ValueError in plain words."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise ValueError(f"{shown(value)} is none of {', '.join(choices)}{suggest(str(value)[:80], choices)}")
        return value
    if origin is list:
        return _listed_values(value, typing.get_args(kind)[0])
    if isinstance(kind, types.UnionType):
        raise TypeError(f"settings have one type, not {kind}")
    return _SCALARS[kind](value)


def _listed_values(value: Any, kind: type) -> list[Any]:
    """Several values; of configs each may be `key: value` lines or a list in the order of the fields."""
    if not dataclasses.is_dataclass(kind):
        # A flag that may be repeated gives lists in a list.
        rows = [each if isinstance(each, list) else [each] for each in (value if isinstance(value, list) else [value])]
        return [coerce(each, kind) for row in rows for each in row]
    if isinstance(value, Mapping) or (isinstance(value, list) and value and all(isinstance(v, str) for v in value)):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {shown(value)}")
    faults: list[str] = []
    names = [item.name for item in dataclasses.fields(kind)]
    result = []
    for entry in value:
        if isinstance(entry, list | tuple):
            if len(entry) > len(names):
                faults.append(f"expected at most {' '.join(names).upper()}, got {len(entry)}: {' '.join(map(str, entry))}")
            entry = dict(zip(names, entry, strict=False))
        result.append(build_config(kind, entry, "", faults))
    if faults:
        raise ValueError("; ".join(faults))
    return result


def _boolean(value: Any) -> bool:
    words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
    if isinstance(value, bool):
        return value
    if str(value).lower() in words:
        return words[str(value).lower()]
    raise ValueError(f"expected true or false, got {shown(value)}")


def _integer(value: Any) -> int:
    if isinstance(value, str) and re.fullmatch(r"[+-]?\d+", value.strip()):
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    try:
        number = float(value)
        if isinstance(value, bool) or number != int(number):
            raise ValueError
        return int(number)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected a whole number, got {shown(value)}") from None


def _number(value: Any) -> float:
    try:
        if isinstance(value, bool):
            raise ValueError
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"expected a number, got {shown(value)}") from None


def _text(value: Any) -> str:
    if isinstance(value, Mapping | list):
        raise ValueError(f"expected text, got {shown(value)}")
    # YAML 1.1 reads the language code `no` as false.
    return "no" if value is False else str(value)


_SCALARS: dict[Any, Any] = {bool: _boolean, int: _integer, float: _number, str: _text}


MAX_RECIPE_BYTES = 1 << 20
DEEPEST = 20
"""A recipe is a few kilobytes, sections → keys → lists of files: what is far beyond was not written by a person."""


class Written(str):
    """A key of a recipe file that knows where it stands, so that a fault can say so."""

    def __new__(cls, key: str, where: str) -> Written:
        written = super().__new__(cls, key)
        written.where = where
        return written

    where: str


def read_yaml(path: str | Path) -> Values:
    """What a recipe file says, as nested values whose keys know their line."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            found = super().construct_mapping(node, deep)
            lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
            return {Written(str(key), f"{path}, line {lines[key]}: ") if key in lines else key: found[key] for key in found}

    try:
        content = read_bounded(Path(path), MAX_RECIPE_BYTES).decode("utf-8")
        _check_yaml(yaml.parse(content, Loader=yaml.SafeLoader), path)
        values = Loader(content).get_single_data()
    except FileNotFoundError:
        raise InputError(f"{path}: no such recipe file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read as a recipe: {error}") from None
    except yaml.MarkedYAMLError as error:
        where = f", line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{path}{where}: not valid YAML: {' '.join(filter(None, (error.context, error.problem)))}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise InputError(f"{path}: a recipe is made of 'section:' blocks with 'key: value' lines")
    return {key: value for key, value in values.items() if value is not None}  # A section without keys says nothing.


def _check_yaml(events: Iterable[Any], path: str | Path) -> None:
    """Refuse what would grow when it is read: aliases, of which a few lines make billions of values, and endless nesting."""
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        where = f"{path}, line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{where}: a recipe has no aliases (*{event.anchor}); write the value itself")
        if depth > DEEPEST:
            raise InputError(f"{where}: nested deeper than {DEEPEST} levels")


def nest_values(flat: Mapping[str, Any]) -> Values:
    """`{"model.d_model": 256}` → `{"model": {"d_model": 256}}`."""
    result: Values = {}
    for name, value in flat.items():
        *sections, key = name.split(".")
        place = result
        for section in sections:
            place = place.setdefault(section, {})
        place[key] = value
    return result


def as_values(config: Any) -> Values:
    """A config as nested plain values, for YAML or JSON."""
    return dataclasses.asdict(config)


def add_settings(
    verb: argparse.ArgumentParser, config_class: type, prefix: str = "", without: Iterable[str] = (), default: str = ""
) -> None:
    """A flag for every setting but those `without`: `--section.key`, and the short names that people expect.

    `default` says what holds for a flag that is not given, where that is not the default of the setting.
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
