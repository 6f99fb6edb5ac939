"""FSDP2: weights, gradients and optimizer state cut over processes, for models that one device cannot hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from undivided.config import Recipe
from undivided.core.errors import InputError, UndividedError
from undivided.data.batches import Batch
from undivided.nn.device import ThreadPool
from undivided.training.distributed import Group
from undivided.training.gradients import GradientSum, GradientWorkers, is_out_of_memory
from undivided.training.tasks import BatchLoss, Task


class _LossModule(nn.Module):
    """A task's loss as a module: all that it does with the weights, it does within one `forward`."""

    def __init__(self, task: Task[Any]) -> None:
        super().__init__()
        self.task, self.model = task, task.model

    def forward(self, batch: Batch) -> BatchLoss:
        return self.task.loss(batch)


class FsdpWorkers(GradientWorkers):
    """Processes that hold a part of the weights each, and gather the others layer by layer when they need them.

    Differs from `GradientWorkers`: a process computes with one worker, and a batch that does not fit into memory ends the run,
    because the other processes wait in the middle of it.
    """

    def __init__(self, recipe: Recipe, task: Task[Any], group: Group) -> None:
        if recipe.train.precision == "float16":
            raise InputError("train.precision: float16 does not work with train.shard; use bfloat16 or float32")
        super().__init__(recipe, task, group)
        self.pool = ThreadPool(1)
        mesh = init_device_mesh(self.device.type, (group.size,))
        for unit in _units(task.model):
            fully_shard(unit, mesh=mesh)
        self.loss = _LossModule(task)
        self.root = fully_shard(self.loss, mesh=mesh)

    def gradient(self, step: int, batches: Sequence[np.ndarray], fits: int) -> GradientSum:
        """The same as with the full model in each process; gradients are reduced once a step, after the last micro-batch."""
        micro_batches = list(enumerate(self.split_micro_batches(batches)))
        own, turns = micro_batches[self.group.rank :: self.group.size], -(-len(micro_batches) // self.group.size)
        loss = likelihood = tokens = 0.0
        for turn in range(turns):
            self.root.set_requires_gradient_sync(turn == turns - 1)
            # All processes take as many turns: one that has no micro-batch left takes the first again, and it counts nothing.
            counts = turn < len(own)
            found = self._backward(step, *(own[turn] if counts else micro_batches[0]), counts)
            loss, likelihood, tokens = loss + found[0], likelihood + found[1], tokens + found[2]
        loss, likelihood, tokens = self.group.sum_values(loss, likelihood, tokens)
        gradients = [parameter.grad for parameter in self.task.model.parameters() if parameter.grad is not None]
        # The mean over processes is what FSDP2 gives, the sum is what we want.
        torch._foreach_mul_(gradients, self.group.size * self.recipe.batches.tokens / tokens)
        return GradientSum(gradients, loss, likelihood, int(tokens), fits)

    def _backward(self, step: int, number: int, draws: np.ndarray, counts: bool) -> tuple[float, float, int]:
        key = (self.recipe.train.seed, step, number)
        try:
            with self.half_precision(), self.seed_dropout(key):
                loss, likelihood, tokens = self.loss(self.task.load(draws))
            (loss * (counts / self.recipe.batches.tokens)).backward()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise UndividedError(
                "out of memory for a micro-batch: start over with a lower batches.tokens and a higher batches.accumulate"
            ) from None
        return (float(loss.detach()), float(likelihood), tokens) if counts else (0.0, 0.0, 0)

    def probe_memory(self, fits: int) -> int:
        """Try the batch that needs the most memory; its gradient is thrown away."""
        super().probe_memory(fits)
        self.task.model.zero_grad(set_to_none=True)
        return fits


def _units(model: nn.Module) -> Iterator[nn.Module]:
    """The modules that are gathered one after the other: layers and, before each, the part of it that others read."""
    for layers in (getattr(model, "encoder", None), getattr(model, "decoder", None)):
        for layer in layers if isinstance(layers, nn.ModuleList) else ():
            across = getattr(layer, "cross_attention", None)
            if across is not None:
                yield across.key_value
            yield layer
