"""Processes that train one model together, on one machine or many: plain torch.distributed, started by torchrun."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor

from undivided.core.errors import InputError, UndividedError
from undivided.nn.device import choose_device

BUCKET = 1 << 24
"""Elements of one all-reduce: few calls, and little memory beside the gradients."""

PATIENCE = timedelta(hours=12)
"""How long a process waits for another: validation may take long. torchrun itself notices one that died."""


@dataclass(frozen=True)
class Group:
    """The processes of a run. By default there is one, and nothing is sent."""

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")

    @property
    def is_main(self) -> bool:
        """Whether this is the one process that logs, validates and saves."""
        return self.rank == 0

    def all_reduce_sum(self, tensors: Sequence[Tensor]) -> None:
        """In place, the sums of tensors over all processes; each has tensors of the same shapes."""
        if self.size == 1:
            return
        for bucket in _buckets(tensors):
            flat = torch.cat([tensor.reshape(-1) for tensor in bucket])
            dist.all_reduce(flat)
            for tensor, part in zip(bucket, flat.split([tensor.numel() for tensor in bucket]), strict=True):
                tensor.copy_(part.view_as(tensor))

    def sum_values(self, *numbers: float) -> list[float]:
        """Of each number the sum over all processes."""
        return self._agree("SUM", numbers)

    def min_values(self, *numbers: float) -> list[float]:
        """Of each number the smallest of all processes."""
        return self._agree("MIN", numbers)

    def _agree(self, how: Literal["SUM", "MIN"], numbers: Sequence[float]) -> list[float]:
        if self.size == 1:
            return list(numbers)
        tensor = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(tensor, getattr(dist.ReduceOp, how))
        return tensor.tolist()

    def broadcast_values(self, *numbers: float) -> list[float]:
        """The numbers of the main process."""
        return self.sum_values(*(number if self.is_main else 0.0 for number in numbers))

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """In place, the tensors of the main process."""
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def wait(self) -> None:
        """Wait until all processes are here (a barrier)."""
        self.sum_values(0.0)

    def leave(self) -> None:
        """Leave the process group when all processes are here: torchrun takes the first that ends early for one that died.

        Only after success: waiting for a process that has died would take long.
        """
        if self.size > 1:
            self.wait()
            dist.destroy_process_group()


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Tensors of one type, grouped so that each group fills a bucket."""
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (bucket[0].dtype != tensor.dtype or sum(each.numel() for each in bucket) + tensor.numel() > BUCKET):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket


@contextmanager
def join_processes(device: str) -> Iterator[Group]:
    """Join the processes that torchrun has started; without torchrun, a group of one."""
    size = _env_int("WORLD_SIZE", 1)
    if size == 1:
        yield Group(device=choose_device(device))
        return
    rank, local, home = _env_int("RANK"), _env_int("LOCAL_RANK"), _local_device(device)
    if home.type == "cuda":
        home = torch.device("cuda", local)
        torch.cuda.set_device(home)
    backend = "nccl" if home.type == "cuda" else "gloo"
    # Its functions keep the group that there is when they are imported, as by an optimizer: its threads would outlive Python.
    importlib.import_module("torch.distributed.nn.functional")
    dist.init_process_group(backend, store=_store(rank, size), rank=rank, world_size=size, timeout=PATIENCE)
    group = Group(rank, size, home)
    try:
        yield group
    except RuntimeError as error:
        if not _is_lost_peer(error):
            raise
        how = str(error).splitlines()[0].rpartition(": ")[2]
        raise UndividedError(
            f"another process of this training has died ({how}). The last checkpoint is complete; "
            "`torchrun --max-restarts N` resumes from it by itself"
        ) from None
    group.leave()


def _local_device(name: str) -> torch.device:
    """The type of device of all processes; each takes the one with its own number."""
    device = choose_device(name)
    if name.partition(":")[2]:
        raise InputError(f"device: {name} is one device, but several processes train; name it {device.type}, each takes its own")
    if device.type == "cuda" and int(os.environ.get("LOCAL_WORLD_SIZE", "1")) > torch.cuda.device_count():
        raise InputError(
            f"{os.environ['LOCAL_WORLD_SIZE']} processes on this machine, but it has {torch.cuda.device_count()} CUDA devices; "
            "start one for each (torchrun --nproc-per-node), or add --device cpu"
        )
    return torch.device("cpu") if device.type == "mps" else device


def _store(rank: int, size: int) -> dist.Store:
    """Where processes find each other. A store that torchrun keeps outlives a restart, so each attempt has its own prefix."""
    served = os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    host, port = os.environ.get("MASTER_ADDR", "localhost"), _env_int("MASTER_PORT")
    store = dist.TCPStore(host, port, size, is_master=rank == 0 and not served, timeout=timedelta(minutes=5))
    return dist.PrefixStore(f"undivided-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _env_int(name: str, default: int | None = None) -> int:
    text = os.environ.get(name, "" if default is None else str(default))
    if not text.isdigit():
        raise InputError(f"the environment variable {name} is {text!r}; start several processes with torchrun, one without it")
    return int(text)


def _is_lost_peer(error: RuntimeError) -> bool:
    words = ("peer", "Connection", "Broken pipe", "Socket", "NCCL", "Gloo")
    return isinstance(error, dist.DistError) or any(word in str(error) for word in words)


def local_rows(tensor: Tensor) -> Tensor:
    """This process's rows of a tensor that is cut over processes (a DTensor); all rows of any other tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """All rows of a tensor, gathered from all processes, which must all call this."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def shard_like(rows: Tensor, parameter: Tensor) -> Tensor:
    """Local rows as a tensor that is cut over processes like a parameter."""
    if not hasattr(parameter, "device_mesh") or not rows.dim():
        return rows
    # Slow to import, and needed only here.
    from torch.distributed.tensor import DTensor, Shard

    shape, rows = parameter.shape, rows.to(parameter.device)
    return DTensor.from_local(rows, parameter.device_mesh, [Shard(0)], run_check=False, shape=shape, stride=parameter.stride())


def cut_like(full: Tensor, parameter: Any) -> Tensor:
    """This process's rows of a tensor that all processes hold, where the parameter is cut over them; else all rows."""
    if not hasattr(parameter, "device_mesh"):
        return full
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(full, parameter.device_mesh, parameter.placements).to_local()
