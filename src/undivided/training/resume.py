"""Whether a saved run can resume with the settings that are given now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from undivided.config import Recipe, build_recipe
from undivided.config.settings import Values, as_values, merge
from undivided.core.errors import InputError
from undivided.core.files import read_json, sha256_of
from undivided.training.subwords import untie_vocabularies

CHANGEABLE = {"max_steps", "max_epochs", "minutes", "patience", "device", "threads", "out", "log_every", "tensorboard",
              "validate_every", "validate_beam", "validate_lines", "save_every", "keep_last", "keep_best", "average",
              "max_skipped", "shard"}  # fmt: skip
"""Settings of `train` that may change when a run resumes; any other would make it a different run."""


class Record(NamedTuple):
    """What a run writes down as it starts, in `training/recipe.json`. The names are those of the file."""

    recipe: Values
    digests: dict[str, str]
    """sha256 of every corpus file, by path."""
    bytes: dict[str, int]
    """Their sizes."""
    pairs: int
    """Training examples."""


def record_path(out: str | Path) -> Path:
    """Where a run in this folder writes down what it started with."""
    return Path(out) / "training" / "recipe.json"


def read_record(path: Path) -> Record:
    """What a run wrote down as it started."""
    try:
        found = read_json(path)
        build_recipe(found["recipe"])
        return Record(found["recipe"], dict(found["digests"]), dict(found.get("bytes", {})), int(found["pairs"]))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        raise InputError(f"{path}: damaged, so this run cannot resume: {error}; choose another --out to start over") from None


def requested_device(values: Values) -> str:
    """The device that a run asks for, now or when it started."""
    draft = build_recipe(values)
    saved = record_path(draft.train.out)
    if not draft.train.out or not saved.exists():
        return draft.train.device
    return build_recipe(merge(read_record(saved).recipe, values)).train.device


def check_same_kind(values: Values, there: Mapping[str, Any], what: str, advice: str) -> None:
    """Refuse another kind of model than is asked for, before each of its settings is called wrong."""
    asked, found = (values.get("model") or {}).get("kind"), there.get("kind", "transformer")
    if asked not in (None, found):
        raise InputError(f"{what} a model of kind {found}, not {asked}; {advice}")


def resume_recipe(record: Record, values: Values) -> Recipe:
    """The saved recipe with what may change; refused if the data or anything else differs."""
    old = build_recipe(record.recipe)
    new = untie_vocabularies(build_recipe(merge(record.recipe, values)))
    faults = [*_setting_faults(as_values(old), as_values(new)), *_corpus_faults(record)]
    if faults:
        what = f"{new.train.out}: holds another training; undo the change or choose another --out"
        raise InputError("\n  - ".join([f"{what}:", *faults]))
    return new


def _setting_faults(old: Values, new: Values) -> Iterator[str]:
    for name, before, after in _differences(old, new):
        section, _, key = name.partition(".")
        if section != "search" and not (section == "train" and key in CHANGEABLE):
            yield f"{name} was {before!r}, now {after!r}"


def _differences(before: Values, after: Values, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new


def _corpus_faults(record: Record) -> Iterator[str]:
    for path, sha256 in record.digests.items():
        if not Path(path).exists():
            yield f"{path} is missing; this training started with it"
        elif sha256_of(path) != sha256:
            size, before = Path(path).stat().st_size, record.bytes.get(path)
            how = f"it had {before:,} bytes, now {size:,}" if size != before else "same size, other content"
            yield f"{path} has changed since training started" + ("" if before is None else f": {how}")
