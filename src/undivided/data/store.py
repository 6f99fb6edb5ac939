"""Pairs of text → ids on disk, built once, read through memory maps. [paper 5.1]"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from undivided.config import CorpusFiles, DataConfig, TokensConfig
from undivided.core.errors import InputError
from undivided.core.files import build_folder, read_json
from undivided.core.random import mix_bits, random_bits
from undivided.data.corpus import CorpusReport, Pair, corpus_digests, corpus_name, read_pairs
from undivided.data.holdout import Lines
from undivided.data.subwords import Tokenizer

STORE_VERSION = 1

BLOCK = 1 << 24
"""Bytes that share a digest. Blocks are checked by all cores at once."""

PARTS = ("src.ids", "src.ends", "tgt.ids", "tgt.ends")

Item = TypeVar("Item")

Rewrite = Callable[[Pair], tuple[str, str]]
"""A pair → the texts of its two sides as they are learned."""


class Store:
    """Token ids of corpora on disk, read through memory maps: its size does not matter to memory."""

    def __init__(self, folder: Path, vocabularies: Sequence[int]) -> None:
        """`vocabularies` are the numbers of source and target subwords: no id may lie beyond."""
        self.folder, self.vocabularies = folder, tuple(vocabularies)
        facts = _unseal(read_json(folder / "store.json"), folder)
        if facts["dtype"] not in ("uint16", "uint32"):
            raise InputError(f"{folder}: store.json is damaged: its ids are of type {facts['dtype']!r}")
        self.corpora: list[int] = facts["corpora"]
        self.weights: list[float] = facts["weights"]
        self.over_length: list[int] = facts["over_length"]
        self.findings = [CorpusReport(**entry) for entry in facts["findings"]]
        _check_digests(folder, facts["sha256"])
        self._ids = [np.memmap(folder / f"{side}.ids", dtype=facts["dtype"], mode="r") for side in ("src", "tgt")]
        self._ends = [np.memmap(folder / f"{side}.ends", dtype=np.int64, mode="r") for side in ("src", "tgt")]
        for ids, ends in zip(self._ids, self._ends, strict=True):
            if len(ends) != len(self) + 1 or ends[0] != 0 or len(ids) != ends[-1] or not _rises(ends):
                raise InputError(f"{folder}: damaged: store.json, the ids and their ends do not fit together")
        for side, ids in enumerate(self._ids):
            for start in range(0, len(ids), BLOCK):
                self._check_ids(side, ids[start : start + BLOCK])

    def _check_ids(self, side: int, ids: np.ndarray) -> None:
        """No id may be beyond the vocabulary: what looks it up in a table would read outside."""
        if len(ids) and int(ids.max()) >= self.vocabularies[side]:
            raise InputError(
                f"{self.folder / PARTS[2 * side]}: damaged: it holds the id {int(ids.max()):,}, "
                f"but the vocabulary has {self.vocabularies[side]:,}; run the same command again to build it anew"
            )

    def __len__(self) -> int:
        return sum(self.corpora)

    def draws(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """The numbers that some pairs go by in an epoch: the same in all."""
        return places

    def lengths(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and target lengths of some pairs."""
        source, target = (ends[places + 1] - ends[places] for ends in self._ends)
        return source, target

    def rows(self, side: int, places: np.ndarray) -> list[np.ndarray]:
        """The ids of some pairs on one side (0 source, 1 target)."""
        ids, ends = self._ids[side], self._ends[side]
        rows = [np.asarray(ids[start:end]) for start, end in zip(ends[places], ends[places + 1], strict=True)]
        if rows:  # Checked at the start too, but the disk may have changed since.
            self._check_ids(side, np.concatenate(rows))
        return rows

    @property
    def target_tokens(self) -> int:
        """Target tokens of all pairs, `</s>` included."""
        return int(self._ends[1][-1])


