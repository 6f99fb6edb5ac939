"""Validation BLEU over the minutes of training: who is ahead when, and by sentence length at equal steps. [paper 6.1]"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.runs import read_log

MARKS = (1 / 9, 2 / 9, 1 / 3, 2 / 3, 1.0)
"""The shares of the budget at which the table of the curves is read."""

LENGTHS = "bleu_"
"""How the numbers of a validation that are of one class of lengths begin."""


class Point(NamedTuple):
    """One validation; minutes are those of training steps alone."""

    step: int
    minutes: float
    bleu: float
    perplexity: float
    by_length: dict[str, float]


Curve = list[Point]


def read_curve(model: Path) -> Curve:
    """The validations of a training in order; of a step that was taken twice, after a stop, the last one."""
    found: dict[int, Point] = {}
    for event in read_log(model):
        if event["event"] in ("validation", "final") and "bleu" in event:
            lengths = {name: value for name, value in event.items() if name.startswith(LENGTHS)}
            found[event["step"]] = Point(event["step"], event["seconds"] / 60, event["bleu"], event["perplexity"], lengths)
    return [found[step] for step in sorted(found)]


def bleu_at(curve: Curve, minutes: float) -> float:
    """The BLEU of the newest validation at some time; 0 before the first."""
    return next((point.bleu for point in reversed(curve) if point.minutes <= minutes), 0.0)


def mean_at(curves: Sequence[Curve], minutes: float) -> float:
    """The mean over seeds."""
    return float(np.mean([bleu_at(curve, minutes) for curve in curves]))


def last_minute(curves: dict[str, list[Curve]]) -> float:
    """When the first of all trainings ended, so that all are compared at times that all had."""
    return min(curve[-1].minutes for row in curves.values() for curve in row if curve)


def leaders(curves: dict[str, list[Curve]]) -> list[tuple[float, str]]:
    """From which minute on who is ahead; nobody is before the first validations."""
    times = sorted({point.minutes for row in curves.values() for curve in row for point in curve})
    found: list[tuple[float, str]] = []
    for minutes in (each for each in times if each <= last_minute(curves)):
        values = {name: mean_at(row, minutes) for name, row in curves.items()}
        best = max(values, key=lambda name: values[name])
        if values[best] > 0 and (not found or found[-1][1] != best):
            found.append((minutes, best))
    return found


def curve_lines(curves: dict[str, list[Curve]], picture: str) -> list[str]:
    """The section on the curves."""
    curves = {name: row for name, row in curves.items() if all(row)}
    if not curves:
        return []
    marks = [share * last_minute(curves) for share in MARKS]
    rows = [[name, *(f"{mean_at(row, minutes):.2f}" for minutes in marks)] for name, row in curves.items()]
    ahead = [f"{name} from minute {minutes:.1f} on" for minutes, name in leaders(curves)]
    return [
        "## Validation BLEU over minutes",
        "",
        "Greedy, on the validation text, mean over seeds; minutes of training steps alone, on one thread each. A cell is the "
        "newest validation at that time.",
        "",
        report.table(["model", *(f"{minutes:.1f} min" for minutes in marks)], rows),
        "",
        f"Ahead: {'; '.join(ahead)}." if ahead else "Nobody had a BLEU above 0.",
        "",
        f"![validation BLEU over minutes]({picture})",
        "",
        *_at_equal_steps(curves),
    ]


def _at_equal_steps(curves: dict[str, list[Curve]]) -> list[str]:
    """BLEU by length at the last step at which all were validated."""
    common = set.intersection(*({point.step for point in curve} for row in curves.values() for curve in row))
    if not common:
        return []
    step, rows, classes = max(common), [], list[str]()
    for name, row in curves.items():
        points = [next(point for point in curve if point.step == step) for curve in row]
        classes = sorted({each for point in points for each in point.by_length} | set(classes), key=_first_number)
        cells = [f"{np.mean([point.minutes for point in points]):.1f}", f"{np.mean([point.bleu for point in points]):.2f}"]
        rows.append((name, cells, points))
    table = [
        [name, *cells, *(f"{np.mean([point.by_length.get(each, np.nan) for point in points]):.2f}" for each in classes)]
        for name, cells, points in rows
    ]
    words = [each.removeprefix(LENGTHS).replace("_", " ") for each in classes]
    head = report.table(["model", "minutes", "BLEU", *words], table)
    return [f"## After {step:,} steps each, by length of the source", "", "On the validation text, greedy.", "", head, ""]


def _first_number(name: str) -> int:
    return next(int(part) for part in name.split("_") if part.isdecimal())


def curve_chart(curves: dict[str, list[Curve]]) -> Chart:
    """A line for each model: the mean over seeds at the times of its first seed, with the range of its seeds."""
    series = []
    for name, row in curves.items():
        times = [point.minutes for point in row[0]]
        bounds = [(min(values), max(values)) for minutes in times for values in [[bleu_at(curve, minutes) for curve in row]]]
        series.append(Series(name, [(minutes, mean_at(row, minutes)) for minutes in times], bounds if len(row) > 1 else ()))
    return Chart("Validation BLEU over minutes of training", "minutes", "BLEU, greedy", series)
