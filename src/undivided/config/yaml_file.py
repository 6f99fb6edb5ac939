"""Recipes in YAML files, read so that a fault can name its line and no file can take much memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from undivided.config.settings import Values
from undivided.core.errors import InputError
from undivided.core.files import read_bounded

MAX_RECIPE_BYTES = 1 << 20
MAX_DEPTH = 20
"""A recipe is a few kilobytes of sections, keys and lists of files; what is far larger or deeper is none."""


class LocatedKey(str):
    """A key of a recipe file that knows its file and line, for messages."""

    def __new__(cls, key: str, where: str) -> LocatedKey:
        located = super().__new__(cls, key)
        located.where = where
        return located

    where: str


def read_yaml(path: str | Path) -> Values:
    """The nested values of a recipe file; their keys know their line."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            found = super().construct_mapping(node, deep)
            lines = {key.value: key.start_mark.line + 1 for key, _ in node.value}
            return {LocatedKey(str(key), f"{path}, line {lines[key]}: ") if key in lines else key: found[key] for key in found}

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
    return {key: value for key, value in values.items() if value is not None}  # A section without keys.


def _check_yaml(events: Iterable[Any], path: str | Path) -> None:
    """Refuse aliases, with which a few lines can make billions of values, tags, and deep nesting."""
    import yaml

    depth = 0
    for event in events:
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        where = f"{path}, line {event.start_mark.line + 1}"
        if isinstance(event, yaml.AliasEvent):
            raise InputError(f"{where}: a recipe has no aliases (*{event.anchor}); write the value itself")
        if getattr(event, "tag", None) is not None:
            raise InputError(
                f"{where}: a recipe has no tags ({event.tag.replace('tag:yaml.org,2002:', '!!')}); write the plain value"
            )
        if depth > MAX_DEPTH:
            raise InputError(f"{where}: nested deeper than {MAX_DEPTH} levels")
