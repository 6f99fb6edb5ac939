"""The gradient of a step: its parts computed by threads and processes, cut smaller where memory does not suffice. [paper 5.1]"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from undivided.config import Recipe
from undivided.core.errors import UndividedError
from undivided.core.random import random_bits
from undivided.data.batches import Batch
from undivided.nn.backend import bfloat16_products, choose_precision
from undivided.nn.device import ThreadPool, one_thread
from undivided.nn.dropout import seeded_dropout
from undivided.training.distributed import Group
from undivided.training.tasks import Task


class GradientSum(NamedTuple):
    """What one part of a step gives: sums over its target tokens."""

    gradients: list[Tensor]
    loss: float
    likelihood: float
    tokens: int
    fits: int
    """The largest batch that memory suffices for, as far as it is known; 0 is any."""

    def plus(self, other: GradientSum) -> GradientSum:
        """Both; the gradients are added in place."""
        torch._foreach_add_(self.gradients, other.gradients)
        fits = min(self.fits or other.fits, other.fits or self.fits)
        return GradientSum(
            self.gradients, self.loss + other.loss, self.likelihood + other.likelihood, self.tokens + other.tokens, fits
        )


class GradientWorkers:
    """The threads of this process, beside other processes. A step is the same whoever computes which part of it."""

    def __init__(self, recipe: Recipe, task: Task, group: Group) -> None:
        self.recipe, self.task, self.group, self.device = recipe, task, group, group.device
        self.precision = choose_precision(recipe.train.precision, self.device)
        # What does not pay in one process is done in none: a step is the same whoever computes it.
        if recipe.train.precision == "auto" and not all(group.min_values(float(self.precision is torch.bfloat16))):
            self.precision = torch.float32
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision is torch.float16)
        self.crew = ThreadPool(torch.get_num_threads() if self.device.type == "cpu" else 1)

    def split_micro_batches(self, batches: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The pairs of each batch dealt out: the same parts for any number of threads and processes."""
        parts = self.recipe.batches.parts or self.crew.size
        return [batch[part::parts] for batch in batches for part in range(min(parts, len(batch)))]

    def gradient(self, step: int, batches: Sequence[np.ndarray], fits: int) -> GradientSum:
        """Of all batches of a step, over all processes: sums, but the gradients are those of the mean over target tokens."""
        own = list(enumerate(self.split_micro_batches(batches)))[self.group.rank :: self.group.size]
        parts = self.crew.map(lambda numbered: self._part(step, fits, *numbered), own)
        with one_thread():
            return self._joined(self._add(parts))

    def _joined(self, total: GradientSum) -> GradientSum:
        """With what other processes have computed."""
        self.group.all_reduce_sum(total.gradients)
        loss, likelihood, tokens = self.group.sum_values(total.loss, total.likelihood, total.tokens)
        # A limit that one process met holds for all: whoever computes a part, it is cut in the same way.
        (limit,) = self.group.min_values(total.fits or math.inf)
        torch._foreach_mul_(total.gradients, self.recipe.batches.tokens / tokens)
        return GradientSum(total.gradients, loss, likelihood, int(tokens), 0 if math.isinf(limit) else int(limit))

    def _add(self, parts: Sequence[GradientSum]) -> GradientSum:
        if not parts:
            return GradientSum([torch.zeros_like(parameter) for parameter in self.task.model.parameters()], 0.0, 0.0, 0, 0)
        total = parts[0]
        for part in parts[1:]:
            total = total.plus(part)
        return total

    def _part(self, step: int, fits: int, number: int, shard: np.ndarray) -> GradientSum:
        key = (self.recipe.train.seed, step, number)
        return self._within_memory(self.task.load(shard), key, fits)

    def _within_memory(self, batch: Batch, key: tuple[int, ...], fits: int) -> GradientSum:
        """A batch as a whole or, where memory does not suffice, in halves: their gradients add up to the same.

        Only dropout draws its masks anew for a half.
        """
        single = len(batch.src) == 1
        if single or not fits or batch.size <= fits:
            try:
                return self._whole(batch, key, fits)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if single:
                    raise UndividedError(
                        f"memory does not suffice for one pair of {batch.src.shape[1]} and {batch.tgt_out.shape[1]} subwords: "
                        "train a smaller model, or begin anew with a lower data.max_length"
                    ) from None
            # Not before here is the memory of the failed attempt free.
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            fits = max(half.size for half in batch.split())
        first, second = (self._within_memory(half, (*key, number), fits) for number, half in enumerate(batch.split()))
        return first.plus(second)

    def _whole(self, batch: Batch, key: tuple[int, ...], fits: int) -> GradientSum:
        """The loss of a batch as a sum over its tokens, and its gradients over the token budget. [paper 3.1, 5.4]"""
        with self.half(), self.seeded(key):
            loss, likelihood, tokens = self.task.loss(batch)
        # Over the budget, not yet over the tokens of the step: float16 gradients of a bare sum would overflow.
        scaled = self.scaler.scale(loss / self.recipe.batches.tokens)
        gradients = torch.autograd.grad(scaled, list(self.task.model.parameters()))
        return GradientSum(list(gradients), float(loss.detach()), float(likelihood), tokens, fits)

    def half(self) -> AbstractContextManager[object]:
        """Within, products are in half precision if that is asked for."""
        if self.device.type == "cpu":
            return bfloat16_products(self.precision is torch.bfloat16)
        return torch.autocast(self.device.type, self.precision, enabled=self.precision is not torch.float32)

    @contextmanager
    def seeded(self, key: tuple[int, ...]) -> Iterator[None]:
        """Within, dropout is a function of the key: on a CPU that of this thread, elsewhere that of the device."""
        seed = int(random_bits(1, *key)[0])
        if self.device.type == "cpu":
            with seeded_dropout(seed):
                yield
        else:
            torch.manual_seed(seed % (1 << 63))
            yield

    def probe_memory(self, fits: int) -> int:
        """What memory suffices for, found by the batch that asks for the most; its gradient is thrown away."""
        # The averages that Adam will keep, which the first step has not made yet.
        ballast = [torch.empty_like(parameter) for parameter in self.task.model.parameters() for _ in range(2)]
        batches = [self.task.stream.longest()] * min(self.group.size, self.recipe.batches.accumulate)
        fits = self.gradient(0, batches, fits).fits
        del ballast
        return fits


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory did not suffice, on a GPU or here."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
