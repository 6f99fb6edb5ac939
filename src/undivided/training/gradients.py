"""The gradient of a step: micro-batches computed by threads and processes, split where memory runs out. [paper 5.1]"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

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
    """Gradients, loss and likelihood of some micro-batches: sums over their target tokens."""

    gradients: list[Tensor]
    loss: float
    likelihood: float
    tokens: int
    fits: int
    """The largest batch that fits into memory, as far as is known; 0 is no limit."""

    def add(self, other: GradientSum) -> GradientSum:
        """The sum of both; the gradients are added in place."""
        torch._foreach_add_(self.gradients, other.gradients)
        fits = min(self.fits or other.fits, other.fits or self.fits)
        return GradientSum(
            self.gradients, self.loss + other.loss, self.likelihood + other.likelihood, self.tokens + other.tokens, fits
        )


class GradientWorkers:
    """The threads of this process, beside other processes. A step is the same whoever computes which micro-batch."""

    def __init__(self, recipe: Recipe, task: Task[Any], group: Group) -> None:
        self.recipe, self.task, self.group, self.device = recipe, task, group, group.device
        self.precision = choose_precision(recipe.train.precision, self.device)
        # What does not pay in one process is done in none: a step is the same whoever computes it.
        if recipe.train.precision == "auto" and not all(group.min_values(float(self.precision is torch.bfloat16))):
            self.precision = torch.float32
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision is torch.float16)
        self.pool = ThreadPool(torch.get_num_threads() if self.device.type == "cpu" else 1)

    def split_micro_batches(self, batches: Sequence[np.ndarray]) -> list[np.ndarray]:
        """The batches of a step cut into micro-batches: the same ones for any number of threads and processes."""
        parts = self.recipe.batches.parts or self.pool.size
        return [batch[part::parts] for batch in batches for part in range(min(parts, len(batch)))]

    def gradient(self, step: int, batches: Sequence[np.ndarray], fits: int) -> GradientSum:
        """Sums over all batches of a step and all processes, but the gradients are those of the mean over target tokens."""
        own = list(enumerate(self.split_micro_batches(batches)))[self.group.rank :: self.group.size]
        sums = self.pool.map(lambda numbered: self._micro_batch(step, fits, *numbered), own)
        with one_thread():
            return self._all_reduce(self._add(sums))

    def _all_reduce(self, total: GradientSum) -> GradientSum:
        """The sum over all processes."""
        self.group.all_reduce_sum(total.gradients)
        loss, likelihood, tokens = self.group.sum_values(total.loss, total.likelihood, total.tokens)
        # A limit that one process met holds for all: whoever computes a micro-batch, it is split in the same way.
        (limit,) = self.group.min_values(total.fits or math.inf)
        torch._foreach_mul_(total.gradients, self.recipe.batches.tokens / tokens)
        return GradientSum(total.gradients, loss, likelihood, int(tokens), 0 if math.isinf(limit) else int(limit))

    def _add(self, sums: Sequence[GradientSum]) -> GradientSum:
        if not sums:
            return GradientSum([torch.zeros_like(parameter) for parameter in self.task.model.parameters()], 0.0, 0.0, 0, 0)
        total = sums[0]
        for each in sums[1:]:
            total = total.add(each)
        return total

    def _micro_batch(self, step: int, fits: int, number: int, draws: np.ndarray) -> GradientSum:
        key = (self.recipe.train.seed, step, number)
        return self._within_memory(self.task.load(draws), key, fits)

    def _within_memory(self, batch: Batch, key: tuple[int, ...], fits: int) -> GradientSum:
        """The gradients of a batch as a whole or, where memory runs out, of its halves: they add up to the same.

        Only dropout differs: a half has masks of its own.
        """
        single = len(batch) == 1
        if single or not fits or batch.size <= fits:
            try:
                return self._differentiate(batch, key, fits)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                if single:
                    raise UndividedError(f"out of memory for {batch.describe_example()}: {batch.memory_advice}") from None
            # Only here is the memory of the failed attempt free.
            if self.device.type == "cuda":
                torch.cuda.empty_cache()
            fits = max(half.size for half in batch.split())
        first, second = (self._within_memory(half, (*key, number), fits) for number, half in enumerate(batch.split()))
        return first.add(second)

    def _differentiate(self, batch: Batch, key: tuple[int, ...], fits: int) -> GradientSum:
        """The loss of a batch as a sum over its tokens, and its gradients over the token budget. [paper 3.1, 5.4]"""
        with self.half_precision(), self.seed_dropout(key):
            loss, likelihood, tokens = self.task.loss(batch)
        # Over the budget, not yet over the tokens of the step: float16 gradients of a bare sum would overflow.
        scaled = self.scaler.scale(loss / self.recipe.batches.tokens)
        # The fused Adam of a CPU reads the numbers of a gradient in a row, whatever its strides are.
        gradients = [each.contiguous() for each in torch.autograd.grad(scaled, list(self.task.model.parameters()))]
        return GradientSum(gradients, float(loss.detach()), float(likelihood), tokens, fits)

    def half_precision(self) -> AbstractContextManager[object]:
        """Within, products are in half precision if that is asked for."""
        if self.device.type == "cpu":
            return bfloat16_products(self.precision is torch.bfloat16)
        return torch.autocast(self.device.type, self.precision, enabled=self.precision is not torch.float32)

    @contextmanager
    def seed_dropout(self, key: tuple[int, ...]) -> Iterator[None]:
        """Within, dropout is a function of the key: on a CPU that of this thread, elsewhere that of the device."""
        seed = int(random_bits(1, *key)[0])
        if self.device.type == "cpu":
            with seeded_dropout(seed):
                yield
        else:
            torch.manual_seed(seed % (1 << 63))
            yield

    def probe_memory(self, fits: int) -> int:
        """The largest batch that fits into memory, found with the one that needs the most; its gradient is thrown away."""
        # As much as the averages that Adam will keep, which do not exist before the first step.
        ballast = [torch.empty_like(parameter) for parameter in self.task.model.parameters() for _ in range(2)]
        batches = [self.task.stream.longest()] * min(self.group.size, self.recipe.batches.accumulate)
        fits = self.gradient(0, batches, fits).fits
        del ballast
        return fits


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out, on a GPU or here."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)
