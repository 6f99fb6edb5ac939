"""Table 1: complexity, sequential operations and path lengths, derived and measured on this machine. [paper 4, Table 1]"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from undivided.console import Console, InputError, Progress, plural
from undivided.paper import report
from undivided.paper.kinds import CONTIGUOUS, KINDS, Kind, Shape
from undivided.paper.measure import TOGETHER, Fit, Timing, caches, chain_length, crossover, fitted, path_length, timings

TOLERANCE = 0.25
"""How far a measured exponent may be from the derived one before the report must say why."""


@dataclass(frozen=True)
class Setup:
    """What is measured."""

    lengths: list[int]
    widths: list[int]
    fit_from: int
    """Exponents are fitted where n and d are at least this; below, the cost of calling dominates."""
    kernel: int
    neighbourhood: int
    batch: int
    repetitions: int
    paths: list[int]
    """Lengths at which reach and chains are measured."""

    def faults(self) -> list[str]:
        """What is wrong with the numbers."""
        found = []
        for name, values in (("--n", self.lengths), ("--d", self.widths)):
            if sum(value >= self.fit_from for value in values) < 2:
                found.append(f"{name}: an exponent needs at least two values of {self.fit_from} and more (--fit-from)")
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


@dataclass(frozen=True)
class Found:
    """All measurements."""

    timings: list[Timing]
    paths: dict[str, list[tuple[int, int, float]]]
    """Of each kind: (n, measured, derived)."""
    chains: dict[str, list[tuple[int, int]]]

    def of(self, kind: Kind, d: int | None = None) -> list[Timing]:
        """The timings of one kind, at one width."""
        return [each for each in self.timings if each.kind == kind.name and d in (None, each.d)]


def table1(setup: Setup, threads: int, console: Console) -> Found:
    """Measure everything; the threads of this process are as before afterwards."""
    if faults := setup.faults():
        raise InputError("\n".join(faults))
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, threads))
    try:
        kinds = (*KINDS, CONTIGUOUS)
        small = [Shape(n, 4, setup.kernel, setup.neighbourhood) for n in setup.paths]
        paths = {kind.name: [(s.n, path_length(kind, s), kind.path_length(s)) for s in small] for kind in kinds}
        chance = torch.Generator().manual_seed(1)
        chains = {kind.name: [(s.n, chain_length(kind.make(s, chance), s)) for s in small] for kind in KINDS}
        shapes = [setup.shape(n, d) for n in setup.lengths for d in setup.widths]
        progress = Progress(console, "measured", len(shapes) * len(KINDS) * setup.repetitions)
        found = timings(shapes, setup.batch, setup.repetitions, progress.advance)
        console.clear()
    finally:
        torch.set_num_threads(before)
    return Found(found, paths, chains)


def exponents(setup: Setup, found: Found) -> dict[str, Fit]:
    """The fitted exponents of every kind, within the stated range."""
    low = setup.fit_from
    return {kind.name: fitted(each for each in found.of(kind) if each.n >= low and each.d >= low) for kind in KINDS}


def crossovers(setup: Setup, found: Found) -> list[tuple[int, float | None]]:
    """For every d, the n from which self-attention takes longer than recurrence."""
    return [(d, crossover(found.of(KINDS[0], d), found.of(KINDS[1], d))) for d in setup.widths]


def write_report(setup: Setup, found: Found, threads: int, path: Path, arguments: Sequence[str]) -> str:
    """Derived beside measured, with charts; the table of exponents itself."""
    fits = exponents(setup, found)
    shown = _fit_table(fits)
    lines = report.head("Table 1: layers by complexity, sequential operations and path length", arguments)
    lines += [
        "Derived, as in the paper, and evaluated for n = 70, d = 512 (pairs of a multiplication and an addition, leading terms):"
    ]
    lines += ["", _derived(setup), "", "## Paths and chains, measured", "", _path_text(), "", _paths(found), ""]
    lines += ["## Complexity, measured", "", _timing_text(setup, threads), "", shown, "", *_bends(setup, fits), ""]
    width = setup.widths[len(setup.widths) // 2]
    lines += [
        f"![time by length at d = {width}]({path.stem}-time.svg)",
        "",
        "## Where self-attention stops being the cheaper one",
        "",
    ]
    lines += [*_crossing(setup, found), "", f"![crossover by width]({path.stem}-crossover.svg)"]
    report.write(path, lines)
    _time_chart(found, width).write(path.with_name(f"{path.stem}-time.svg"))
    _crossover_chart(crossovers(setup, found)).write(path.with_name(f"{path.stem}-crossover.svg"))
    report.write(path.with_suffix(".json"), [json.dumps([each._asdict() for each in found.timings], indent=0)])
    return shown


def _derived(setup: Setup) -> str:
    header = ["layer", "complexity", "sequential operations", "maximum path", "operations", "sequential", "path"]
    shape = setup.shape(70, 512)
    rows = []
    for kind in KINDS:
        counts = [kind.operations(shape), kind.sequential_operations(shape), kind.path_length(shape)]
        rows.append([kind.name, kind.complexity, kind.sequential, kind.path, *(f"{count:,.0f}" for count in counts)])
    return report.table(header, rows)


def _path_text() -> str:
    return (
        "Path: how often a layer is applied until the gradient of the last output by the first input is not zero any more, "
        "measured / derived. One application of the recurrence lets every state hear of the one before it; the convolutions of the "
        "table have holes that grow k-fold from layer to layer. Chain: the longest chain of operations in the graph of one layer "
        "that wait for each other; for the recurrence it grows with n, for the others it does not."
    )


def _paths(found: Found) -> str:
    lengths = [n for n, _, _ in next(iter(found.paths.values()))]
    header = ["layer", *(f"path, n = {n}" for n in lengths), *(f"chain, n = {n}" for n in lengths)]
    rows = []
    for name, entries in found.paths.items():
        chains = [str(count) for _, count in found.chains.get(name, [])] or ["–"] * len(lengths)
        rows.append([name, *(f"{measured} / {derived:.0f}" for _, measured, derived in entries), *chains])
    return report.table(header, rows)


def _timing_text(setup: Setup, threads: int) -> str:
    clock = "its CPU time" if threads == 1 else "time by the clock"
    together = TOGETHER["recurrent"] * setup.batch
    return (
        f"Time of one sequence in batches of {setup.batch} (recurrent: {together}, its products have a row for each sequence), "
        f"float32, no gradients, {plural(threads, 'thread')} ({clock}); n in {setup.lengths}, d in {setup.widths}, "
        f"k = {setup.kernel}, r = {setup.neighbourhood}; the median of {setup.repetitions} repetitions, in each of which every "
        "layer and shape has its turn in random order. Exponents are fitted by least squares on logarithms, seconds ≈ c·nᵃ·dᵇ, "
        f"over all n and d of {setup.fit_from} and more. Attention is measured without its projections, as the paper counts it."
    )


def _fit_table(fits: dict[str, Fit]) -> str:
    header = ["layer", "exponent of n", "derived", "exponent of d", "derived", "G operations/s, smallest", "largest"]
    rows = []
    for kind in KINDS:
        fit = fits[kind.name]
        cells = [f"{fit.n:.2f}", f"{kind.exponents[0]:g}", f"{fit.d:.2f}", f"{kind.exponents[1]:g}"]
        rows.append([kind.name, *cells, *(f"{rate:.1f}" for rate in fit.rate)])
    return report.table(header, rows)


def _bends(setup: Setup, fits: dict[str, Fit]) -> list[str]:
    """One sentence on whether all exponents are as derived, and why not where they are not."""
    lines = []
    for kind in KINDS:
        fit = fits[kind.name]
        for name, measured, derived in (("n", fit.n, kind.exponents[0]), ("d", fit.d, kind.exponents[1])):
            if abs(measured - derived) > TOLERANCE:
                lines.append(f"- {kind.name}, exponent of {name}: {measured:.2f} instead of {derived:g}. {_why(setup, kind, fit)}")
    return lines or [f"All exponents are within {TOLERANCE} of the derived ones."]


def _why(setup: Setup, kind: Kind, fit: Fit) -> str:
    """What bends an exponent: operations a second are not the same at all shapes."""
    small, large = fit.rate
    matrices = {"recurrent": 1, "convolutional": setup.kernel}.get(kind.name, 0)
    seen = max(setup.lengths) if kind.name == "self-attention" else 3 * setup.neighbourhood / 2
    held = matrices * max(setup.widths) ** 2 or setup.batch * max(setup.lengths) * seen
    what = "weights" if matrices else "attention weights"
    if large < small:
        cause = f"the {what} take {4 * held / 2**20:.1f} MiB at the largest shape, the caches here hold {caches() or 'less'}"
    else:
        cause = "fixed costs (calls, passes over memory) weigh less as shapes grow"
    trend = "falls" if large < small else "rises"
    return f"The rate {trend} from {small:.1f} to {large:.1f} G operations/s from the smallest to the largest shape: {cause}."


def _crossing(setup: Setup, found: Found) -> list[str]:
    crossed = crossovers(setup, found)
    rows = [[str(d), f"{n:.0f}" if n else "–", f"{n / d:.2f}" if n else "–"] for d, n in crossed]
    lines = [
        "By count, self-attention (n²·d) is cheaper than recurrence (n·d²) while n < d. Measured: the n where their times are "
        "equal, on a straight line in logarithms between neighbouring n (– where there is none among the measured n).",
        "",
        report.table(["d", "n at the crossover", "n / d"], rows),
        "",
    ]
    known = [(d, n) for d, n in crossed if n]
    if len(known) >= 2:
        ratios = [n / d for d, n in known]
        lines.append(f"It lies at n = {min(ratios):.2f}·d to {max(ratios):.2f}·d.")
    return lines


def _time_chart(found: Found, d: int) -> report.Chart:
    series = [report.Series(kind.name, [(each.n, 1000 * each.seconds) for each in found.of(kind, d)]) for kind in KINDS]
    return report.Chart(f"Time of a layer at d = {d}", "n, positions", "milliseconds", series, log=True)


def _crossover_chart(crossed: Sequence[tuple[int, float | None]]) -> report.Chart:
    known = [(float(d), n) for d, n in crossed if n]
    equal = [(float(d), float(d)) for d, _ in crossed]
    series = [report.Series("n = d, by count", equal), report.Series("measured", known, joined=False)]
    return report.Chart("Self-attention beside recurrence: equal times", "d, width", "n, positions", series, log=True)
