"""What a run consists of and a checkpoint holds: model, optimizer, averages, counters, the place in the data. [paper 5]"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor, nn

from undivided.artifact.weights import weights
from undivided.config import Recipe
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.nn.device import choose_device
from undivided.training import checkpoint
from undivided.training.distributed import Group, full_tensor, local_rows, shard_like
from undivided.training.gradients import GradientWorkers
from undivided.training.journal import RunState
from undivided.training.schedule import make_optimizer
from undivided.training.tasks import Task, make_task


def make_workers(recipe: Recipe, task: Task, group: Group) -> GradientWorkers:
    """What computes gradients: with the whole model in each process or, where asked, a part of it."""
    if not recipe.train.shard or group.size == 1:
        return GradientWorkers(recipe, task, group)
    from undivided.training.fsdp import FsdpWorkers

    return FsdpWorkers(recipe, task, group)


class Run:
    """A model in training, in one process or cut over several, that can be saved and restored."""

    def __init__(self, recipe: Recipe, out: Path, console: Console, group: Group | None = None) -> None:
        self.recipe, self.config, self.console = recipe, recipe.train, console
        self.out, self.folder = out, out / "training"
        self.group = group or Group(device=choose_device(self.config.device))
        self.device = self.group.device
        torch.manual_seed(self.config.seed)
        self.task = make_task(recipe, self.folder, self.device, console)
        self.model = self.task.model
        self.group.broadcast([parameter.detach() for parameter in self.model.parameters()])
        self.names = [name for name, _ in self.model.named_parameters()]
        self.shared = self.config.shard and self.group.size > 1
        self.workers = make_workers(recipe, self.task, self.group)
        self.parameters = list(self.model.parameters())
        self.optimizer = make_optimizer(self.model, self.config)
        self.scaler = self.workers.scaler
        self.ema = [local_rows(p.detach()).clone() for p in self.parameters] if self.config.ema else []
        self.state = RunState()

    def size(self) -> int:
        """How many weights the model has."""
        return sum(parameter.numel() for parameter in self.parameters)

    def is_sound(self) -> bool:
        """Whether all weights are finite: others are never saved."""
        sound = all(bool(local_rows(parameter.detach()).isfinite().all()) for parameter in self.parameters)
        return bool(self.group.min_values(sound)[0])

    @contextmanager
    def averaged(self) -> Iterator[nn.Module]:
        """For a while, the task has a whole model with the running-average weights, if such are kept, else with its own."""
        model = self._gathered() if self.shared else self.model
        own = [p.detach().clone() for p in self.parameters] if self.ema and not self.shared else []
        _assign(model, self.ema if own else [])
        self.task.use(model.eval())
        try:
            yield model
        finally:
            self.task.use(self.model)
            _assign(self.model, own)
            self.model.train()

    def _gathered(self) -> nn.Module:
        """A model of its own with all weights; those of a process that does not lead stay as they were made."""
        with torch.random.fork_rng(devices=[]):
            model = self.task.fresh_model()
        parts = (
            [shard_like(rows, own) for rows, own in zip(self.ema, self.parameters, strict=True)] if self.ema else self.parameters
        )
        with torch.no_grad():
            for part, parameter in zip(parts, model.parameters(), strict=True):
                full = full_tensor(part)
                if self.group.is_main:
                    parameter.copy_(full)
        return model

    def snapshot(self) -> checkpoint.Checkpoint:
        """Everything that it takes to go on from here. The tensors are those of the run, not copies."""
        optimizer = checkpoint.optimizer_tensors(self.optimizer, self.names)
        tensors = {
            "model": {name: local_rows(tensor) for name, tensor in weights(self.model).items()},
            "optimizer": {name: local_rows(tensor) for name, tensor in optimizer.items()},
            "random": checkpoint.random_tensors(),
        }
        if self.ema:
            tensors["ema"] = dict(zip(self.names, self.ema, strict=True))
        return checkpoint.Checkpoint(asdict(self.state) | {"scaler": self.scaler.state_dict()}, tensors)

    def save(self) -> None:
        """Write a checkpoint, then remove what is too old."""
        folder = self.folder / "checkpoints"
        if self.shared:
            checkpoint.write_together(folder, self.state.step, self.snapshot(), self.group)
        elif self.group.is_main:
            checkpoint.write(folder, self.state.step, self.snapshot())
        if self.group.is_main:
            best = self.state.best_step if self.config.keep_best else 0
            keep = max(self.config.keep_last, self.config.average)
            checkpoint.prune(folder, keep, self.console, best, self.config.save_every)

    def newest(self) -> checkpoint.Checkpoint | None:
        """The newest whole checkpoint, the same in all processes: one looks for it."""
        folder = self.folder / "checkpoints"
        rows = self.group if self.shared else None
        found = checkpoint.newest(folder, self.console, rows) if self.group.is_main else None
        (step,) = self.group.broadcast_values(-1 if found is None else found.state["step"])
        return checkpoint.read(checkpoint.path_of(folder, int(step)), rows) if found is None and step >= 0 else found

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Be again where a checkpoint was written."""
        checkpoint.fill_model(self.model, found.tensors["model"])
        own = dict(self.model.named_parameters())
        fitted = found.tensors["optimizer"]
        checkpoint.fill_optimizer(self.optimizer, self.names, fitted, lambda name, rows: shard_like(rows, own[name]))
        checkpoint.fill_random(found.tensors["random"])
        if self.ema:
            self.ema = [found.tensors["ema"][name].clone().to(self.device) for name in self.names]
        state = dict(found.state)
        self.scaler.load_state_dict(state.pop("scaler"))
        try:
            self.state = RunState.from_values(state)
        except (TypeError, KeyError) as error:
            raise InputError(f"{self.out}: begun with another version of undivided, whose checkpoints differ: {error}") from None
        self.task.stream.place = dataclasses.replace(self.state.place)


def _assign(model: nn.Module, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, tensor in zip(model.parameters(), tensors, strict=False):
            parameter.copy_(tensor)
