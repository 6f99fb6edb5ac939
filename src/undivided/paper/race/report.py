"""The report of the race."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from undivided.core.console import plural
from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.race.curves import Curve, curve_chart, curve_lines
from undivided.paper.race.race import ENTRANTS, Race, RaceConfig, RaceResult, length_bins, settings_for
from undivided.paper.race.trials import Trial, best_trial, describe_trials, with_trial
from undivided.paper.table3.report import signature
from undivided.paper.table3.table import bleu_of, log_perplexity_of

Runs = dict[str, list[RaceResult]]


def write_report(config: RaceConfig, found: Race, path: Path, arguments: Sequence[str]) -> str:
    """Write tables, charts and all figures as JSON; return the main table."""
    runs = found.runs
    first = next(iter(runs.values()))[0]
    bins = length_bins(first.source_words)
    spent = [each.curve[-1].minutes for row in runs.values() for each in row]
    lang = str(config.recipes["transformer"].get("data", {}).get("target_lang", ""))
    lines = report.head(f"The race on {Path(config.test.source).stem}: the Transformer and the models before it", arguments)
    lines += [
        f"{plural(len(spent), 'training')} of {min(spent):.1f}–{max(spent):.1f} minutes, {_seeds(runs)}, on the same "
        f"text, subwords and batches; widths are chosen so that all have about the same number of parameters ({_spread(runs)}). "
        f"BLEU `{signature(lang)}` with the recipe's beam; perplexity per subword. Speeds are target tokens per second on the "
        "machine above, for translation with PyTorch. Tested is the model of a training's best validation. Recurrent encoders are "
        "bidirectional and attention is additive; without attention the decoder sees only the encoder's final state.",
        "",
        shown := _table(runs),
        "",
        *curve_lines(_curves(runs), f"{path.stem}-curves.svg"),
        "## BLEU by length of the source sentence",
        "",
        _by_length(runs, bins),
        "",
        f"![BLEU by sentence length]({path.stem}-length.svg)",
        "",
        "## How far gradients reach",
        "",
        "Mean norm of the gradient of the last target token's log-probability with respect to a source token's embedding, by the "
        "number of steps of a recurrent model between them; each curve is divided by its value at the shortest distance.",
        "",
        f"![size of gradients by distance]({path.stem}-reach.svg)",
        "",
        "## Settings",
        "",
        *(f"- {ENTRANTS[name].name}: {_settings(config, name, found.trials.get(name))}" for name in runs),
        *_trial_lines(config, found.trials),
    ]
    report.write(path, lines)
    _length_chart(runs, bins).write(path.with_name(f"{path.stem}-length.svg"))
    _reach_chart(runs).write(path.with_name(f"{path.stem}-reach.svg"))
    curve_chart(_curves(runs)).write(path.with_name(f"{path.stem}-curves.svg"))
    figures = _figures(runs, bins)
    for name, trials in found.trials.items():
        figures[name]["trials"] = [trial._asdict() for trial in trials]
    report.write(path.with_suffix(".json"), [json.dumps(figures, indent=1)])
    return shown


def _spread(runs: Runs) -> str:
    counts = [each.result.parameters for row in runs.values() for each in row]
    return f"{min(counts):,} to {max(counts):,}"


def _seeds(runs: Runs) -> str:
    """`seeds 1 to 3 (one of RNN, attention)`."""
    most = max(map(len, runs.values()))
    fewer = [f"{plural(len(row), 'seed')} of {ENTRANTS[name].name}" for name, row in runs.items() if len(row) < most]
    return f"seeds 1 to {most}" + (f" ({'; '.join(fewer)})" if fewer else "")


def _curves(runs: Runs) -> dict[str, list[Curve]]:
    return {ENTRANTS[name].name: [each.curve for each in row] for name, row in runs.items()}


def _trial_lines(config: RaceConfig, trials: dict[str, list[Trial]]) -> list[str]:
    """What was tried for each model, and what was chosen."""
    if not trials or config.trials is None:
        return []
    count = len(next(iter(trials.values())))
    said = f"Rate and dropout were chosen by {count} trainings of {config.trials.minutes:g} minutes each, seed 1, by their "
    said += "BLEU on validation (in brackets their perplexity); the chosen one is bold."
    return ["", "## Trials", "", said, "", *(f"- {ENTRANTS[name].name}: {describe_trials(each)}" for name, each in trials.items())]


def _settings(config: RaceConfig, name: str, trials: list[Trial] | None) -> str:
    values = settings_for(config, name)
    values = with_trial(values, best_trial(trials)) if trials else values
    train = {
        key: values["train"][key]
        for key in ("rate", "schedule", "warmup_steps", "clip", "label_smoothing")
        if key in values["train"]
    }
    return ", ".join(f"{key} {value}" for key, value in {**values["model"], **train}.items())


def _counts(row: Sequence[RaceResult]) -> np.ndarray:
    return np.array([each.result.bleu_counts for each in row])  # seeds × sentences × counts


def _bleus(row: Sequence[RaceResult]) -> list[float]:
    return [bleu_of(sums) for sums in _counts(row).sum(axis=1)]


def _in_bin(row: Sequence[RaceResult], low: int, high: int) -> float:
    inside = [low <= words <= high for words in row[0].source_words]
    return float(np.mean([bleu_of(counts[inside].sum(axis=0)) for counts in _counts(row)]))


def _training_rate(row: Sequence[RaceResult]) -> float:
    return float(np.mean([each.target_tokens / max(each.result.seconds, 1e-9) for each in row]))


def _translation_rate(row: Sequence[RaceResult]) -> float:
    return float(np.mean([each.translated_tokens / max(each.translated_seconds, 1e-9) for each in row]))


def _table(runs: Runs) -> str:
    header = [
        "model",
        "parameters",
        "steps",
        "BLEU",
        "of each seed",
        "95 % (sentences)",
        "perplexity",
        "train tok/s",
        "translate tok/s",
    ]
    rows = []
    for name, row in runs.items():
        bleus, counts = _bleus(row), _counts(row)
        low, high = report.bootstrap_interval(bleu_of, counts.sum(axis=0)) if len(counts) else (0.0, 0.0)
        perplexity = np.mean([np.exp(log_perplexity_of(np.array(each.result.nll_counts).sum(axis=0))) for each in row])
        steps = np.mean([each.curve[-1].step for each in row])
        cells = [ENTRANTS[name].name, f"{row[0].result.parameters:,}", f"{steps:,.0f}", f"{np.mean(bleus):.2f}"]
        cells += [" ".join(f"{bleu:.2f}" for bleu in bleus), report.interval(low, high), f"{perplexity:.2f}"]
        rows.append([*cells, f"{_training_rate(row):,.0f}", f"{_translation_rate(row):,.0f}"])
    return report.table(header, rows)


def _range(low: int, high: int) -> str:
    return f"{low}–{high} words"


def _by_length(runs: Runs, bins: Sequence[tuple[int, int]]) -> str:
    words = next(iter(runs.values()))[0].source_words
    sizes = [sum(low <= count <= high for count in words) for low, high in bins]
    rows = [[ENTRANTS[name].name, *(f"{_in_bin(row, *each):.2f}" for each in bins)] for name, row in runs.items()]
    return report.table(["model", *(_range(*each) for each in bins)], [*rows, ["sentences", *map(str, sizes)]])


def _length_chart(runs: Runs, bins: Sequence[tuple[int, int]]) -> Chart:
    series = [
        Series(ENTRANTS[name].name, [(float(place), _in_bin(row, *each)) for place, each in enumerate(bins)])
        for name, row in runs.items()
    ]
    return Chart(
        "BLEU by length of the source", "words of the source", "BLEU", series, names=[f"{low}–{high}" for low, high in bins]
    )


def _reach_chart(runs: Runs) -> Chart:
    series = []
    for name, row in runs.items():
        reach = row[0].reach
        sizes = [max(size / max(reach.sizes[0], 1e-30), 2.0**-40) for size in reach.sizes]
        series.append(Series(ENTRANTS[name].name, list(zip(map(float, reach.distances), sizes, strict=True))))
    return Chart("Size of gradients by distance (seed 1)", "steps", "relative to the nearest", series, log=True)


def _figures(runs: Runs, bins: Sequence[tuple[int, int]]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "parameters": row[0].result.parameters,
            "steps": [each.curve[-1].step for each in row],
            "seconds": [60 * each.curve[-1].minutes for each in row],
            "step of the tested model": [each.result.steps for each in row],
            "bleu": _bleus(row),
            "bleu by length": {_range(*each): _in_bin(row, *each) for each in bins},
            "training tokens a second": _training_rate(row),
            "translated tokens a second": _translation_rate(row),
            "reach": [each.reach._asdict() for each in row],
            "curves": [[point._asdict() for point in each.curve] for each in row],
        }
        for name, row in runs.items()
    }
