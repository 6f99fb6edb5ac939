"""Proof on your own run that resuming changes nothing: some steps replayed from a checkpoint and compared bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from undivided.config.settings import Values
from undivided.core.console import Console, LoggingConsole, plural
from undivided.core.errors import InputError, UndividedError
from undivided.nn.device import choose_device
from undivided.training import checkpoint
from undivided.training.checkpoint import Checkpoint
from undivided.training.distributed import Group
from undivided.training.journal import Meter, read_logged_steps
from undivided.training.loop import Trainer
from undivided.training.prepare import prepare
from undivided.training.resume import record_path, requested_device

TIMED = {"memory_bytes", "seconds", "tokens_per_second"}
VALIDATED = {"best", "best_step", "since_best"}
"""What differs between any two runs, and what only validation sets, which is not replayed."""


def verify_resume(values: Values, steps: int = 0, console: Console | None = None) -> str:
    """Replay the steps from the last checkpoint but one to the last, or only so many; returns what was compared.

    Nothing is written. A difference is an error that names it.
    """
    console = console or LoggingConsole()
    group = Group(device=choose_device(requested_device(values)))
    out = values.get("train", {}).get("out", "")
    if not record_path(out).exists():
        raise InputError(f"{out or '--out'}: holds no training, so there is nothing to verify")
    with prepare(values, console, group) as prepared:
        if prepared.recipe.train.minutes and prepared.recipe.train.schedule == "cosine":
            raise InputError(
                "the rate of this run follows the clock (train.minutes with a cosine), so no step can be replayed exactly"
            )
        trainer = Trainer(prepared, console, group)
        first, last = _last_two(prepared.folder / "checkpoints", console)
        trainer.run.restore(first)
        trainer.model.train()
        return _replay(trainer, last, steps)


def _last_two(folder: Path, console: Console) -> tuple[Checkpoint, Checkpoint]:
    found: list[Checkpoint] = []
    for path in reversed(checkpoint.paths(folder)):
        try:
            found.append(checkpoint.read(path))
        except InputError as error:
            console.warn(f"skipped a damaged checkpoint: {error}")
        if len(found) == 2:
            last, first = found
            if last.state.get("rollbacks") != first.state.get("rollbacks"):
                raise InputError("training rolled back to a checkpoint between the last two; verify again after the next one")
            return first, last
    raise InputError(f"{folder}: two complete checkpoints are needed to replay from one to the other; {len(found)} found")


def _replay(trainer: Trainer, last: Checkpoint, steps: int) -> str:
    begin, end = trainer.state.step, int(last.state["step"])
    end_of_replay = min(end, begin + steps) if steps else end
    lines, compared, faults = read_logged_steps(trainer.out / "training"), 0, []
    plans = trainer.task.stream.plans()
    while trainer.state.step < end_of_replay:
        trainer.advance(plans)
        trainer.console.status(f"replaying: step {trainer.state.step:,} of {end_of_replay:,}")
        line = lines.get(trainer.state.step)
        if line is not None:
            compared += 1
            faults += _find_differences(f"step {trainer.state.step:,}: logged", line, trainer.log_entry())
            trainer.state.meter = Meter()
    trainer.console.clear()
    what = f"steps {begin + 1:,} to {end_of_replay:,} replayed: {plural(compared, 'log line')}"
    if end_of_replay == end:
        faults += _compare(last, trainer.run.to_checkpoint())
        what += f", {', '.join(last.tensors)} and the counters of the checkpoint of step {end:,}"
    elif not compared:
        raise InputError(
            f"nothing was logged or saved in steps {begin + 1:,} to {end_of_replay:,}; replay more of them, up to {end - begin:,}"
        )
    if faults:
        raise UndividedError(f"{what}: NOT identical:\n" + "\n".join(f"  - {fault}" for fault in faults[:10]))
    return f"{what}: identical to the last bit"


def _compare(saved: Checkpoint, replayed: Checkpoint) -> list[str]:
    """What differs between two checkpoints of the same step."""
    faults = _find_differences("the counters", saved.state, replayed.state)
    for part, tensors in saved.tensors.items():
        again = replayed.tensors[part]
        names = [name for name, tensor in tensors.items() if name not in again or not torch.equal(tensor, again[name].cpu())]
        if names:
            faults.append(f"{part}: {len(names)} of {plural(len(tensors), 'tensor')} differ, the first is {names[0]}")
    return faults


def _find_differences(where: str, before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Numbers that differ, apart from those of a clock or of validation."""
    faults = []
    for name in sorted((before.keys() & after.keys()) - TIMED - VALIDATED):
        old, new = before[name], after[name]
        if isinstance(old, dict):
            faults += _find_differences(f"{where}, {name}", old, new)
        elif old != new:
            faults.append(f"{where}: {name} was {old!r}, now {new!r}")
    return faults