class SampledStore:
    """A store whose texts are segmented differently in every epoch, a function of (seed, epoch, pair) alone: subword sampling.

    Its numbers are draws: the pairs of epoch 0, then those of epoch 1, and so on. So batches are made by the lengths of the
    very subwords that they will hold.
    """

    def __init__(self, store: Store, tokenizer: Tokenizer, config: TokensConfig, seed: int) -> None:
        self.store, self.config = store, config
        self.corpora, self.weights = store.corpora, store.weights
        self._subwords = tokenizer.source, tokenizer.target
        self._seeds = [random_bits(1, seed, side) for side in range(2)]

    def __len__(self) -> int:
        return len(self.store)

    def draws(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """The numbers that some pairs go by in an epoch."""
        return places + epoch * len(self)

    def lengths(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and target lengths of some draws."""
        source, target = (np.array([len(row) for row in self.rows(side, draws)]) for side in range(2))
        return source, target

    def rows(self, side: int, draws: np.ndarray) -> list[list[int]]:
        """The ids of some draws on one side (0 source, 1 target)."""
        rows = [row.tolist() for row in self.store.rows(side, draws % len(self))]
        return self._subwords[side].sample(rows, self.config, mix_bits(draws.astype(np.uint64) + self._seeds[side]))


def store_key(
    corpora: Sequence[CorpusFiles],
    tokenizer: Tokenizer,
    config: DataConfig,
    digests: Mapping[str, str] | None = None,
    held_out: Lines = (),
) -> str:
    """A name that changes with anything that would change the ids; `digests` are those of the files, where they are known."""
    digests = corpus_digests(corpora) if digests is None else digests
    facts = {
        "version": STORE_VERSION,
        "files": [[digests[path] for path in (files.source, files.target) if path] for files in corpora],
        "weights": [files.weight for files in corpora],
        "models": [hashlib.sha256(side.model).hexdigest() for side in (tokenizer.source, tokenizer.target)],
        "limits": [config.max_chars, config.max_length, config.on_bad_line],
    }
    if any(held_out):
        facts["held_out"] = [sorted(lines) for lines in held_out]
    if config.encoding:  # Stores of UTF-8 keep the names that they always had.
        facts["encoding"] = config.encoding
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def open_store(
    parent: Path,
    corpora: Sequence[CorpusFiles],
    tokenizer: Tokenizer,
    config: DataConfig,
    advance: Callable[[int], None] = lambda count: None,
    digests: Mapping[str, str] | None = None,
    warn: Callable[[str], None] = lambda text: None,
    held_out: Lines = (),
    rewriter: Callable[[], Rewrite] = lambda: as_it_is,
) -> Store:
    """The token store of some corpora: read if it is there, complete and undamaged, else built; `warn` is told of damage.

    Where it is built, what `rewriter` returns is given each pair. It must follow from the corpora and the subwords alone.
    """
    folder = parent / f"store-{store_key(corpora, tokenizer, config, digests, held_out)}"
    vocabularies = len(tokenizer.source), len(tokenizer.target)
    if folder.exists():
        try:
            return Store(folder, vocabularies)
        except (InputError, OSError, ValueError, KeyError, TypeError) as error:
            warn(f"{error if isinstance(error, InputError) else f'{folder}: damaged'}; the text is tokenised again")
    with build_folder(folder) as building:
        _build(building, corpora, tokenizer, config, advance, held_out or (frozenset(),) * len(corpora), rewriter())
    return Store(folder, vocabularies)


def as_it_is(pair: Pair) -> tuple[str, str]:
    """The two texts of a pair, unchanged."""
    return pair.source, pair.target


def _build(
    folder: Path,
    corpora: Sequence[CorpusFiles],
    tokenizer: Tokenizer,
    config: DataConfig,
    advance: Callable[[int], None],
    held_out: Lines,
    rewrite: Rewrite,
) -> None:
    small = max(len(tokenizer.source), len(tokenizer.target)) <= 1 << 16
    dtype = np.dtype(np.uint16 if small else np.uint32)
    counts, over_length, findings = [], [], []
    with _SideWriter(folder / "src", dtype) as src, _SideWriter(folder / "tgt", dtype) as tgt:
        for files, lines in zip(corpora, held_out, strict=True):
            before, found, over = len(src), CorpusReport(corpus_name(files)), 0
            for chunk in chunks(read_pairs(files, config, found, lines), 20_000):
                sides = list(zip(*map(rewrite, chunk), strict=True))
                sources = tokenizer.source.encode_corpus(sides[0], dtype, os.cpu_count() or 1)
                targets = tokenizer.target.encode_corpus(sides[1], dtype, os.cpu_count() or 1)
                most = config.max_length * dtype.itemsize
                fits = [max(len(s), len(t)) <= most for s, t in zip(sources, targets, strict=True)]
                over += fits.count(False)
                src.add(row for row, fit in zip(sources, fits, strict=True) if fit)
                tgt.add(row for row, fit in zip(targets, fits, strict=True) if fit)
                advance(len(chunk))
            counts.append(len(src) - before)
            over_length.append(over)
            findings.append(asdict(found))
    if not sum(counts):
        raise InputError(
            f"every pair has more than {config.max_length} subwords on a side; raise data.max_length or split the lines"
        )
    facts: dict[str, Any] = {"dtype": dtype.name, "corpora": counts, "weights": [files.weight for files in corpora]}
    facts |= {"over_length": over_length, "findings": findings}
    facts["sha256"] = {part: _block_digests(folder / part) for part in PARTS}
    (folder / "store.json").write_text(json.dumps(facts | {"seal": _seal(facts)}))


def _seal(facts: Mapping[str, Any]) -> str:
    """sha256 of what store.json says."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _unseal(found: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What store.json says, if it says what was written."""
    facts = {name: value for name, value in found.items() if name != "seal"}
    if "seal" not in found:
        raise InputError(f"{folder}: its token store has no digests, as in version 0.1.0")
    if found["seal"] != _seal(facts):
        raise InputError(f"{folder}: store.json is damaged (its sha256 differs)")
    return facts


def _block_digests(path: Path) -> list[str]:
    """sha256 of each block of a file, in order."""
    starts = range(0, path.stat().st_size, BLOCK)

    def digest(start: int) -> str:
        with path.open("rb") as stream:
            stream.seek(start)
            return hashlib.sha256(stream.read(BLOCK)).hexdigest()

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(digest, starts))


def _check_digests(folder: Path, sums: Mapping[str, list[str]]) -> None:
    """Compare every block with its digest; an error names the file and the block."""
    for part in PARTS:
        found = _block_digests(folder / part)
        if found != sums[part]:
            same = (one == other for one, other in zip(found, sums[part], strict=False))
            block = next((number for number, equal in enumerate(same) if not equal), min(len(found), len(sums[part])))
            raise InputError(f"{folder / part}: damaged after byte {block * BLOCK:,} (its sha256 differs)")


def _rises(ends: np.ndarray) -> bool:
    """Whether every row has a token."""
    return all(bool((np.diff(ends[start : start + BLOCK + 1]) > 0).all()) for start in range(0, len(ends) - 1, BLOCK))


def chunks(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of at most `size` items."""
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


class _SideWriter:
    """Writes the ids of one side and where each row ends."""

    def __init__(self, stem: Path, dtype: np.dtype) -> None:
        self._dtype = dtype
        self._ids = stem.with_suffix(".ids").open("wb")
        self._ends = stem.with_suffix(".ends").open("wb")
        self._ends.write(np.zeros(1, dtype=np.int64).tobytes())
        self._end = 0
        self._rows = 0

    def add(self, rows: Iterable[bytes]) -> None:
        rows = list(rows)
        ends = self._end + np.cumsum([len(row) // self._dtype.itemsize for row in rows], dtype=np.int64)
        self._ids.write(b"".join(rows))
        self._ends.write(ends.tobytes())
        self._rows += len(rows)
        self._end = int(ends[-1]) if rows else self._end

    def __len__(self) -> int:
        return self._rows

    def __enter__(self) -> _SideWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self._ids.close()
        self._ends.close()
