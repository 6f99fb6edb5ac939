"""The full state of a training run, written so that no moment is without a whole one; averaging. [paper 6.1]"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undivided import artifact, manifest
from undivided.artifact import Artifact, read_tensors, write_tensors
from undivided.console import Console, InputError, plural
from undivided.files import read_json, sync


@dataclass(frozen=True)
class Checkpoint:
    """Everything that training needs to go on as if it had never stopped."""

    state: dict[str, Any]
    """Counters and the place in the data."""
    tensors: dict[str, dict[str, Tensor]]
    """`model`, `optimizer`, `random`, and `ema` where it is on."""


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return folder / f"step-{step:09d}"


def write(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint: aside, to the disk, then by one rename into place."""
    final = path_of(folder, step)
    if final.exists():
        try:
            # A run that goes on from this step and stops at once has nothing new to write.
            read(final)
            return final
        except InputError:
            shutil.rmtree(final)
    building = folder / f"{final.name}.{os.getpid()}.building"
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.building"):
        shutil.rmtree(leftover, ignore_errors=True)
    _check_space(folder, checkpoint)
    building.mkdir()
    for name, tensors in checkpoint.tensors.items():
        write_tensors(building / f"{name}.safetensors", tensors)
    (building / "state.json").write_text(json.dumps(checkpoint.state, indent=2))
    manifest.write(building, sorted(part.name for part in building.iterdir()))
    for part in building.iterdir():
        sync(part)
    sync(building)
    building.rename(final)
    sync(folder)
    return final


def _check_space(folder: Path, checkpoint: Checkpoint) -> None:
    need = sum(t.numel() * t.element_size() for part in checkpoint.tensors.values() for t in part.values())
    free = shutil.disk_usage(folder).free
    if free < need * 1.05 + (1 << 20):
        raise OSError(errno.ENOSPC, f"a checkpoint needs {need >> 20} MiB, {free >> 20} MiB are free", str(folder))


def read(path: Path) -> Checkpoint:
    """Read a checkpoint; a part that is missing or damaged is named."""
    parts = manifest.verify(path, ["state.json", "model.safetensors"])
    tensors = {Path(part).stem: read_tensors(path / part) for part in parts if part.endswith(".safetensors")}
    return Checkpoint(read_json(path / "state.json"), tensors)


def paths(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    return sorted(path for path in folder.glob("step-*") if path.name[5:].isdigit())


def newest(folder: Path, console: Console) -> Checkpoint | None:
    """The newest whole checkpoint; damaged ones are named and passed over."""
    for path in reversed(paths(folder)):
        try:
            return read(path)
        except InputError as error:
            console.warn(f"skipped a damaged checkpoint: {error}")
    return None


def prune(folder: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints."""
    for path in paths(folder)[:-keep]:
        shutil.rmtree(path, ignore_errors=True)


def average_weights(checkpoints: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in float64. [paper 6.1]"""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, tensor in read(path).tensors["model"].items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimizer's state by the names of its parameters."""
    state = optimizer.state_dict()["state"]
    return {f"{name}:{key}": value for number, name in enumerate(names) for key, value in _tensors(state.get(number, {}))}


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    return ((key, value) for key, value in state.items() if isinstance(value, Tensor))


def fill_optimizer(optimizer: torch.optim.Optimizer, names: list[str], tensors: Mapping[str, Tensor]) -> None:
    """Give an optimizer back its state."""
    state: dict[int, dict[str, Tensor]] = {}
    numbers = {name: number for number, name in enumerate(names)}
    for label, tensor in tensors.items():
        name, _, key = label.rpartition(":")
        if name not in numbers:
            raise InputError(f"the checkpoint's optimizer.safetensors does not fit the model: it holds {label!r}")
        state.setdefault(numbers[name], {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def random_tensors() -> dict[str, Tensor]:
    """The state of torch's generators."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda{number}": state for number, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def fill_random(states: Mapping[str, Tensor]) -> None:
    """Give torch's generators back their state."""
    try:
        torch.set_rng_state(states["cpu"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"the checkpoint's random.safetensors holds no state of a generator: {error}") from None
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda{number}" in states:
            torch.cuda.set_rng_state(states[f"cuda{number}"], number)


def average(run: str | Path, last: int, out: str | Path) -> Path:
    """Average the last checkpoints of a training run into a model folder of its own. [paper 6.1]"""
    source = artifact.load(run)
    chosen = paths(Path(run) / "training" / "checkpoints")[-last:]
    if not 0 < last <= len(chosen):
        raise InputError(f"{run}: {plural(len(chosen), 'checkpoint')} there, {last} asked for")
    artifact.fill(source.model, average_weights(chosen), str(run))
    facts = source.facts | {"weights": f"average of the last {plural(last, 'checkpoint')}", "scores": {}}
    artifact.save(Artifact(source.recipe, source.tokenizer, source.model, facts), Path(out))
    return Path(out)
