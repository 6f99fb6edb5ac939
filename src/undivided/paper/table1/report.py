"""The report of Table 1. [paper 4, Table 1]"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from undivided.core.console import plural
from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.table1.layers import CONTIGUOUS, KINDS, RECURRENT, SELF_ATTENTION, SEPARABLE, Kind, feed_forward_operations
from undivided.paper.table1.measure import BATCH_FACTOR, Crossing, Fit, cache_sizes
from undivided.paper.table1.table import HEAD, AttentionComparison, Measurements, Setup, crossovers, exponents

TOLERANCE = 0.25
"""How far a measured exponent may be from the derived one before the report must say why."""

NEAR = 2.0
"""The crossover counts as n ≈ d while n / d is within this factor of 1."""


def write_report(setup: Setup, found: Measurements, threads: int, path: Path, arguments: Sequence[str]) -> str:
    """Write the report with derived and measured values and charts; return the table of exponents."""
    fits = exponents(setup, found)
    shown = _fit_table(fits)
    width = setup.widths[len(setup.widths) // 2]
    lines = report.head("Table 1: layers by complexity, sequential operations and path length", arguments)
    lines += [*_derived(setup), "", "## Paths and chains, measured", "", _path_text(), "", _paths(found), ""]
    lines += ["## Complexity, measured", "", _timing_text(setup, threads), "", shown, "", *_exponent_notes(setup, fits), ""]
    lines += [f"![time by length at d = {width}]({path.stem}-time.svg)", ""]
    lines += ["## Where self-attention becomes slower than recurrence", "", *_crossing(setup, found), ""]
    lines += [f"![crossover by width]({path.stem}-crossover.svg)", ""]
    lines += ["## Additive and dot-product attention", "", *_additive(found)]
    report.write(path, lines)
    _time_chart(found, width).write(path.with_name(f"{path.stem}-time.svg"))
    _crossover_chart(crossovers(setup, found)).write(path.with_name(f"{path.stem}-crossover.svg"))
    report.write(path.with_suffix(".json"), [_as_json(found)])
    return shown


def _as_json(found: Measurements) -> str:
    """Times and memory as JSON."""
    compared = [{**each._asdict(), "dot": each.dot._asdict(), "additive": each.additive._asdict()} for each in found.compared]
    return json.dumps({"timings": [each._asdict() for each in found.timings], "compared": compared}, indent=0)


def _derived(setup: Setup) -> list[str]:
    header = ["layer", "complexity", "sequential operations", "maximum path", "operations", "sequential", "path", "from"]
    shape = setup.shape(70, 512)
    rows = []
    for kind in (*KINDS, CONTIGUOUS):
        counts = [kind.operations(shape), kind.sequential_operations(shape), kind.path_length(shape)]
        rows.append([kind.name, kind.complexity, kind.sequential, kind.path, *(f"{count:,.0f}" for count in counts), kind.place])
    wide = SEPARABLE.operations(shape._replace(k=shape.n))
    both = SELF_ATTENTION.operations(shape) + feed_forward_operations(shape)
    return [
        "Derived as in the paper, and evaluated for n = 70, d = 512 (multiply-add pairs, leading terms):",
        "",
        report.table(header, rows),
        "",
        "Restricted attention is computed in blocks that read half a neighbourhood more than they need (two products of "
        "1.5·r·n·d each), so it saves nothing where n is close to r.",
        "",
        "With k = n a separable convolution takes O(n²·d + n·d²), as much as self-attention, O(n²·d), and a position-wise "
        f"feed-forward layer, O(n·d²), together. Counted with their factors at n = 70, d = 512: {wide:,.0f} and {both:,.0f}, since "
        "attention has two products and the feed-forward layer two matrices with d_ff = 4·d.",
    ]


def _path_text() -> str:
    return (
        "Path: the number of applications of a layer until the gradient of the last output with respect to the first input is not "
        "zero, measured / derived. One application of the recurrence passes every state to the next position; the dilation of the "
        "table's convolutions grows k-fold from layer to layer. Chain: the longest chain of dependent operations in the graph of "
        "one layer; it grows with n for the recurrence, and for no other layer."
    )


def _paths(found: Measurements) -> str:
    lengths = [n for n, _, _ in next(iter(found.paths.values()))]
    header = ["layer", *(f"path, n = {n}" for n in lengths), *(f"chain, n = {n}" for n in lengths)]
    rows = []
    for name, entries in found.paths.items():
        chains = [str(count) for _, count in found.chains.get(name, [])] or ["–"] * len(lengths)
        rows.append([name, *(f"{measured} / {derived:.0f}" for _, measured, derived in entries), *chains])
    return report.table(header, rows)


def _timing_text(setup: Setup, threads: int) -> str:
    clock = "CPU time" if threads == 1 else "wall-clock time"
    together = BATCH_FACTOR["recurrent"] * setup.batch
    return (
        f"Time per sequence in batches of {setup.batch} (recurrent: {together}, as its products have one row per sequence), "
        f"float32, no gradients, {plural(threads, 'thread')} ({clock}); n in {setup.lengths}, d in {setup.widths}, "
        f"k = {setup.kernel}, r = {setup.neighbourhood}; the median of {plural(setup.repetitions, 'repetition')}, each "
        "with all layers and shapes in random order. Exponents are fitted by least squares on logarithms, "
        f"seconds ≈ c·nᵃ·dᵇ, over all n and d from {setup.fit_from} on. Attention is measured without its projections, as the "
        "paper counts it."
    )


def _fit_table(fits: dict[str, Fit]) -> str:
    header = [
        "layer",
        "exponent of n",
        "derived",
        "exponent of d",
        "derived",
        "G operations/s at the smallest shape",
        "at the largest",
    ]
    rows = []
    for kind in KINDS:
        fit = fits[kind.name]
        cells = [f"{fit.n:.2f}", f"{kind.exponents[0]:g}", f"{fit.d:.2f}", f"{kind.exponents[1]:g}"]
        rows.append([kind.name, *cells, *(f"{rate:.1f}" for rate in fit.rate)])
    return report.table(header, rows)


def _exponent_notes(setup: Setup, fits: dict[str, Fit]) -> list[str]:
    """Whether all exponents are as derived, and a likely cause where one is not."""
    lines = []
    for kind in KINDS:
        fit = fits[kind.name]
        for name, measured, derived in (("n", fit.n, kind.exponents[0]), ("d", fit.d, kind.exponents[1])):
            if abs(measured - derived) > TOLERANCE:
                why = _why(setup, kind, fit, name, measured > derived)
                lines.append(f"- {kind.name}, exponent of {name}: {measured:.2f} instead of {derived:g}. {why}")
    return lines or [f"All exponents are within {TOLERANCE} of the derived ones."]


def _why(setup: Setup, kind: Kind, fit: Fit, name: str, high: bool) -> str:
    """Why a fitted exponent differs: the rate changes with n, or with d."""
    along, other = (fit.along_n, "d") if name == "n" else (fit.along_d, "n")
    rates = ", ".join(f"{rate:.1f}" for rate in along.values())
    sizes = ", ".join(map(str, along))
    if high:
        cause = _outgrown_cache(setup, kind, fit, name)
    else:
        cause = f"call overhead and memory traffic, which are not counted, grow more slowly with {name} than the counted operations"
    trend = "falls" if high else "rises"
    measured = f"{rates} G operations/s at {name} = {sizes} (geometric means over {other})"
    return f"The rate {trend} with {name}: {measured}. Likely cause: {cause}."


def _outgrown_cache(setup: Setup, kind: Kind, fit: Fit, name: str) -> str:
    """The cache, if any, that a layer's data outgrow as n or d grows."""
    for what, small, large in _growths(setup, kind, fit, name):
        # Matrix products are blocked for the first cache whatever their size, so only the larger caches matter.
        for level, room in reversed(cache_sizes()[1:]):
            if small <= room < large:
                grown = f"{what} grow from {small / 2**20:.1f} to {large / 2**20:.1f} MiB"
                return f"{grown} and no longer fit the {level} cache of {room / 2**20:g} MiB"
    return "unknown; not the caches, as neither weights nor inputs outgrow one between these sizes"


