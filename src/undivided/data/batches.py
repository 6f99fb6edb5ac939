"""Ids → batches by token budget: bucketed by length, in an order that can be resumed. [paper 5.1]"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar, Protocol, Self

import numpy as np
import torch
from torch import Tensor

from undivided.config import BatchesConfig
from undivided.core.errors import InputError
from undivided.core.ids import BOS, PAD
from undivided.core.random import random_bits
from undivided.data.store import SampledStore, Store


@dataclass(frozen=True)
class Batch(ABC):
    """Examples that are learned from at once: tensors whose first dimension numbers the examples."""

    memory_advice: ClassVar[str]
    """What helps where not even one example fits into memory."""

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, item.name) for item in fields(self)]

    def __len__(self) -> int:
        return len(self._tensors()[0])

    @property
    def size(self) -> int:
        """Elements of the largest tensor, padding included; of text these are the tokens that the budget counts."""
        return max(tensor.numel() for tensor in self._tensors())

    def to(self, device: torch.device) -> Self:
        """The same batch on another device; the copy overlaps with work where the memory is pinned."""
        if device.type == "cpu":
            return self
        pinned = [tensor.pin_memory() if device.type == "cuda" else tensor for tensor in self._tensors()]
        return type(self)(*(tensor.to(device, non_blocking=True) for tensor in pinned))

    def split(self) -> tuple[Self, Self]:
        """Two halves, for when the batch does not fit into memory."""
        half, tensors = len(self) // 2, self._tensors()
        return type(self)(*(tensor[:half] for tensor in tensors)), type(self)(*(tensor[half:] for tensor in tensors))

    @abstractmethod
    def describe_example(self) -> str:
        """One example in words, for a message."""


@dataclass(frozen=True)
class PairBatch(Batch):
    """Pairs as padded ids. `tgt_in` is `tgt_out` shifted right behind `<s>`. [paper 3.1]"""

    src: Tensor  # B S
    tgt_in: Tensor  # B T
    tgt_out: Tensor  # B T

    memory_advice = "train a smaller model, or start over with a lower data.max_length"

    @property
    def src_mask(self) -> Tensor:
        """True where a source token is real."""
        return self.src != PAD

    def repeat(self) -> PairBatch:
        """All pairs, and below them the same again."""
        return PairBatch(*(torch.cat([part, part]) for part in (self.src, self.tgt_in, self.tgt_out)))

    def describe_example(self) -> str:
        """Both lengths of a pair."""
        return f"one pair of {self.src.shape[1]} and {self.tgt_out.shape[1]} subwords"


@dataclass(frozen=True)
class TextBatch(Batch):
    """Texts as padded ids, and what is to be predicted: a token at each place (`<pad>` is none), or a class for each text."""

    tokens: Tensor  # B T
    labels: Tensor  # B T or B

    memory_advice = "train a smaller model, or start over with a lower data.max_length"

    @property
    def mask(self) -> Tensor:
        """True where a token is real."""
        return self.tokens != PAD

    def describe_example(self) -> str:
        """The length of a text."""
        return f"one text of {self.tokens.shape[1]} subwords"


@dataclass(frozen=True)
class ImageBatch(Batch):
    """Images, and for each the number of its class or the padded ids of its caption."""

    images: Tensor  # B C Y X
    labels: Tensor  # B or B T

    memory_advice = "train a smaller model, or start over with smaller images or larger patches (model.patch)"

    def describe_example(self) -> str:
        """The size of an image."""
        return f"one image of {self.images.shape[2]} × {self.images.shape[3]} pixels"


def pad_rows(rows: Sequence[Sequence[int] | np.ndarray]) -> Tensor:
    """Rows of ids as one tensor, filled with `<pad>` at the end."""
    width = max(len(row) for row in rows)
    table = np.full((len(rows), width), PAD, dtype=np.int64)
    for number, row in enumerate(rows):
        table[number, : len(row)] = row
    return torch.from_numpy(table)


def make_batch(sources: Sequence[Sequence[int] | np.ndarray], targets: Sequence[Sequence[int] | np.ndarray]) -> PairBatch:
    """A batch from rows of ids, each closed by `</s>`."""
    tgt_out = pad_rows(targets)
    tgt_in = tgt_out.roll(1, dims=1)
    tgt_in[:, 0] = BOS
    ends = torch.tensor([len(row) for row in targets])
    tgt_in[torch.arange(tgt_in.shape[1]) >= ends[:, None]] = PAD
    return PairBatch(pad_rows(sources), tgt_in, tgt_out)


def permute(places: np.ndarray, size: int, *key: int) -> np.ndarray:
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
class StreamPosition:
    """Where in the endless stream of batches training is; it can resume at any of them."""

    epoch: int = 0
    pool: int = 0
    batch: int = 0


class Examples(Protocol):
    """What can be put into batches: how many examples a corpus has, how often each counts, how long each is."""

    @property
    def corpora(self) -> list[int]:
        """Examples of each corpus."""

    @property
    def weights(self) -> list[float]:
        """How often an epoch holds each example of a corpus."""

    def __len__(self) -> int: ...

    def draws(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """The numbers that some examples go by in an epoch."""

    def lengths(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Source and target lengths of some draws."""


