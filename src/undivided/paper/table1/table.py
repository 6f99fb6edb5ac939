"""Table 1: complexity, sequential operations and path lengths, derived and measured on this machine. [paper 4, Table 1]"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch

from undivided.config import check_threads
from undivided.core.console import Console, Progress
from undivided.core.errors import InputError
from undivided.paper.table1.layers import ADDITIVE, CONTIGUOUS, KINDS, RECURRENT, SELF_ATTENTION, Kind, Shape
from undivided.paper.table1.measure import (
    Crossing,
    Fit,
    Timing,
    chain_length,
    crossover,
    fit_exponents,
    path_length,
    peak_memory,
    time_layers,
)

HEAD = 64
"""The width at which additive and dot-product attention are compared: d_k of the paper's models."""

LONGEST = 2048
"""The longest n of that comparison: additive attention holds n²·d numbers, 1 GiB here."""


@dataclass(frozen=True)
class Setup:
    """What to measure."""

    lengths: list[int]
    widths: list[int]
    fit_from: int
    """Exponents are fitted where n and d are at least this; below, call overhead dominates."""
    kernel: int
    neighbourhood: int
    batch: int
    repetitions: int
    paths: list[int]
    """Sequence lengths for path lengths and chains."""

    def faults(self) -> list[str]:
        """Faults in these settings."""
        found = []
        for name, values in (("--n", self.lengths), ("--d", self.widths)):
            if sum(value >= self.fit_from for value in values) < 2:
                found.append(f"{name}: fitting an exponent needs at least two values from {self.fit_from} on (--fit-from)")
        if self.kernel % 2 == 0 or self.kernel < 3:
            found.append(f"--kernel: {self.kernel} is not odd and at least 3")
        if self.neighbourhood < 2:
            found.append(f"--neighbourhood: {self.neighbourhood} is less than 2")
        found += [f"--{name}: {value} is less than 1" for name, value in self._counts() if value < 1]
        return found

    def _counts(self) -> list[tuple[str, int]]:
        return [("batch", self.batch), ("repetitions", self.repetitions), ("n", min(self.lengths)), ("d", min(self.widths))]

    def shape(self, n: int, d: int) -> Shape:
        """A shape with this setup's kernel and neighbourhood."""
        return Shape(n, d, self.kernel, self.neighbourhood)

    def heads(self) -> list[Shape]:
        """The shapes at which additive and dot-product attention are compared."""
        return [self.shape(n, HEAD) for n in sorted({min(n, LONGEST) for n in self.lengths})]


class AttentionComparison(NamedTuple):
    """Dot-product and additive attention at one length: times and peak bytes."""

    dot: Timing
    additive: Timing
    dot_bytes: int
    additive_bytes: int


@dataclass(frozen=True)
class Measurements:
    """All measurements."""

    timings: list[Timing]
    paths: dict[str, list[tuple[int, int, float]]]
    """For each kind of layer: (n, measured, derived)."""
    chains: dict[str, list[tuple[int, int]]]
    compared: list[AttentionComparison]

    def of(self, kind: Kind, d: int | None = None) -> list[Timing]:
        """The timings of one kind, at one width."""
        return [each for each in self.timings if each.kind == kind.name and d in (None, each.d)]


def table1(setup: Setup, threads: int, console: Console) -> Measurements:
    """Measure everything; afterwards the number of threads is restored."""
    if faults := setup.faults():
        raise InputError("\n".join(faults))
    check_threads(threads)
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, threads))
    try:
        small = [Shape(n, 4, setup.kernel, setup.neighbourhood) for n in setup.paths]
        paths = {kind.name: [(s.n, path_length(kind, s), kind.path_length(s)) for s in small] for kind in (*KINDS, CONTIGUOUS)}
        chance = torch.Generator().manual_seed(1)
        chains = {kind.name: [(s.n, chain_length(kind.make(s, chance), s)) for s in small] for kind in KINDS}
        shapes = [setup.shape(n, d) for n in setup.lengths for d in setup.widths]
        jobs = len(shapes) * len(KINDS) + 2 * len(setup.heads())
        progress = Progress(console, "measured", jobs * setup.repetitions)
        compared = _compare(setup, progress)
        found = time_layers(shapes, setup.batch, setup.repetitions, progress.advance)
        console.clear()
    finally:
        torch.set_num_threads(before)
    return Measurements(found, paths, chains, compared)


def _compare(setup: Setup, progress: Progress) -> list[AttentionComparison]:
    """Compare additive and dot-product attention over n, one sequence at a time, as hidden layers are large."""
    shapes = setup.heads()
    found = time_layers(shapes, 1, setup.repetitions, progress.advance, (SELF_ATTENTION, ADDITIVE))
    chance = torch.Generator().manual_seed(1)
    sizes = [
        [peak_memory(kind.make(shape, chance), torch.rand(1, shape.n, shape.d)) for shape in shapes]
        for kind in (SELF_ATTENTION, ADDITIVE)
    ]
    return [AttentionComparison(*each) for each in zip(found[: len(shapes)], found[len(shapes) :], *sizes, strict=True)]


def exponents(setup: Setup, found: Measurements) -> dict[str, Fit]:
    """The fitted exponents of every kind of layer."""
    low = setup.fit_from
    return {kind.name: fit_exponents(each for each in found.of(kind) if each.n >= low and each.d >= low) for kind in KINDS}


def crossovers(setup: Setup, found: Measurements) -> list[tuple[int, Crossing | None]]:
    """For every d, the n above which self-attention is slower than recurrence."""
    return [(d, crossover(found.of(SELF_ATTENTION, d), found.of(RECURRENT, d))) for d in setup.widths]