def _growths(setup: Setup, kind: Kind, fit: Fit, name: str) -> Iterator[tuple[str, float, float]]:
    """Bytes of weights and of a batch at the smallest and largest n of the fit, for every d; or the reverse."""
    along, others, other = (fit.along_n, fit.along_d, "d") if name == "n" else (fit.along_d, fit.along_n, "n")
    batch = setup.batch * BATCH_FACTOR.get(kind.name, 1)
    for fixed in others:
        ends = [setup.shape(size, fixed) if name == "n" else setup.shape(fixed, size) for size in (min(along), max(along))]
        weights, held = [4 * kind.weights(end) for end in ends], [4 * batch * kind.held(end) for end in ends]
        yield "the weights", weights[0], weights[1]
        yield f"inputs, outputs and scores of a batch at {other} = {fixed}", held[0], held[1]


def _crossing(setup: Setup, found: Measurements) -> list[str]:
    crossed = crossovers(setup, found)
    header = ["d", "n at the crossover", "n / d", "self-attention, G operations/s there", "recurrent, G operations/s there"]
    rows = []
    for d, at in crossed:
        if at:
            rows.append([f"{d}", f"{at.n:.0f}", f"{at.n / d:.2f}", *(f"{rate:.1f}" for rate in at.rates)])
        else:
            side, n = _uncrossed(found, d)
            rows.append([f"{d}", f"{side} {n}", f"{side} {n / d:.2f}", "–", "–"])
    return [
        "By count, self-attention (n²·d) is cheaper than recurrence (n·d²) while n < d. Measured: the n where their times are "
        "equal, interpolated linearly in logarithms between neighbouring n. As both count the same operations at n = d, n / d "
        "there is the rate of self-attention divided by that of recurrence.",
        "",
        report.table(header, rows),
        "",
        *_crossover_notes(crossed, found),
    ]


