"""Datasets of Hugging Face → pairs to train from: `dataset:NAME[:CONFIG][:SPLIT]`, or a folder or file on this machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from undivided.config.data import DATASET
from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions
from undivided.formats.languages import is_language, matches_language

FILES = {".parquet": "parquet", ".arrow": "arrow"}
SAVED = ("state.json", "dataset_dict.json")
"""What `save_to_disk` leaves in a folder."""


class Address(NamedTuple):
    """Where a dataset is."""

    path: Path | None
    """On this machine, or None."""
    name: str
    config: str
    split: str


def is_dataset(source: str) -> bool:
    """Whether a corpus is a dataset."""
    return source.startswith(DATASET)


def parse_address(source: str) -> Address:
    """`dataset:NAME:CONFIG:SPLIT` or `dataset:NAME:SPLIT`; the path of what is on this machine may be followed by a split."""
    rest = source.removeprefix(DATASET)
    head, _, last = rest.rpartition(":")
    for path, split in ((rest, ""), (head, last)):
        if path and Path(path).exists():
            return Address(Path(path), path, "", split or "train")
    name, *more = rest.split(":")
    if not name or len(more) > 2:
        raise InputError(f"{source}: expected dataset:NAME, dataset:NAME:SPLIT or dataset:NAME:CONFIG:SPLIT")
    return Address(None, name, more[0] if len(more) > 1 else "", more[-1] if more else "train")


def dataset_files(source: str) -> list[Path]:
    """The files of a dataset that is on this machine; none of one that is not."""
    path = parse_address(source).path
    if path is None:
        return []
    return sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]


def read_dataset(source: str, options: DocumentOptions) -> tuple[str, str, Iterator[tuple[str, str]]]:
    """The languages of a dataset, and its pairs one by one; nothing is held in memory."""
    rows = _open(source)
    names = _column_names(source, rows)
    ours, theirs = _choose(source, list(names), options)
    languages = tuple(name if is_language(name) and len(name) < 8 else "" for name in (ours, theirs))

    def read() -> Iterator[tuple[str, str]]:
        for row in rows:
            values = row[names[ours]] if names[ours] else row
            pair = values.get(ours), values.get(theirs)
            if all(isinstance(each, str) for each in pair):
                yield pair

    return options.source_lang or languages[0], options.target_lang or languages[1], read()


def _open(source: str) -> Any:
    try:
        import datasets
    except ImportError:
        raise InputError(f"{source}: needs the library 'datasets'; install it with: pip install 'undivided[datasets]'") from None
    path, name, config, split = parse_address(source)
    try:
        if path is not None and path.is_dir() and any((path / each).exists() for each in SAVED):
            return _of_split(source, datasets.load_from_disk(str(path)), split)
        if path is not None and path.suffix in FILES:
            return datasets.load_dataset(FILES[path.suffix], data_files={split: str(path)}, split=split, streaming=True)
        return datasets.load_dataset(name, config or None, split=split, streaming=True)
    except InputError:
        raise
    except Exception as error:  # What a library says of a wrong name, of no network, of a damaged file: any of its errors.
        said = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise InputError(f"{source}: cannot be opened: {said}") from None


def _of_split(source: str, found: Any, split: str) -> Any:
    """A saved dataset, or one of those that were saved together."""
    if not isinstance(found, Mapping):
        return found
    if split not in found:
        raise InputError(f"{source}: has no split {split!r}; there are: {', '.join(found)}")
    return found[split]


def _column_names(source: str, rows: Any) -> dict[str, str]:
    """The names that texts have, each with the column that holds them: of `translation`, its keys; else columns themselves."""
    first = next(iter(rows), None)
    if first is None:
        raise InputError(f"{source}: is empty")
    inside = first.get("translation")
    if isinstance(inside, Mapping):
        return dict.fromkeys(map(str, inside), "translation")
    return {str(name): "" for name, value in first.items() if isinstance(value, str)}


def _choose(source: str, names: list[str], options: DocumentOptions) -> tuple[str, str]:
    """The two that are meant: named in the settings, by language, as source and target, or the only two."""
    by_column = (options.source_column, options.target_column)
    by_language = (_of_language(names, options.source_lang), _of_language(names, options.target_lang))
    others = ("source", "target") if not options.source_lang and not options.target_lang else by_language
    for ours, theirs in (by_column, by_language, others, ("source", "target")):
        if ours in names and theirs in names:
            return ours, theirs
    known = [name for name in by_language if name]
    left = [name for name in names if name not in known]
    if len(names) == 2 and len(known) == 1:
        return (known[0], left[0]) if by_language[0] else (left[0], known[0])
    if len(names) == 2 and not options.source_lang and not options.target_lang:
        return names[0], names[1]
    raise InputError(f"{source}: has {', '.join(names) or 'no texts'}; say which languages: --source-lang en --target-lang de")


def _of_language(names: Iterable[str], wanted: str) -> str:
    return next(
        (name for name in names if wanted and (name == wanted or (is_language(name) and matches_language(name, wanted)))), ""
    )
