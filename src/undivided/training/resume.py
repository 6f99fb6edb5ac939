"""Whether a saved run can resume with the settings that are given now. Its data is known by content, wherever it is."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from undivided.config import CorpusFiles, DataConfig, Recipe, build_recipe
from undivided.config.settings import Values, as_values, in_words, merge
from undivided.core.errors import InputError
from undivided.core.files import read_json, sha256_of
from undivided.training.subwords import untie_vocabularies

CHANGEABLE = {"max_steps", "max_epochs", "minutes", "patience", "device", "threads", "out", "log_every", "tensorboard",
              "validate_every", "validate_beam", "validate_lines", "save_every", "keep_last", "keep_best", "average",
              "max_skipped", "shard", "snapshots"}  # fmt: skip
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
    place: str = ""
    """The working directory, which relative paths start from."""
    held_out: Sequence[list[int]] = ()
    """Of each training corpus, the lines that are held out for validation; empty where validation has files of its own."""


def record_path(out: str | Path) -> Path:
    """Where a run in this folder writes down what it started with."""
    return Path(out) / "training" / "recipe.json"


def read_record(path: Path) -> Record:
    """What a run wrote down as it started."""
    try:
        found = read_json(path)
        build_recipe(found["recipe"])
        digests, sizes = dict(found["digests"]), dict(found.get("bytes", {}))
        held_out = [[int(line) for line in lines] for lines in found.get("held_out", [])]
        return Record(found["recipe"], digests, sizes, int(found["pairs"]), str(found.get("place", "")), held_out)
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


def resume_recipe(record: Record, values: Values) -> tuple[Recipe, Record]:
    """The saved recipe with what may change, and the record with the data where it is now; refused if anything else differs."""
    old = build_recipe(record.recipe)
    values = _with_mixed(old.data, values)
    new = find_moved(untie_vocabularies(build_recipe(merge(record.recipe, values))), record)
    known = _digests_now(new.data, record)
    faults = [*_setting_faults(as_values(old), as_values(new), record.place), *_corpus_faults(old.data, new.data, known, record)]
    if faults:
        what = f"{new.train.out}: holds another training; undo the change or choose another --out"
        raise InputError("\n  - ".join([f"{what}:", *faults]))
    sizes = {path: Path(path).stat().st_size for path in known}
    return new, record._replace(digests=known, bytes=sizes)


def _with_mixed(old: DataConfig, values: Values) -> Values:
    """Settings whose training corpora, if they name any, end with the old ones that the run mixes in."""
    given = values.get("data") or {}
    mixed = old.train[len(old.train) - old.mixed :]
    if not mixed or not {"train", "old_train"} & given.keys():
        return values
    named = build_recipe({"data": {"train": given.get("train", []), "valid": given.get("old_train", [])}}).data
    new = named.train or old.train[: len(old.train) - len(mixed)]
    if len(named.valid) == len(mixed):
        mixed = [dataclasses.replace(files, weight=was.weight) for files, was in zip(named.valid, mixed, strict=True)]
    return merge(values, {"data": {"train": [as_values(files) for files in [*new, *mixed]]}})


def working_directory() -> str:
    """Where relative paths start from; empty where that was removed."""
    try:
        return os.getcwd()
    except OSError:
        return ""


def find_moved(recipe: Recipe, record: Record) -> Recipe:
    """The recipe with files that are not found from here, but from where the run was started, or in its folder as it is now."""
    out = str(record.recipe.get("train", {}).get("out", ""))

    def find(path: str) -> str:
        if not path or Path(path).exists():
            return path
        inside = os.path.relpath(path, out or ".")
        places = [os.path.join(record.place, path)] if record.place else []
        places += [] if inside.startswith(os.pardir) else [os.path.join(recipe.train.out, inside)]
        return next((place for place in places if Path(place).exists()), path)

    def found(corpora: Sequence[CorpusFiles]) -> list[CorpusFiles]:
        return [dataclasses.replace(files, source=find(files.source), target=find(files.target)) for files in corpora]

    named = recipe.data
    data = dataclasses.replace(
        named,
        train=found(named.train),
        valid=found(named.valid),
        old_train=found(named.old_train),
        old_valid=found(named.old_valid),
    )
    return dataclasses.replace(recipe, data=data, train=dataclasses.replace(recipe.train, start=find(recipe.train.start)))


def _files(data: DataConfig) -> Iterator[tuple[str, str]]:
    """Every file with what a person calls it: `file 1 of --train`."""
    for flag, corpora in (("--train", data.train), ("--valid", data.valid)):
        paths = [path for files in corpora for path in (files.source, files.target) if path]
        yield from ((f"file {number} of {flag}", path) for number, path in enumerate(paths, 1))


def _digests_now(data: DataConfig, record: Record) -> dict[str, str]:
    """sha256 of every file that is there, by its path now."""
    return {path: sha256_of(path) for _, path in _files(data) if Path(path).exists()}


def _setting_faults(old: Values, new: Values, place: str) -> Iterator[str]:
    for name, before, after in _differences(old, new):
        section, _, key = name.partition(".")
        if (
            section != "search"
            and not (section == "train" and key in CHANGEABLE)
            and name not in ("data.train", "data.valid", "data.old_valid", "data.old_train")
            and not (name in ("train.start", "tokens.ready") and _is_same_place(str(before), str(after), place))
        ):
            yield f"{name} was {in_words(before)}, now {in_words(after)}"


def _is_same_place(before: str, after: str, place: str) -> bool:
    """Whether a folder, or files with commas between them, are those that another name meant from another directory."""
    sides = [os.path.join(place, path) for path in before.split(",")], after.split(",")
    return len(sides[0]) == len(sides[1]) and all(
        Path(one).exists() and Path(other).exists() and Path(one).samefile(other) for one, other in zip(*sides, strict=True)
    )


def _differences(before: Values, after: Values, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new


def _corpus_faults(old: DataConfig, new: DataConfig, known: Mapping[str, str], record: Record) -> Iterator[str]:
    """What differs in the data: how many corpora there are, their weights, the content of a file; never its name."""
    for flag, before, after in (("--train", old.train, new.train), ("--valid", old.valid, new.valid)):
        if [bool(files.target) for files in before] != [bool(files.target) for files in after]:
            yield f"{flag} had {_corpora(before)}, now {_corpora(after)}"
        elif [files.weight for files in before] != [files.weight for files in after]:
            weights = ([f"{files.weight:g}" for files in corpora] for corpora in (before, after))
            yield "the weights of {} were {}, now {}".format(flag, *map(", ".join, weights))
    places = dict(_files(old))
    for place, path in _files(new):
        was = places.get(place, path)
        moved = "" if was == path else f" ({was}, when training started)"
        if path not in known:
            flag = place.rpartition(" ")[2]
            yield f"{path} is missing; this training started with it{moved}. If it is elsewhere now, name it: {flag} FILE …"
        elif was in record.digests and known[path] != record.digests[was]:
            size, before_size = Path(path).stat().st_size, record.bytes.get(was)
            how = f"it had {before_size:,} bytes, now {size:,}" if size != before_size else "same size, other content"
            yield f"{path}{moved} has changed since training started" + ("" if before_size is None else f": {how}")


def _corpora(corpora: Sequence[CorpusFiles]) -> str:
    return "; ".join(" ".join(filter(None, (files.source, files.target))) for files in corpora) or "no files"