def _uncrossed(found: Measurements, d: int) -> tuple[str, int]:
    """Where the crossover lies if it is outside the measured n: over the largest or under the smallest."""
    ours, others = ({each.n: each.seconds for each in found.of(kind, d)} for kind in (SELF_ATTENTION, RECURRENT))
    last = max(ours)
    return ("over", last) if ours[last] <= others[last] else ("under", min(ours))


def _crossover_notes(crossed: Sequence[tuple[int, Crossing | None]], found: Measurements) -> list[str]:
    """Whether n ≈ d holds; where it does not, which layer runs at the higher rate."""
    ratios = {d: at.n / d for d, at in crossed if at}
    far = [d for d, ratio in ratios.items() if not 1 / NEAR <= ratio <= NEAR]
    lines = []
    if ratios:
        holds = f"not within a factor of {NEAR:g} of 1 at d = {', '.join(map(str, far))}"
        if not far:
            holds = f"within a factor of {NEAR:g} of 1 at all of these widths, so n ≈ d holds"
        lines.append(
            f"Where it is measured, n / d lies between {min(ratios.values()):.2f} and {max(ratios.values()):.2f}: {holds}."
        )
    for d, at in crossed:
        if at is None:
            lines += ["", _unmeasured(d, *_uncrossed(found, d))]
        elif d in far:
            lines += ["", _shifted(d, at)]
    return lines


