"""What a run consists of and a checkpoint holds: model, optimizer, averages, counters, position in the data. [paper 5]"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import Tensor, nn

from undivided.artifact.weights import weights
from undivided.config import Recipe
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.models import Seq2Seq
from undivided.training import checkpoint, snapshots
from undivided.training.distributed import Group, cut_like, full_tensor, local_rows, shard_like
from undivided.training.fisher import load_or_measure_fisher
from undivided.training.gradients import GradientWorkers
from undivided.training.journal import RunState
from undivided.training.prepare import Prepared
from undivided.training.schedule import make_optimizer
from undivided.training.tasks import Task, make_task


def make_workers(recipe: Recipe, task: Task[Any], group: Group) -> GradientWorkers:
    """What computes gradients: with the full model in each process or, with `train.shard`, a part of it."""
    if not recipe.train.shard or group.size == 1:
        return GradientWorkers(recipe, task, group)
    from undivided.training.fsdp import FsdpWorkers

    return FsdpWorkers(recipe, task, group)


class Run:
    """A model in training, in one process or cut over several, that can be saved and restored."""

    def __init__(self, prepared: Prepared, console: Console, group: Group) -> None:
        self.prepared, self.config, self.console, self.group = prepared, prepared.recipe.train, console, group
        torch.manual_seed(self.config.seed)
        self.task = make_task(prepared, group.device, console)
        self.model = self.task.model
        self.group.broadcast([parameter.detach() for parameter in self.model.parameters()])
        self.names = [name for name, _ in self.model.named_parameters()]
        fisher = load_or_measure_fisher(prepared, cast("Seq2Seq", self.model), group, console) if self.config.ewc else []
        self.is_sharded = self.config.shard and group.size > 1
        self.workers = make_workers(prepared.recipe, self.task, group)
        self.parameters = list(self.model.parameters())
        self.optimizer = make_optimizer(self.model, self.config)
        self.scaler = self.workers.scaler
        pulled = self.config.pull or self.config.ewc
        self.pulls_to = [local_rows(p.detach()).clone() for p in self.parameters] if pulled else []
        """The weights that fine-tuning starts from, where it is pulled back to them."""
        self.fisher = [cut_like(full, own) for full, own in zip(fisher, self.parameters, strict=bool(fisher))]
        """How much each weight matters to what the model knew, on average 1; empty without `train.ewc`."""
        self.ema = [local_rows(p.detach()).clone() for p in self.parameters] if self.config.ema else []
        self.state = RunState()
        self.checkpoints = prepared.folder / "checkpoints"
        self.snapshots = prepared.folder / snapshots.FOLDER

    def count_parameters(self) -> int:
        """How many weights the model has."""
        return sum(parameter.numel() for parameter in self.parameters)

    def pull_back(self, rate: float) -> None:
        """Undo a share of the way that the weights have gone from where fine-tuning started, decoupled from Adam.

        `train.pull` is L2-SP. `train.ewc` is elastic weight consolidation (Kirkpatrick et al., 2017): the proximal step of
        ewc/2 · Σ F (w − w₀)², which for small rates is that along its gradient and for none goes past w₀.
        """
        if not self.pulls_to:
            return
        own = [local_rows(parameter.detach()) for parameter in self.parameters]
        torch._foreach_lerp_(own, self.pulls_to, min(1.0, rate * self.config.pull))
        for weight, start, fisher in zip(own, self.pulls_to, self.fisher, strict=False):
            strength = fisher * (rate * self.config.ewc)
            weight.lerp_(start, strength / (1 + strength))

    def is_finite(self) -> bool:
        """Whether all weights are finite: others are never saved."""
        finite = all(bool(local_rows(parameter.detach()).isfinite().all()) for parameter in self.parameters)
        return bool(self.group.min_values(finite)[0])

    @contextmanager
    def averaged_model(self) -> Iterator[nn.Module]:
        """Within, the task uses a full model with the running-average weights, if these are kept, else with the current ones."""
        model = self._gather_model() if self.is_sharded else self.model
        own = [p.detach().clone() for p in self.parameters] if self.ema and not self.is_sharded else []
        _assign(model, self.ema if own else [])
        self.task.use(model.eval())
        try:
            yield model
        finally:
            self.task.use(self.model)
            _assign(self.model, own)
            self.model.train()

    def _gather_model(self) -> nn.Module:
        """A second model with all weights; in a process that is not the main one it keeps its initial weights."""
        with torch.random.fork_rng(devices=[]):
            model = self.task.make_model()
        parts = (
            [shard_like(rows, own) for rows, own in zip(self.ema, self.parameters, strict=True)] if self.ema else self.parameters
        )
        with torch.no_grad():
            for part, parameter in zip(parts, model.parameters(), strict=True):
                full = full_tensor(part)
                if self.group.is_main:
                    parameter.copy_(full)
        return model

    def to_checkpoint(self) -> checkpoint.Checkpoint:
        """Everything it takes to resume from here. The tensors are those of the run, not copies."""
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
        if self.is_sharded:
            checkpoint.write_together(self.checkpoints, self.state.step, self.to_checkpoint(), self.group)
        elif self.group.is_main:
            checkpoint.write(self.checkpoints, self.state.step, self.to_checkpoint())
        if self.group.is_main:
            best = self.state.best_step if self.config.keep_best else 0
            keep = max(self.config.keep_last, self.config.average)
            checkpoint.prune(self.checkpoints, keep, self.console, best, self.config.save_every)

    def is_snapshot_due(self) -> bool:
        """Whether the weights of this step are kept for `look --training`."""
        return snapshots.is_due(self.state.step, self.config.snapshots)

    def keep_snapshot(self) -> None:
        """Keep the weights of this step, where they are due, with half the precision."""
        if self.is_snapshot_due():
            with self.averaged_model() as model:
                if self.group.is_main:
                    snapshots.keep(self.snapshots, self.state.step, weights(model), self.config.snapshots, self.console)

    def newest_checkpoint(self) -> checkpoint.Checkpoint | None:
        """The newest complete checkpoint, the same in all processes: the main one looks for it."""
        rows = self.group if self.is_sharded else None
        found = checkpoint.newest(self.checkpoints, self.console, rows) if self.group.is_main else None
        (step,) = self.group.broadcast_values(-1 if found is None else found.state["step"])
        return checkpoint.read(checkpoint.path_of(self.checkpoints, int(step)), rows) if found is None and step >= 0 else found

    def return_to(self, found: checkpoint.Checkpoint) -> None:
        """Train on from where a checkpoint was written, without the snapshots after it: they may come out otherwise now."""
        self.restore(found)
        if self.group.is_main:
            snapshots.remove_later(self.snapshots, self.state.step)

    def restore(self, found: checkpoint.Checkpoint) -> None:
        """Return to where a checkpoint was written."""
        checkpoint.fill_model(self.model, found.tensors["model"])
        own = dict(self.model.named_parameters())
        fitted = found.tensors["optimizer"]
        checkpoint.fill_optimizer(self.optimizer, self.names, fitted, lambda name, rows: shard_like(rows, own[name]))
        checkpoint.fill_random(found.tensors["random"])
        if self.ema:
            self.ema = [found.tensors["ema"][name].clone().to(self.group.device) for name in self.names]
        state = dict(found.state)
        self.scaler.load_state_dict(state.pop("scaler"))
        try:
            self.state = RunState.from_values(state)
        except (TypeError, KeyError) as error:
            raise InputError(
                f"{self.prepared.out}: its checkpoints were written by another version of undivided and differ ({error}); "
                "resume with that version, or start over with another --out"
            ) from None
        self.task.stream.place = dataclasses.replace(self.state.place)


def _assign(model: nn.Module, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, tensor in zip(model.parameters(), tensors, strict=False):
            parameter.copy_(tensor)