class BatchStream:
    """Endless batches of a store. Their order is a function of (seed, epoch) alone."""

    def __init__(self, store: Examples, config: BatchesConfig, seed: int, place: StreamPosition | None = None) -> None:
        self.store, self.config, self.seed = store, config, seed
        self.place = place if place is not None else StreamPosition()
        self._sizes = [round(count * weight) for count, weight in zip(store.corpora, store.weights, strict=True)]
        if not sum(self._sizes):
            raise InputError("the weights of the corpora (data.train) leave no pair to train on; raise one of them")
        self.pools = -(-sum(self._sizes) // config.pool)

    def plans(self) -> Iterator[tuple[np.ndarray, StreamPosition]]:
        """From the current position on: the pairs of each batch, and the position after it."""
        while True:
            plans = self.pool_plans(self.place.epoch, self.place.pool)
            while self.place.batch < len(plans):
                plan = plans[self.place.batch]
                self.place = StreamPosition(self.place.epoch, self.place.pool, self.place.batch + 1)
                if self.place.batch == len(plans):
                    last_pool = self.place.pool + 1 == self.pools
                    self.place = StreamPosition(self.place.epoch + last_pool, 0 if last_pool else self.place.pool + 1)
                    yield plan, self.place
                    break
                yield plan, self.place

    def pool_plans(self, epoch: int, pool: int) -> list[np.ndarray]:
        """The batches of one pool: pairs of similar length together, batches in random order."""
        places = self.store.draws(self._places(epoch, pool), epoch)
        source, target = self.store.lengths(places)
        noise = random_bits(len(places), self.seed, epoch, pool, 1)
        order = np.lexsort((noise, source, target))
        bounds = budget_bounds(source[order], target[order], self.config.tokens)
        plans = [places[order[start:end]] for start, end in bounds]
        turn = np.argsort(random_bits(len(plans), self.seed, epoch, pool, 2), kind="stable")
        return [plans[number] for number in turn]

    def longest(self) -> np.ndarray:
        """The batch that needs the most memory: the longest pairs, as many as the budget allows."""
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
        slots = permute(slots, total, self.seed, epoch)
        result = np.empty_like(slots)
        start = first = 0
        for number, (count, size) in enumerate(zip(self.store.corpora, self._sizes, strict=True)):
            here = (slots >= start) & (slots < start + size)
            turns = (slots - start) // max(count, 1)
            for turn in np.unique(turns[here]).tolist():
                turn_slots = here & (turns == turn)
                inside = (slots[turn_slots] - start) % count
                result[turn_slots] = first + permute(inside, count, self.seed, epoch, number, turn)
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


def load_batch(store: Store | SampledStore, places: np.ndarray) -> PairBatch:
    """The batch of some pairs."""
    return make_batch(store.rows(0, places), store.rows(1, places))