def _shifted(d: int, at: Crossing) -> str:
    ours, others = at.rates
    who = "self-attention" if ours > others else "recurrence"
    return (
        f"At d = {d} n ≈ d does not hold: {who} runs at the higher rate ({max(at.rates):.1f} against {min(at.rates):.1f} "
        f"G operations/s), which moves the crossover from n = d to n = {at.n / d:.2f}·d."
    )


def _unmeasured(d: int, side: str, n: int) -> str:
    over = side == "over"
    who = "self-attention is still" if over else "recurrence is already"
    far = n / d >= NEAR if over else n / d <= 1 / NEAR
    verdict = (
        "n ≈ d does not hold there"
        if far
        else f"to tell whether it is within a factor of {NEAR:g} of n = d, use a wider range of --n"
    )
    return f"At d = {d} {who} faster at n = {n}, so the crossover is {side} n = {n / d:.2f}·d: {verdict}."


def _additive(found: Measurements) -> list[str]:
    """The paper's claim about the cost of additive attention, with figures. [paper 3.2.1]"""
    header = ["n", "operations, times", "dot-product, ms", "additive, ms", "times", "dot-product, MiB", "additive, MiB", "times"]
    rows = []
    for each in found.compared:
        operations, seconds, held = _cost_ratios(each)
        times = [f"{1000 * timing.seconds:.2f}" for timing in (each.dot, each.additive)]
        sizes = [f"{size / 2**20:.2f}" for size in (each.dot_bytes, each.additive_bytes)]
        rows.append([f"{each.dot.n}", f"{operations:.1f}", *times, f"{seconds:.1f}", *sizes, f"{held:.1f}"])
    return [
        "Section 3.2.1: both are similar in theoretical complexity, dot-product attention is much faster and more space-efficient "
        f"in practice. Measured at d = {HEAD} for one sequence at a time: scaled dot products as in Eq. 1, and scores from one "
        "hidden layer of width d with tanh (Bahdanau et al.), including its two products with the inputs. Memory is the peak of "
        "all results, intermediate ones included; `times` is additive / dot-product.",
        "",
        report.table(header, rows),
        "",
        _additive_verdict(found.compared),
        "",
        "The paper also says that additive attention is better for large d_k if scores are not scaled; that is a claim "
        "about quality. What scaling does is answered in docs/faq/sqrt-dk.md (`undivided paper faq --only sqrt-dk`).",
    ]


def _cost_ratios(each: AttentionComparison) -> tuple[float, float, float]:
    """Operations, time and memory of additive attention divided by those of dot-product attention."""
    dot, additive = each.dot, each.additive
    return additive.operations / dot.operations, additive.seconds / dot.seconds, each.additive_bytes / each.dot_bytes


def _additive_verdict(compared: Sequence[AttentionComparison]) -> str:
    last = compared[-1]
    operations, seconds, held = _cost_ratios(last)
    agree = all(min(_cost_ratios(each)[1:]) > 1 for each in compared)
    verdict = "at every n dot products are faster and smaller, as the paper says" if agree else "the paper's claim fails at some n"
    return (
        f"At n = {last.dot.n} additive attention counts {operations:.1f} times the operations, takes {seconds:.1f} times the time "
        f"and {held:.1f} times the memory of dot-product attention; {verdict}."
    )


def _time_chart(found: Measurements, d: int) -> Chart:
    series = [Series(kind.name, [(each.n, 1000 * each.seconds) for each in found.of(kind, d)]) for kind in KINDS]
    return Chart(f"Time of a layer at d = {d}", "n, positions", "milliseconds", series, log=True)


def _crossover_chart(crossed: Sequence[tuple[int, Crossing | None]]) -> Chart:
    known = [(float(d), at.n) for d, at in crossed if at]
    equal = [(float(d), float(d)) for d, _ in crossed]
    series = [Series("n = d, by count", equal), Series("measured", known, connect=False)]
    return Chart("Where self-attention and recurrence take equal time", "d, width", "n, positions", series, log=True)
