"""The machinery of settings: configs are dataclasses whose fields have help, bounds and types that are checked."""

from __future__ import annotations

import dataclasses
import difflib
import functools
import math
import re
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any, Literal, TypeVar

T = TypeVar("T")

Values = dict[str, Any]
"""Settings as nested plain values, section → key → value; usually what a person wrote, without defaults."""


def setting(
    default: T,
    help: str,
    *,
    flags: tuple[str, ...] = (),
    at_least: float | None = None,
    below: float | None = None,
    at_most: float | None = None,
    of: tuple[str, ...] = (),
    decided: str = "",
) -> T:
    """A config field with its help text, extra flags, allowed range, and the kinds of model that have it (all if empty).

    `decided` is what decides the value where nobody sets it, if that is not the default or the preset: help says so.
    """
    metadata = {"help": help, "flags": flags, "at_least": at_least, "below": below, "at_most": at_most, "of": of}
    metadata |= {"decided": decided}
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
    """A config from nested values; what is wrong is added to `faults`. `elsewhere` are dotted names of other sections.

    A config class may have a method `faults` that names settings which contradict each other.
    """
    if not isinstance(values, Mapping):
        faults.append(f"{prefix.rstrip('.') or 'the recipe'}: expected 'key: value' lines, got {quote(values)}")
        return config_class()
    fields = {item.name: item for item in dataclasses.fields(config_class)}
    arguments: dict[str, Any] = {}
    wrong: set[str] = set()
    for key, value in values.items():
        name, where = f"{prefix}{key}", getattr(key, "where", "")
        if key not in fields:
            faults.append(f"{where}{name}: no such setting{_did_you_mean(str(key), prefix, fields, elsewhere)}")
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
        # A wrong setting was replaced by its default: a contradiction with that default means nothing.
        faults += [f"{prefix}{fault}" for fault in config.faults() if not wrong & set(re.findall(r"\w+", fault))]
    return config


def _did_you_mean(key: str, prefix: str, fields: Mapping[str, Any], elsewhere: Iterable[str]) -> str:
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
    """`under` with what `over` says instead, section by section."""
    result = dict(under)
    for key, value in over.items():
        below = result.pop(key, None)  # The key is replaced too: it may know its line in the file.
        result[key] = merge(below, value) if isinstance(value, Mapping) and isinstance(below, Mapping) else value
    return result


def quote(value: Any) -> str:
    """A value as messages quote it, cut if it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}…"


def in_words(value: Any) -> str:
    """A value as a person would write it in a recipe or behind a flag, not as Python does."""
    if value is None or value in ("", []):
        return "not set"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {in_words(each)}" for key, each in value.items() if each not in ("", None))
    if isinstance(value, list | tuple):
        return "; ".join(map(in_words, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def suggest(word: str, known: Any) -> str:
    """`; did you mean 'd_model'?` if a known word is similar, else an empty text."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_range(value: Any, item: dataclasses.Field[Any]) -> None:
    """Raise ValueError if a number is outside the range of its setting."""
    low, high, most = (item.metadata.get(bound) for bound in ("at_least", "below", "at_most"))
    if low is not None and not value >= low:
        raise ValueError(f"{value} is less than {low:g}")
    if high is not None and not value < high:
        raise ValueError(f"{value} is not below {high:g}")
    if most is not None and not value <= most:
        raise ValueError(f"{value} is more than {most:g}")


def coerce(value: Any, kind: Any) -> Any:
    """A value from YAML or a flag in the type of its setting; ValueError says what was expected."""
    origin = typing.get_origin(kind)
    if origin is Literal:
        choices = typing.get_args(kind)
        if value not in choices:
            raise ValueError(f"{quote(value)} is none of {', '.join(choices)}{suggest(str(value)[:80], choices)}")
        return value
    if origin is list:
        return _coerce_list(value, typing.get_args(kind)[0])
    if isinstance(kind, types.UnionType):
        raise TypeError(f"settings have one type, not {kind}")
    return _SCALARS[kind](value)


def _coerce_list(value: Any, kind: type) -> list[Any]:
    """A list of values; each config in it may be `key: value` lines or a list in the order of its fields."""
    if not dataclasses.is_dataclass(kind):
        # A flag that may be repeated gives a list of lists.
        rows = [each if isinstance(each, list) else [each] for each in (value if isinstance(value, list) else [value])]
        return [coerce(each, kind) for row in rows for each in row]
    if isinstance(value, Mapping) or (isinstance(value, list) and value and all(isinstance(v, str) for v in value)):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(f"expected a list, got {quote(value)}")
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
    raise ValueError(f"expected true or false, got {quote(value)}")


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
        raise ValueError(f"expected a whole number, got {quote(value)}") from None


def _number(value: Any) -> float:
    try:
        if isinstance(value, bool) or not math.isfinite(float(value)):
            raise ValueError
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError(f"expected a finite number, got {quote(value)}") from None


def _text(value: Any) -> str:
    if isinstance(value, Mapping | list):
        raise ValueError(f"expected text, got {quote(value)}")
    if "\0" in str(value):
        raise ValueError(f"{quote(value)} holds a NUL character")
    if re.search("[\ud800-\udc7f\udd00-\udfff]", str(value)):  # The others stand for bytes of a file name that is not UTF-8.
        raise ValueError(f"{quote(value)} holds half a character and is not valid Unicode")
    # YAML 1.1 reads the language code `no` as false.
    return "no" if value is False else str(value)


_SCALARS: dict[Any, Any] = {bool: _boolean, int: _integer, float: _number, str: _text}


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
