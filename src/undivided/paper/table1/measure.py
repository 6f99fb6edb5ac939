"""Measurements of layers: path length by gradients, chains of operations, time and memory. [paper 4, Table 1]"""

from __future__ import annotations

import math
import random
import statistics
import time
import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from undivided.paper.table1.layers import KINDS, Kind, Layer, Shape

SHORTEST = 0.005
"""Minimum seconds of one measurement; fast layers are run several times."""


def path_length(kind: Kind, shape: Shape, seed: int = 1) -> int:
    """Applications of a layer until the last position depends on the first input, that is, its gradient is not zero."""
    chance = torch.Generator().manual_seed(seed)
    apply = kind.reach(shape, chance)
    # In double precision: after a hundred layers the gradient is small but not zero.
    inputs = torch.rand(1, shape.n, shape.d, generator=chance, dtype=torch.float64).requires_grad_()
    states: Tensor = inputs
    for before in range(2 * shape.n):
        states = apply(states, inputs, before)
        (gradient,) = torch.autograd.grad(states[0, -1].sum(), inputs, retain_graph=True)
        if bool((gradient[0, 0] != 0).any()):
            return before + 1
    raise AssertionError(f"{kind.name}: the last position never depends on the first")


def chain_length(layer: Layer, shape: Shape) -> int:
    """The longest chain of dependent operations from a layer's input to its output."""
    inputs = torch.rand(1, shape.n, shape.d, requires_grad=True)
    longest: dict[Any, int] = {}
    stack: list[Any] = [layer(inputs).sum().grad_fn]
    while stack:
        node = stack[-1]
        before = [each for each, _ in node.next_functions if each is not None]
        waiting = [each for each in before if each not in longest]
        if waiting:
            stack += waiting
        else:
            longest[stack.pop()] = 1 + max((longest[each] for each in before), default=0)
    return max(longest.values())


BATCH_FACTOR = {"recurrent": 16}
"""Larger batches for the recurrence: its products have one row for each sequence, and are slow with few rows."""


class Timing(NamedTuple):
    """The median time of a layer at one shape, per sequence of the batch."""

    kind: str
    n: int
    d: int
    seconds: float
    operations: float

    @property
    def rate(self) -> float:
        """Billions of operations a second."""
        return self.operations / self.seconds / 1e9


def time_layers(
    shapes: Sequence[Shape],
    batch: int,
    repetitions: int,
    advance: Callable[[int], None] = lambda count: None,
    kinds: Sequence[Kind] = KINDS,
) -> list[Timing]:
    """Median times; every repetition runs all layers and shapes in random order, so that disturbances affect all alike."""
    chance = torch.Generator().manual_seed(1)
    jobs = [(kind, shape, kind.make(shape, chance)) for kind in kinds for shape in shapes]
    seconds: list[list[float]] = [[] for _ in jobs]
    order = random.Random(1)
    with torch.inference_mode():
        for _ in range(repetitions):
            for place in order.sample(range(len(jobs)), len(jobs)):
                kind, shape, layer = jobs[place]
                size = batch * BATCH_FACTOR.get(kind.name, 1)
                seconds[place].append(time_call(layer, torch.rand(size, shape.n, shape.d)) / size)
                advance(1)
    return [
        Timing(kind.name, shape.n, shape.d, statistics.median(times), kind.operations(shape))
        for (kind, shape, _), times in zip(jobs, seconds, strict=True)
    ]


def time_call(layer: Layer, x: Tensor) -> float:
    """Seconds of one call, without a short first one; CPU time if one thread computes, so that other programs do not count."""
    clock = time.thread_time if torch.get_num_threads() == 1 else time.perf_counter
    began = clock()
    layer(x)
    first = clock() - began
    if first > 40 * SHORTEST:
        return first
    runs, spent = 0, 0.0
    while spent < SHORTEST:
        began = clock()
        layer(x)
        spent, runs = spent + clock() - began, runs + 1
    return spent / runs


class _LiveBytes(TorchDispatchMode):
    """Counts the bytes of all live results, and their peak."""

    def __init__(self, given: Tensor) -> None:
        super().__init__()
        self.now = self.most = 0
        self.known = weakref.WeakSet([given.untyped_storage()])

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        results = operation(*args, **(kwargs or {}))
        for result in tree_leaves(results):
            if isinstance(result, Tensor) and result.untyped_storage() not in self.known:
                self._take(result.untyped_storage())
        return results

    def _take(self, storage: torch.UntypedStorage) -> None:
        self.known.add(storage)
        self._count(storage.nbytes())
        weakref.finalize(storage, self._count, -storage.nbytes())

    def _count(self, size: int) -> None:
        self.now += size
        self.most = max(self.most, self.now)


def peak_memory(layer: Layer, x: Tensor) -> int:
    """Peak bytes of a layer's results, intermediate ones included, besides its input and weights.

    Counted at every operation, so the same on every machine; memory used inside an operation is not counted.
    """
    with torch.inference_mode(), _LiveBytes(x) as held:
        layer(x)
    return held.most


def cache_sizes() -> list[tuple[str, int]]:
    """Names and bytes of the first core's caches on Linux, smallest first; empty elsewhere."""
    found = []
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found.append((f"L{level}", 1024 * int(size.removesuffix("K"))))
    return found


class Fit(NamedTuple):
    """A fit seconds ≈ c · n^a · d^b over a range."""

    n: float
    d: float
    rate: tuple[float, float]
    """Billions of operations a second at the smallest and at the largest shape."""
    along_n: dict[int, float]
    """The rate at each n, as the geometric mean over d; on a full grid it grows as n^(derived − fitted exponent)."""
    along_d: dict[int, float]


def fit_exponents(points: Iterable[Timing]) -> Fit:
    """Fit the exponents by least squares on logarithms."""
    points = sorted(points, key=lambda point: point.operations)
    rows = np.array([[1.0, math.log(point.n), math.log(point.d)] for point in points])
    values = np.array([math.log(point.seconds) for point in points])
    _, n, d = np.linalg.lstsq(rows, values, rcond=None)[0]
    along_n = _mean_rates((point.n, point.rate) for point in points)
    along_d = _mean_rates((point.d, point.rate) for point in points)
    return Fit(float(n), float(d), (points[0].rate, points[-1].rate), along_n, along_d)


def _mean_rates(rates: Iterable[tuple[int, float]]) -> dict[int, float]:
    """The geometric mean at each size, smallest first."""
    at: dict[int, list[float]] = defaultdict(list)
    for size, rate in rates:
        at[size].append(rate)
    return {size: statistics.geometric_mean(at[size]) for size in sorted(at)}


class Crossing(NamedTuple):
    """Where two layers take the same time: n, and the rates of both there."""

    n: float
    rates: tuple[float, float]


def crossover(ours: Sequence[Timing], others: Sequence[Timing]) -> Crossing | None:
    """The n at which the first layer becomes slower than the second, interpolated linearly in logarithms."""
    pairs = sorted((a, b) for a in ours for b in others if (a.n, a.d) == (b.n, b.d))
    for (low, low_other), (high, high_other) in pairwise(pairs):
        before, after = math.log(low.seconds / low_other.seconds), math.log(high.seconds / high_other.seconds)
        if before <= 0 < after:
            share = -before / (after - before)
            rates = _between(low.rate, high.rate, share), _between(low_other.rate, high_other.rate, share)
            return Crossing(_between(low.n, high.n, share), rates)
    return None


def _between(low: float, high: float, share: float) -> float:
    """Interpolate linearly in logarithms."""
    return float(low ** (1 - share) * high**share)
