"""Where the arithmetic happens: device and threads."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

from undivided.config import check_threads
from undivided.core.errors import InputError

Item = TypeVar("Item")
Result = TypeVar("Result")


def peak_memory(device: torch.device) -> float:
    """The most bytes that this process has used so far: of its GPU, else of memory; 0 where the system does not say."""
    if device.type == "cuda":
        return float(torch.cuda.max_memory_allocated(device))
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024))


class ThreadPool:
    """Workers that share one model, each computing with a single CPU thread.

    Threads that split every single operation meet at a barrier after each; where another program shares the cores they wait
    for each other most of the time. Workers that split the batch meet once a step.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._pool = ThreadPoolExecutor(size, initializer=_use_one_thread) if size > 1 else None

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> list[Result]:
        """The results in the order of the items."""
        return list(self.imap(function, items))

    def imap(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """The results in the order of the items, each as soon as it and those before it are there."""
        return self._pool.map(function, items) if self._pool is not None else map(function, items)


def _use_one_thread() -> None:
    """From now on, operations of this thread do not spread to others."""
    torch.set_num_threads(1)
    # The first look fixes the number for this thread. Left to the first operation, it could be what another has set since.
    torch.get_num_threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, this thread computes alone: with many small tensors, waking others costs more than they help."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def choose_device(name: str = "auto") -> torch.device:
    """The device that a setting names; `auto` takes a GPU where there is one."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise InputError(f"device: {name!r} is none of auto, cpu, cuda, cuda:N, mps") from None
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise InputError(f"device: {name} is not there; this machine has {torch.cuda.device_count()} CUDA devices")
    if device.type == "mps" and not torch.backends.mps.is_available():
        raise InputError("device: mps is not there on this machine")
    return device


def use_threads(count: int) -> None:
    """Set the number of CPU threads; 0 is what `OMP_NUM_THREADS` says, else all cores this process may use."""
    check_threads(count)
    if not count and os.environ.get("OMP_NUM_THREADS"):
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    torch.set_num_threads(count or cores)
