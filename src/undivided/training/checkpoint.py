"""The full state of a training run, written so that a complete one is always on disk; averaging. [paper 6.1]"""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from undivided.artifact import UNFINISHED, load_any, save_artifact
from undivided.artifact.weights import check_shapes, fill_weights, read_tensors, shapes_of, write_tensors
from undivided.core import manifest
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.files import fsync, read_json
from undivided.training.distributed import Group, local_rows

AVERAGED = 5
"""Checkpoints that are averaged where nobody says how many, as in the paper."""

PART_OF = re.compile(r"-\d{5}-of-\d{5}$")
"""The end of a file name, where the file holds only some rows of its tensors."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything that training needs to resume as if it had never stopped."""

    state: dict[str, Any]
    """Counters and the position in the data."""
    tensors: dict[str, dict[str, Tensor]]
    """`model`, `optimizer`, `random`, and `ema` where it is on."""


def path_of(folder: Path, step: int) -> Path:
    """The folder of the checkpoint of a step."""
    return folder / f"step-{step:09d}"


def write(folder: Path, step: int, checkpoint: Checkpoint) -> Path:
    """Write a checkpoint under another name, flush it to disk, then rename it into place."""
    final = path_of(folder, step)
    if _holds_complete(final):
        return final
    building = _start_building(folder, final, f"{os.getpid()}.", checkpoint)
    for name, tensors in checkpoint.tensors.items():
        write_tensors(building / f"{name}.safetensors", tensors)
    _finish_building(building, final, checkpoint)
    return final


def write_together(folder: Path, step: int, checkpoint: Checkpoint, group: Group) -> Path:
    """Write one with several processes, each its local rows of every tensor: none holds or sends more than that.

    They share the folder. The files of a part hold the rows in the order of their numbers, so any number of processes can
    read it: `model-00001-of-00004.safetensors`.
    """
    final = path_of(folder, step)
    if group.broadcast_values(group.is_main and _holds_complete(final))[0]:
        return final
    building = folder / f"{final.name}.building"
    if group.is_main:
        _start_building(folder, final, "", checkpoint)
    group.wait()
    for name, tensors in checkpoint.tensors.items():
        # The state of generators is no tensor whose rows mean anything, and the same in all processes.
        if name != "random" or group.is_main:
            mark = "" if name == "random" else f"-{group.rank + 1:05d}-of-{group.size:05d}"
            write_tensors(building / f"{name}{mark}.safetensors", tensors)
            fsync(building / f"{name}{mark}.safetensors")
    group.wait()
    if group.is_main:
        _finish_building(building, final, checkpoint)
    group.wait()
    return final


def _holds_complete(final: Path) -> bool:
    """Whether a complete checkpoint is there: a run that resumes from it and stops at once has nothing new to write."""
    if not final.exists():
        return False
    if _is_complete(final):
        return True
    # Perhaps it could only not be read just now: it is kept.
    final.rename(unused_name(final, "unreadable"))
    return False


def _start_building(folder: Path, final: Path, mark: str, checkpoint: Checkpoint) -> Path:
    building = folder / f"{final.name}.{mark}building"
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in folder.glob("*.building"):
        shutil.rmtree(leftover, ignore_errors=True)
    _check_space(folder, checkpoint)
    building.mkdir()
    return building


def _finish_building(building: Path, final: Path, checkpoint: Checkpoint) -> None:
    (building / "state.json").write_text(json.dumps(checkpoint.state, indent=2))
    manifest.write(building, sorted(part.name for part in building.iterdir()))
    for part in building.iterdir():
        fsync(part)
    fsync(building)
    building.rename(final)
    fsync(final.parent)


def _check_space(folder: Path, checkpoint: Checkpoint) -> None:
    need = sum(t.numel() * t.element_size() for part in checkpoint.tensors.values() for t in part.values())
    free = shutil.disk_usage(folder).free
    if free < need * 1.05 + (1 << 20):
        raise OSError(errno.ENOSPC, f"a checkpoint needs {need >> 20} MiB, {free >> 20} MiB are free", str(folder))


