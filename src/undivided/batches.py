"""Ids → batches by token budget: memory-mapped, bucketed by length, in an order that can be resumed. [paper 5.1]"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from undivided.config import BatchesConfig, CorpusFiles, DataConfig, TokensConfig
from undivided.console import InputError
from undivided.corpus import Findings, Pair, digest, name_of, read_pairs
from undivided.files import read_json
from undivided.tokens import BOS, PAD, Tokenizer, random_bits, stirred

STORE_VERSION = 1


@dataclass(frozen=True)
class Batch:
    """Pairs as padded ids. `tgt_in` is `tgt_out` shifted right behind `<s>`. [paper 3.1]"""

    src: Tensor  # B S
    tgt_in: Tensor  # B T
    tgt_out: Tensor  # B T

    @property
    def src_mask(self) -> Tensor:
        """True where a source token is real."""
        return self.src != PAD

    def to(self, device: torch.device) -> Batch:
        """The same batch on another device; the copy overlaps with work where the memory is pinned."""
        if device.type == "cpu":
            return self
        pinned = [part.pin_memory() if device.type == "cuda" else part for part in (self.src, self.tgt_in, self.tgt_out)]
        return Batch(*(part.to(device, non_blocking=True) for part in pinned))

    @property
    def size(self) -> int:
        """Tokens of the wider side, padding included: what the budget counts."""
        return max(self.src.numel(), self.tgt_out.numel())

    def twice(self) -> Batch:
        """All pairs, and below them the same."""
        return Batch(*(torch.cat([part, part]) for part in (self.src, self.tgt_in, self.tgt_out)))

    def split(self) -> tuple[Batch, Batch]:
        """Two halves, for when the whole does not fit into memory."""
        half = len(self.src) // 2
        first = Batch(self.src[:half], self.tgt_in[:half], self.tgt_out[:half])
        return first, Batch(self.src[half:], self.tgt_in[half:], self.tgt_out[half:])


def padded(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    """Rows of ids as one tensor, filled with `<pad>` at the end."""
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), PAD, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)


def make_batch(sources: Sequence[Sequence[int] | np.ndarray], targets: Sequence[Sequence[int] | np.ndarray]) -> Batch:
    """A batch from rows of ids, each closed by `</s>`."""
    tgt_out = padded(targets)
    tgt_in = tgt_out.roll(1, dims=1)
    tgt_in[:, 0] = BOS
    ends = torch.tensor([len(row) for row in targets])
    tgt_in[torch.arange(tgt_in.shape[1]) >= ends[:, None]] = PAD
    return Batch(padded(sources), tgt_in, tgt_out)


class Store:
    """Token ids of corpora on disk, read through memory maps: its size does not matter to memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        facts = read_json(folder / "store.json")
        if facts["dtype"] not in ("uint16", "uint32"):
            raise InputError(f"{folder}: store.json is damaged: its ids are of type {facts['dtype']!r}")
        self.corpora: list[int] = facts["corpora"]
        self.weights: list[float] = facts["weights"]
        self.over_length: list[int] = facts["over_length"]
        self.findings = [Findings(**entry) for entry in facts["findings"]]
        self._ids = [np.memmap(folder / f"{side}.ids", dtype=facts["dtype"], mode="r") for side in ("src", "tgt")]
        self._ends = [np.memmap(folder / f"{side}.ends", dtype=np.int64, mode="r") for side in ("src", "tgt")]
        for ids, ends in zip(self._ids, self._ends, strict=True):
            if len(ends) != len(self) + 1 or len(ids) != ends[-1]:
                raise InputError(f"{folder}: damaged: store.json, the ids and their ends do not fit together")

    def __len__(self) -> int:
        return sum(self.corpora)

    def draws(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """What some pairs are called in an epoch: the same in all."""
        return places

    def lengths(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and target lengths of some pairs."""
        source, target = (ends[places + 1] - ends[places] for ends in self._ends)
        return source, target

    def rows(self, side: int, places: np.ndarray) -> list[np.ndarray]:
        """The ids of some pairs on one side (0 source, 1 target)."""
        ids, ends = self._ids[side], self._ends[side]
        return [np.asarray(ids[start:end]) for start, end in zip(ends[places], ends[places + 1], strict=True)]

    @property
    def target_tokens(self) -> int:
        """Target tokens of all pairs, `</s>` included."""
        return int(self._ends[1][-1])


class SampledStore:
    """A store whose texts are segmented anew in every epoch, a function of (seed, epoch, pair) alone: subword sampling.

    What it numbers are draws: the pairs of epoch 0, then those of epoch 1, and so on. So the lengths that batches are
    made by are those of the very subwords that they will hold.
    """

    def __init__(self, store: Store, tokenizer: Tokenizer, config: TokensConfig, seed: int) -> None:
        self.store, self.config = store, config
        self.corpora, self.weights = store.corpora, store.weights
        self._subwords = tokenizer.source, tokenizer.target
        self._seeds = [random_bits(1, seed, side) for side in range(2)]

    def __len__(self) -> int:
        return len(self.store)

    def draws(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """What some pairs are called in an epoch."""
        return places + epoch * len(self)

    def lengths(self, draws: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and target lengths of some draws."""
        source, target = (np.array([len(row) for row in self.rows(side, draws)]) for side in range(2))
        return source, target

    def rows(self, side: int, draws: np.ndarray) -> list[list[int]]:
        """The ids of some draws on one side (0 source, 1 target)."""
        rows = [row.tolist() for row in self.store.rows(side, draws % len(self))]
        return self._subwords[side].sample(rows, self.config, stirred(draws.astype(np.uint64) + self._seeds[side]))


def store_key(corpora: Sequence[CorpusFiles], tokenizer: Tokenizer, config: DataConfig) -> str:
    """A name that changes with anything that would change the ids."""
    facts = {
        "version": STORE_VERSION,
        "files": [[digest(path) for path in (files.source, files.target) if path] for files in corpora],
        "weights": [files.weight for files in corpora],
        "models": [hashlib.sha256(side.model).hexdigest() for side in (tokenizer.source, tokenizer.target)],
        "limits": [config.max_chars, config.max_length, config.on_bad_line],
    }
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def open_store(
    parent: Path,
    corpora: Sequence[CorpusFiles],
    tokenizer: Tokenizer,
    config: DataConfig,
    advance: Callable[[int], None] = lambda count: None,
) -> Store:
    """The token store of some corpora: the one that is there if nothing changed and it is whole, else built anew."""
    folder = parent / f"store-{store_key(corpora, tokenizer, config)}"
    with suppress(InputError, OSError, ValueError, KeyError, TypeError):
        return Store(folder)
    building = parent / f"{folder.name}.{os.getpid()}.building"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir(parents=True)
    try:
        _build(building, corpora, tokenizer, config, advance)
        shutil.rmtree(folder, ignore_errors=True)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return Store(folder)


def _build(
    folder: Path,
    corpora: Sequence[CorpusFiles],
    tokenizer: Tokenizer,
    config: DataConfig,
    advance: Callable[[int], None],
) -> None:
    small = max(len(tokenizer.source), len(tokenizer.target)) <= 1 << 16
    dtype = np.dtype(np.uint16 if small else np.uint32)
    counts, over_length, findings = [], [], []
    with _SideWriter(folder / "src", dtype) as src, _SideWriter(folder / "tgt", dtype) as tgt:
        for files in corpora:
            before, found, over = len(src), Findings(name_of(files)), 0
            for chunk in chunks(read_pairs(files, config, found), 20_000):
                sources = tokenizer.source.encode_corpus([pair.source for pair in chunk], dtype, os.cpu_count() or 1)
                targets = tokenizer.target.encode_corpus([pair.target for pair in chunk], dtype, os.cpu_count() or 1)
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
    facts = {"dtype": dtype.name, "corpora": counts, "weights": [files.weight for files in corpora]}
    facts |= {"over_length": over_length, "findings": findings}
    (folder / "store.json").write_text(json.dumps(facts))


def chunks(pairs: Iterable[Pair], size: int) -> Iterator[list[Pair]]:
    """Lists of at most `size` pairs."""
    iterator = iter(pairs)
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


def shuffled(places: np.ndarray, size: int, *key: int) -> np.ndarray:
    """Where a keyed permutation of `range(size)` sends `places`, without holding the permutation in memory.

    A Feistel network permutes the next power of four; what falls outside walks on until it is inside.
    """
    half_bits = max(1, (max(size - 1, 1).bit_length() + 1) // 2)
    low = np.uint64((1 << half_bits) - 1)
    round_keys = random_bits(4, *key)
    result = places.astype(np.uint64)
    outside = np.ones(len(result), dtype=bool)
    while outside.any():
        left, right = result[outside] >> np.uint64(half_bits), result[outside] & low
        for round_key in round_keys:
            mixed = (right ^ round_key) * np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
            left, right = right, left ^ ((mixed >> np.uint64(32)) & low)
        result[outside] = (left << np.uint64(half_bits)) | right
        outside = result >= size
    return result.astype(np.int64)


@dataclass
class Place:
    """Where in the endless stream of batches training is: it can go on from any of them."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


class Examples(Protocol):
    """What can be put into batches: so many of each corpus, how often each counts, how long each is."""

    @property
    def corpora(self) -> list[int]:
        """Examples of each corpus."""

    @property
    def weights(self) -> list[float]:
        """How often an epoch holds each example of a corpus."""

    def __len__(self) -> int: ...

    def draws(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """What some examples are called in an epoch."""

    def lengths(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and target lengths of some draws."""


class BatchStream:
    """Endless batches of a store. Their order is a function of (seed, epoch) alone."""

    def __init__(self, store: Examples, config: BatchesConfig, seed: int, place: Place | None = None) -> None:
        self.store, self.config, self.seed = store, config, seed
        self.place = place if place is not None else Place()
        self._sizes = [round(count * weight) for count, weight in zip(store.corpora, store.weights, strict=True)]
        if not sum(self._sizes):
            raise InputError("the weights of the corpora leave no pair to train on")
        self.pools = -(-sum(self._sizes) // config.pool)

    def plans(self) -> Iterator[tuple[np.ndarray, Place]]:
        """From the current place on: the pairs of each batch, and the place after it."""
        while True:
            plans = self.pool_plans(self.place.epoch, self.place.pool)
            while self.place.batch < len(plans):
                plan = plans[self.place.batch]
                self.place = Place(self.place.epoch, self.place.pool, self.place.batch + 1)
                if self.place.batch == len(plans):
                    last_pool = self.place.pool + 1 == self.pools
                    self.place = Place(self.place.epoch + last_pool, 0 if last_pool else self.place.pool + 1)
                    yield plan, self.place
                    break
                yield plan, self.place

    def pool_plans(self, epoch: int, pool: int) -> list[np.ndarray]:
        """The batches of one pool: pairs of like length together, batches in random order."""
        places = self.store.draws(self._places(epoch, pool), epoch)
        source, target = self.store.lengths(places)
        noise = random_bits(len(places), self.seed, epoch, pool, 1)
        order = np.lexsort((noise, source, target))
        bounds = budget_bounds(source[order], target[order], self.config.tokens)
        plans = [places[order[start:end]] for start, end in bounds]
        turn = np.argsort(random_bits(len(plans), self.seed, epoch, pool, 2), kind="stable")
        return [plans[number] for number in turn]

    def longest(self) -> np.ndarray:
        """The batch that asks for the most memory: the longest pairs, as many as the budget allows."""
        store: Examples = self.store.store if isinstance(self.store, SampledStore) else self.store
        chosen, widths = np.empty(0, np.int64), np.empty(0, np.int64)
        for start in range(0, len(store), 1 << 20):
            places = np.arange(start, min(start + (1 << 20), len(store)))
            chosen, widths = np.append(chosen, places), np.append(widths, np.maximum(*store.lengths(places)))
            order = np.argsort(-widths, kind="stable")[: max(1, self.config.tokens // int(widths.max()))]
            chosen, widths = chosen[order], widths[order]
        draws = self.store.draws(chosen, 0)
        return draws[: max(1, self.config.tokens // int(np.maximum(*self.store.lengths(draws)).max()))]

    def _places(self, epoch: int, pool: int) -> np.ndarray:
        """The pairs of a pool: a slice of the epoch's permutation over all corpora, each as often as its weight says."""
        total = sum(self._sizes)
        slots = np.arange(pool * self.config.pool, min((pool + 1) * self.config.pool, total))
        slots = shuffled(slots, total, self.seed, epoch)
        result = np.empty_like(slots)
        start = first = 0
        for number, (count, size) in enumerate(zip(self.store.corpora, self._sizes, strict=True)):
            here = (slots >= start) & (slots < start + size)
            for turn in range(-(-size // count) if count else 0):
                turn_slots = here & ((slots - start) // max(count, 1) == turn)
                inside = (slots[turn_slots] - start) % count
                result[turn_slots] = first + shuffled(inside, count, self.seed, epoch, number, turn)
            start, first = start + size, first + count
        return result


def budget_bounds(source: np.ndarray, target: np.ndarray, budget: int) -> list[tuple[int, int]]:
    """Cut sorted pairs into runs whose padded size stays within the budget on both sides (a run has at least one pair)."""
    bounds = []
    start = widest = 0
    for place, width in enumerate(np.maximum(source, target).tolist()):
        if place > start and max(widest, width) * (place - start + 1) > budget:
            bounds.append((start, place))
            start, widest = place, 0
        widest = max(widest, width)
    if len(source) > start:
        bounds.append((start, len(source)))
    return bounds


def load_batch(store: Store | SampledStore, places: np.ndarray) -> Batch:
    """The batch of some pairs."""
    return make_batch(store.rows(0, places), store.rows(1, places))
