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
from undivided.paper.table3.spread import pool_unpaired
from undivided.paper.table3.table import RowResult, Table3Config, base_recipe, bleu_of
from undivided.paper.table3.verdicts import (
    RULE_OF_AGREEMENT,
    Verdict,
    as_percent,
    compare_with_base,
    difference_chart,
    format_noise,
    noise_percent,
    sentence_interval,
    spreads_of,
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
        f"({plural(len(table[0].results), 'seed')} of base, {config.other_seeds} of the others; with the same seed all rows "
        "have the same batches in the same order), measured on "
        f"`{Path(config.test.source).name}`: beam {recipe.search.beam_size}, α {recipe.search.length_penalty:g}, no averaged "
        f"checkpoints, decoded by PyTorch in float32, BLEU `{signature(recipe.data.target_lang)}`, perplexity per subword. "
        "If the budget is time, larger models take fewer steps. The paper's figures are for newstest2013 after 100,000 steps "
        "(big: 300,000) on eight GPUs.",
        "",
        shown := _table(table, verdicts),
        "",
        *_spread(table),
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


def _spread(table: Sequence[RowResult]) -> list[str]:
    """How much trainings of the same recipe differ, pooled over rows, and what of that pairing by seed takes away."""
    spreads = spreads_of(table)
    if not spreads["BLEU"].degrees:
        return []
    base = table[0]
    alone = {"BLEU": pool_unpaired([row.bleus for row in table]), "perplexity": pool_unpaired([_logs(row) for row in table])}
    lines = []
    for name, spread in spreads.items():
        unit = (lambda value: f"{value:.2f}") if name == "BLEU" else noise_percent
        how = f"{unit(alone[name].deviation)} of a row's own seeds, pooled over {plural(len(table), 'row')}"
        if spread.paired:
            how += f"; {unit(spread.deviation)} ({spread.degrees} degrees of freedom) without what a seed does to all rows alike"
        seeds = ", ".join(f"{value:.2f}" for value in (base.bleus if name == "BLEU" else base.perplexities))
        lines.append(f"- {name}: standard deviation {how}. The seeds of base: {seeds}.")
    return ["How much trainings differ that differ in their seed alone:", "", *lines, ""]


def _logs(row: RowResult) -> list[float]:
    return [math.log(value) for value in row.perplexities]


def _finite(value: Any) -> Any:
    """A value for JSON: an infinite noise becomes null."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    return None if value == math.inf else value


def _cost(row: RowResult) -> dict[str, list[float]]:
    return {name: [getattr(result, name) for result in row.results] for name in ("parameters", "steps", "epochs", "seconds")}


def _table(table: Sequence[RowResult], verdicts: dict[str, Verdict]) -> str:
    header = ["row", "change here", "M params", "paper", "steps", "perplexity", "paper", "BLEU", "95 %", "paper"]
    header += ["Δ BLEU", "paper", "Δ perplexity", "paper", "exact"]
    rows = []
    for each in table:
        low, high = sentence_interval(bleu_of, each.bleu_counts)
        theirs, verdict = each.row.published, verdicts.get(each.row.name)
        cells = [each.row.name, each.change or "–", f"{each.results[0].parameters / 1e6:.2f}"]
        cells += [f"{theirs.parameters or '–'}" if theirs else "–", f"{np.mean([result.steps for result in each.results]):.0f}"]
        cells += [f"{np.mean(each.perplexities):.2f}", f"{theirs.perplexity:.2f}" if theirs else "–"]
        cells += [f"{np.mean(each.bleus):.2f}", report.interval(low, high), f"{theirs.bleu:.1f}" if theirs else "–"]
        rows.append([*cells, *_differences(verdict), f"{100 * each.exact:.1f} %"])
    return report.table(header, rows)


def _differences(verdict: Verdict | None) -> list[str]:
    """From base, here and in the paper: of BLEU, then of perplexity."""
    if verdict is None:
        return ["–"] * 4
    bleu, perplexity = verdict.bleu, verdict.perplexity
    ours = f"{as_percent(perplexity.difference)} ± {noise_percent(perplexity.noise)}"
    theirs = [
        "–" if bleu.paper is None else f"{bleu.paper:+.1f}",
        "–" if perplexity.paper is None else as_percent(perplexity.paper),
    ]
    return [f"{bleu.difference:+.2f} ± {format_noise(bleu.noise)}", theirs[0], ours, theirs[1]]
