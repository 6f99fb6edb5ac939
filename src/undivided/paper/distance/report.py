"""The report on long range: accuracy over distance beside the path lengths of Table 1. [paper 4, Table 1]"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from undivided.core.console import plural
from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.distance.recall import (
    COMPETITORS,
    EMBEDDING,
    HEADS,
    KERNEL,
    VALUES,
    WINDOW,
    convolution_depth,
    count_parameters,
    make_reader,
    path_length,
)
from undivided.paper.distance.trials import SOLVED, Cell, DistanceConfig, RunResult, choose_rates

KNOWS = 0.9
"""A model reaches a distance where it answers this share."""

Cells = dict[tuple[str, int], Cell]


def write_report(config: DistanceConfig, results: Sequence[RunResult], path: Path, arguments: Sequence[str]) -> str:
    """Write tables, a chart and all results as JSON; return the table of accuracies."""
    cells = choose_rates(list(results))
    longest = config.longest or max(config.distances)
    lines = report.head("Long range: an answer that lies n tokens back", arguments)
    lines += [
        f"{plural(len(results), 'training')} on one thread each, {sum(each.seconds for each in results) / 60:.0f} minutes in all: "
        f"{plural(config.seeds, 'seed')} and {plural(len(config.rates), 'learning rate')} "
        f"({', '.join(f'{rate:g}' for rate in config.rates)}) for every model and distance, up to {config.steps:,} steps of "
        f"{config.batch} fresh sequences. A sequence is noise over {VALUES} tokens with a mark in it; the answer is the token "
        f"behind the mark, n tokens before the query at the end, so guessing is right in {1 / VALUES:.1%}. Each cell has the rate "
        f"that was best on validation; a training ends when two validations in a row reach {SOLVED:.0%}.",
        "",
        "Accuracy on 1,024 fresh sequences, in percent, mean over seeds (lowest–highest):",
        "",
        shown := _accuracies(config, cells),
        "",
        f"![accuracy over distance]({path.stem}.svg)",
        "",
        *_conclusions(config, cells),
        "",
        *(["One seed each: another may learn what this one did not, or fail where it did not.", ""] if config.seeds == 1 else []),
        "## Beside it: the maximum path length of Table 1",
        "",
        "Layers, or for recurrent models steps, between the answer and the query at distance n. *Sees* is how far back the last "
        "state of the model trained here can see at all. Table 1 has kernels around a position; "
        "those here are causal and reach twice as far.",
        "",
        _paths(config, longest),
        "",
        f"All models have about as many parameters; embeddings are {EMBEDDING} wide. The Transformers are decoders of 2 layers "
        f"with {HEADS} heads, pre-norm, sinusoidal positions; recurrent models have 2 layers; both convolutional ones "
        f"{convolution_depth(longest)} gated layers of kernels of {KERNEL}, causal, whose holes grow {KERNEL}-fold from layer to "
        f"layer if dilated; `r = {WINDOW}` restricts attention to {WINDOW // 2} tokens back.",
        "",
        "## Steps until it was learned",
        "",
        "Mean over the seeds that ended early; – where none did.",
        "",
        _steps(config, cells),
    ]
    report.write(path, lines)
    _chart(config, cells).write(path.with_suffix(".svg"))
    report.write(path.with_suffix(".json"), [json.dumps({"results": [asdict(each) for each in results]}, indent=0)])
    return shown


def _rows(config: DistanceConfig, cells: Cells) -> list[str]:
    return [name for name in config.names if any(key[0] == name for key in cells)]


def _accuracies(config: DistanceConfig, cells: Cells) -> str:
    def show(cell: Cell | None) -> str:
        if cell is None:
            return "–"
        spread = f" ({100 * min(cell.tests):.0f}–{100 * max(cell.tests):.0f})" if len(cell.tests) > 1 else ""
        return f"{100 * cell.mean:.1f}{spread}"

    rows = [[COMPETITORS[name].name, *(show(cells.get((name, n))) for n in config.distances)] for name in _rows(config, cells)]
    return report.table(["model", *(f"n = {n}" for n in config.distances)], rows)


def _paths(config: DistanceConfig, longest: int) -> str:
    rows = []
    for name in config.names:
        reach = COMPETITORS[name].reach(convolution_depth(longest))
        cells = [COMPETITORS[name].name, f"{count_parameters(make_reader(name, longest, 1)):,}", COMPETITORS[name].kind.path]
        rows.append(
            [*cells, "all" if math.isinf(reach) else f"{reach:.0f}", *(str(path_length(name, n)) for n in config.distances)]
        )
    return report.table(["model", "parameters", "path", "sees", *(f"n = {n}" for n in config.distances)], rows)


def _steps(config: DistanceConfig, cells: Cells) -> str:
    def show(cell: Cell | None) -> str:
        taken = [steps for steps, solved in zip(cell.steps, cell.solved, strict=True) if solved] if cell else []
        return f"{np.mean(taken):,.0f}" if taken else "–"

    rows = [[COMPETITORS[name].name, *(show(cells.get((name, n))) for n in config.distances)] for name in _rows(config, cells)]
    return report.table(["model", *(f"n = {n}" for n in config.distances)], rows)


def _conclusions(config: DistanceConfig, cells: Cells) -> list[str]:
    """How far each got, and why no farther where that is known."""
    lines = []
    for name in _rows(config, cells):
        known = [n for n in config.distances if (name, n) in cells]
        far = [n for n in known if cells[name, n].mean >= KNOWS]
        reach = COMPETITORS[name].reach(convolution_depth(config.longest or max(config.distances)))
        said = f"{KNOWS:.0%} right up to n = {max(far)} of {max(known)}" if far else f"{KNOWS:.0%} right at no distance"
        gaps = [n for n in known if far and n < max(far) and n not in far]
        said += f", but not at {', '.join(map(str, gaps))}" if gaps else ""
        beyond = [n for n in known if n > reach]
        said += f"; from n = {min(beyond)} on the answer lies outside what it sees ({reach:.0f} tokens)" if beyond else ""
        lines.append(f"- {COMPETITORS[name].name}: {said}.")
    return lines


def _chart(config: DistanceConfig, cells: Cells) -> Chart:
    series = []
    for name in _rows(config, cells):
        known = [(float(place), cells[name, n]) for place, n in enumerate(config.distances) if (name, n) in cells]
        points = [(place, 100 * cell.mean) for place, cell in known]
        bounds = [(100 * min(cell.tests), 100 * max(cell.tests)) for _, cell in known]
        series.append(Series(COMPETITORS[name].name, points, bounds))
    title = f"Right answers by distance (guessing: {100 / VALUES:.1f} %)"
    return Chart(title, "tokens between answer and query", "% right", series, names=[str(n) for n in config.distances])
