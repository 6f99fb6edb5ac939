"""The report of Table 3. [paper 6.2, Table 3]"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from undivided.core.console import plural
from undivided.inference.score import bleu
from undivided.paper import report
from undivided.paper.table3.table import RowResult, Table3Config, base_recipe, bleu_of
from undivided.paper.table3.verdicts import (
    RULE_OF_AGREEMENT,
    Verdict,
    compare_with_base,
    difference_chart,
    format_noise,
    sentence_interval,
    verdict_lines,
)


def signature(lang: str) -> str:
    """The sacreBLEU signature for a target language."""
    return bleu(["a"], ["a"], lang).signature


def write_report(config: Table3Config, table: Sequence[RowResult], path: Path, arguments: Sequence[str]) -> str:
    """Write the table beside the paper's, the verdicts, a chart, and all figures as JSON; return the table."""
    recipe = base_recipe(config)
    verdicts = compare_with_base(table)
    lines = report.head(f"Table 3 on {Path(config.test.source).stem}: variations of a recipe", arguments)
    spent = [result.seconds / 60 for row in table for result in row.results]
    lines += [
        f"{plural(sum(len(row.results) for row in table), 'training')} of {min(spent):.1f}–{max(spent):.1f} minutes each "
        f"({plural(len(table[0].results), 'seed')} of base, {config.other_seeds} of the others), measured on "
        f"`{Path(config.test.source).name}`: beam {recipe.search.beam_size}, α {recipe.search.length_penalty:g}, no averaged "
        f"checkpoints, decoded by PyTorch in float32, BLEU `{signature(recipe.data.target_lang)}`, perplexity per subword. "
        "If the budget is time, larger models take fewer steps. The paper's figures are for newstest2013 after 100,000 steps "
        "(big: 300,000) on eight GPUs.",
        "",
        shown := _table(table, verdicts),
        "",
        *_spread(table[0]),
        f"![BLEU of each row less that of base]({path.stem}.svg)",
        "",
        RULE_OF_AGREEMENT,
        "",
        *verdict_lines(table, verdicts),
    ]
    report.write(path, lines)
    difference_chart(verdicts).write(path.with_suffix(".svg"))
    figures = {row.row.name: {"bleu": row.bleus, "perplexity": row.perplexities, **_cost(row)} for row in table}
    compared_figures = {name: asdict(verdict) for name, verdict in verdicts.items()}
    report.write(path.with_suffix(".json"), [json.dumps(_finite({"rows": figures, "against base": compared_figures}), indent=1)])
    return shown


def _spread(base: RowResult) -> list[str]:
    """How much trainings of the same recipe differ."""
    if len(base.results) < 2:
        return []
    figures = [("BLEU", base.bleus), ("perplexity", base.perplexities)]
    said = "; ".join(
        f"{name} {', '.join(f'{value:.2f}' for value in values)} (standard deviation {np.std(values, ddof=1):.2f})"
        for name, values in figures
    )
    return [f"The seeds of base: {said}.", ""]


def _finite(value: Any) -> Any:
    """A value for JSON: an infinite noise becomes null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if value == math.inf else value


def _cost(row: RowResult) -> dict[str, list[float]]:
    return {name: [getattr(result, name) for result in row.results] for name in ("parameters", "steps", "epochs", "seconds")}


def _table(table: Sequence[RowResult], verdicts: dict[str, Verdict]) -> str:
    header = ["row", "change here", "M params", "paper", "steps", "perplexity", "paper", "BLEU", "95 %", "paper", "Δ BLEU", "paper"]
    rows = []
    base = table[0].row.published
    for each in table:
        low, high = sentence_interval(bleu_of, each.bleu_counts)
        parameters = each.row.published.parameters
        cells = [each.row.name, each.change or "–", f"{each.results[0].parameters / 1e6:.2f}", f"{parameters or '–'}"]
        cells += [f"{np.mean([result.steps for result in each.results]):.0f}", f"{np.mean(each.perplexities):.2f}"]
        cells += [f"{each.row.published.perplexity:.2f}", f"{np.mean(each.bleus):.2f}", report.interval(low, high)]
        cells.append(f"{each.row.published.bleu:.1f}")
        verdict = verdicts.get(each.row.name)
        ours = f"{verdict.bleu.difference:+.2f} ± {format_noise(verdict.bleu.noise)}" if verdict else "–"
        rows.append([*cells, ours, f"{each.row.published.bleu - base.bleu:+.1f}" if verdict else "–"])
    return report.table(header, rows)