def read(path: Path, group: Group | None = None) -> Checkpoint:
    """Read a checkpoint or, with a group, only this process's rows of its tensors; what is missing or damaged is named."""
    parts = [part for part in manifest.verify(path, ["state.json"]) if part.endswith(".safetensors")]
    names = list(dict.fromkeys(PART_OF.sub("", Path(part).stem) for part in parts))
    if "model" not in names:
        raise InputError(f"{path}: {manifest.NAME} is damaged: it lists no weights")
    files = {name: sorted(path / part for part in parts if PART_OF.sub("", Path(part).stem) == name) for name in names}
    tensors = {name: _rows(files[name], None if name == "random" else group) for name in names}
    return Checkpoint(read_json(path / "state.json"), tensors)


def _rows(files: list[Path], group: Group | None) -> dict[str, Tensor]:
    """Tensors whose rows are spread over files: all rows, or those of one process, as `torch.chunk` cuts them."""
    if len(files) == 1 and group is None:
        return read_tensors(files[0])
    found: dict[str, Tensor] = {}
    try:
        with ExitStack() as opened:
            stores = [opened.enter_context(safe_open(file, "pt")) for file in files]
            for name in stores[0].keys():  # noqa: SIM118
                slices = [store.get_slice(name) for store in stores]
                if not slices[0].get_shape():
                    found[name] = stores[0].get_tensor(name)
                    continue
                lengths = [each.get_shape()[0] for each in slices]
                share = -(-sum(lengths) // (group.size if group else 1))
                begin = share * (group.rank if group else 0)
                starts = [sum(lengths[:number]) for number in range(len(lengths))]
                found[name] = torch.cat(
                    [
                        each[min(length, max(0, begin - start)) : max(0, min(length, begin + share - start))]
                        for each, start, length in zip(slices, starts, lengths, strict=True)
                    ]
                )
    except (SafetensorError, OSError, RuntimeError, TypeError) as error:
        raise InputError(f"{files[0].parent}: damaged, its tensors do not fit together: {error}") from None
    return found


def paths(folder: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    try:
        # Not by `glob`, which takes a folder that cannot be read for an empty one.
        names = os.listdir(folder)
    except FileNotFoundError:
        return []
    return sorted(folder / name for name in names if name.startswith("step-") and name[5:].isdigit())


def regular(folder: Path, every: int) -> list[Path]:
    """The checkpoints of an uninterrupted run, oldest first: those of every so many steps, and the newest.

    One that was written because the run was stopped serves to resume, and no longer counts when there is a newer one.
    """
    there = paths(folder)
    return [path for path in there if int(path.name[5:]) % every == 0 or path == there[-1]]


def newest(folder: Path, console: Console, group: Group | None = None) -> Checkpoint | None:
    """The newest complete checkpoint, None where none was written; damaged ones are reported and skipped.

    Where there are some and none can be read, it is an error: to start over would lose them.
    """
    faults = []
    for path in reversed(paths(folder)):
        try:
            return read(path, group)
        except (InputError, OSError) as error:
            faults.append(str(error))
            console.warn(f"skipped a damaged checkpoint: {faults[-1]}")
    if faults:
        out = folder.parent.parent
        raise InputError(
            "\n  - ".join([f"{folder}: none of its {plural(len(faults), 'checkpoint')} can be read:", *faults])
            + "\nMake them readable or copy them back, then run the command again; or start over beside them, which are kept under "
            f"another name: undivided train --out {out} --restart"
        )
    return None


def set_aside(training: Path, console: Console, group: Group) -> None:
    """Give checkpoints, snapshots and log of a run other names, so that it can start over beside them."""
    for path in (training / "checkpoints", training / "snapshots", training / "log.jsonl"):
        if group.is_main and path.exists():
            console.say(f"kept from before: {path.rename(unused_name(path, 'old'))}")
    group.wait()


def unused_name(path: Path, mark: str) -> Path:
    """A name beside a path that nothing has: `step-000000004.unreadable-1`."""
    return next(name for number in count(1) if not os.path.lexists(name := path.with_name(f"{path.name}.{mark}-{number}")))


def prune(folder: Path, keep: int, console: Console, best: int = 0, every: int = 1) -> None:
    """Remove all but the newest `keep` regular checkpoints and that of the `best` step.

    What cannot be read stays, and so do older ones where none of the newest can.
    """
    kept = regular(folder, every)[-keep:]
    old = [path for path in paths(folder) if path not in kept]
    if old and not any(_is_complete(path) for path in reversed(kept)):
        console.warn(f"{folder}: the newest {plural(len(kept), 'checkpoint')} cannot be read back; older ones are kept")
        return
    for path in old:
        if path != path_of(folder, best) and _is_complete(path):
            remove(path)


def remove(path: Path) -> None:
    """Remove a checkpoint."""
    # Renamed first: what is half removed must not be taken for a damaged checkpoint.
    going = path.with_name(f"{path.name}.building")
    path.rename(going)
    shutil.rmtree(going, ignore_errors=True)


def _is_complete(path: Path) -> bool:
    try:
        manifest.verify(path, ["state.json"])
    except (InputError, OSError):
        return False
    return True


def average_weights(checkpoints: list[Path]) -> dict[str, Tensor]:
    """The mean of the weights of several checkpoints, summed in float64. [paper 6.1]"""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, tensor in read(path).tensors["model"].items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


def fill_model(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restore the weights of a model; of one that is cut over processes, its local rows."""
    held = {name: local_rows(parameter.detach()) for name, parameter in model.named_parameters()}
    check_shapes(shapes_of(held), shapes_of(tensors), "checkpoint")
    for name, rows in held.items():
        rows.copy_(tensors[name])


def optimizer_tensors(optimizer: torch.optim.Optimizer, names: list[str]) -> dict[str, Tensor]:
    """The optimizer's state by the names of its parameters."""
    state = optimizer.state_dict()["state"]
    return {f"{name}:{key}": value for number, name in enumerate(names) for key, value in _tensors(state.get(number, {}))}


def _tensors(state: Mapping[str, Any]) -> Iterator[tuple[str, Tensor]]:
    return ((key, value) for key, value in state.items() if isinstance(value, Tensor))


def fill_optimizer(
    optimizer: torch.optim.Optimizer,
    names: list[str],
    tensors: Mapping[str, Tensor],
    fitted: Callable[[str, Tensor], Tensor] = lambda name, tensor: tensor,
) -> None:
    """Restore the state of an optimizer; `fitted` makes a tensor like the parameter of a name."""
    state: dict[int, dict[str, Tensor]] = {}
    numbers = {name: number for number, name in enumerate(names)}
    for label, tensor in tensors.items():
        name, _, key = label.rpartition(":")
        if name not in numbers:
            raise InputError(f"the checkpoint's optimizer.safetensors does not fit the model: it holds {label!r}")
        state.setdefault(numbers[name], {})[key] = fitted(name, tensor)
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def random_tensors() -> dict[str, Tensor]:
    """The state of torch's generators."""
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states |= {f"cuda{number}": state for number, state in enumerate(torch.cuda.get_rng_state_all())}
    return states


def fill_random(states: Mapping[str, Tensor]) -> None:
    """Restore the state of torch's generators."""
    try:
        torch.set_rng_state(states["cpu"])
    except (KeyError, TypeError, RuntimeError) as error:
        raise InputError(f"the checkpoint's random.safetensors holds no state of a generator: {error}") from None
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda{number}" in states:
            torch.cuda.set_rng_state(states[f"cuda{number}"], number)


def average(run: str | Path, last: int | None, out: str | Path) -> Path:
    """Average the last checkpoints of a training run into a new model folder; without a number up to five. [paper 6.1]"""
    source = load_any(run)
    there = regular(Path(run) / "training" / "checkpoints", source.recipe.train.save_every)
    chosen = there[-(AVERAGED if last is None else last) :]
    if not chosen or not (last is None or 0 < last <= len(chosen)):
        raise InputError(f"{run}: {plural(len(chosen), 'checkpoint')} there, {'some' if last is None else last} asked for")
    fill_weights(source.model, average_weights(chosen), str(run))
    facts = source.facts | {"weights": f"average of the last {plural(len(chosen), 'checkpoint')}", "scores": {}}
    facts.pop(UNFINISHED, None)
    save_artifact(dataclasses.replace(source, facts=facts), Path(out))
    return Path(out)
