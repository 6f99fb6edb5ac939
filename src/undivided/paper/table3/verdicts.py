"""Does a row differ from base here as it does in the paper? A stated statistical rule decides. [paper 6.2]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.table3.table import Figure, RowResult, bleu_of, log_perplexity_of

STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Two-sided 95 % points of Student's t by degrees of freedom."""

SAME_BLEU, SAME_PERPLEXITY = 0.25, 0.02
"""Differences in the paper up to this size count as none: BLEU points, and a fraction of the perplexity."""

CLOSE_BLEU, CLOSE_PERPLEXITY = 1.5, 0.1
"""Two rows are the same here only if their difference plus its noise is within this."""

RULE_OF_AGREEMENT = (
    "How agreement is judged: a row differs from base here if the difference exceeds its noise, the larger of two 95 % "
    "half-widths: over seeds (Student's t with the standard deviation of base's seeds, assumed equal for all rows) and over test "
    "sentences (1,000 paired bootstrap samples). In the paper a row differs from base if the difference exceeds "
    f"{SAME_BLEU:g} BLEU or {SAME_PERPLEXITY:.0%} of the perplexity. Same direction in both: agrees. No difference in both: agrees "
    f"if the difference here plus its noise is within {CLOSE_BLEU:g} BLEU or {CLOSE_PERPLEXITY:.0%} of the perplexity. A "
    "difference here that has the other direction in the paper, or is none there: disagrees. Otherwise: not resolved."
)


@dataclass(frozen=True)
class Difference:
    """A row minus base: BLEU points, or the logarithm of perplexity."""

    difference: float
    seeds: float
    """Half-width of the interval over seeds; infinite if base has one seed only."""
    sentences: float
    """Half-width of the interval over sentences."""
    paper: float
    same: float
    """Differences in the paper up to this size count as none."""
    close: float
    """A difference here that exceeds this with its noise cannot be called none."""

    @property
    def noise(self) -> float:
        """What a difference must exceed to be significant."""
        return max(self.seeds, self.sentences)

    @property
    def here(self) -> int:
        """−1, 0 or +1: less than base, no significant difference, more."""
        return 0 if abs(self.difference) <= self.noise else int(math.copysign(1, self.difference))

    @property
    def there(self) -> int:
        """The same in the paper."""
        return 0 if abs(self.paper) <= self.same else int(math.copysign(1, self.paper))

    @property
    def verdict(self) -> str:
        """`agrees`, `disagrees` or `not resolved`."""
        if self.here == 0:
            none = self.there == 0 and abs(self.difference) + self.noise <= self.close
            return "agrees" if none else "not resolved"
        return "agrees" if self.here == self.there else "disagrees"


@dataclass(frozen=True)
class Verdict:
    """One row against base."""

    bleu: Difference
    perplexity: Difference


def compare_with_base(table: Sequence[RowResult]) -> dict[str, Verdict]:
    """Compare every row with base, which comes first."""
    base = table[0]
    result = {}
    for row in table[1:]:
        ours, theirs = row.row.published, base.row.published
        bleu = Difference(
            float(np.mean(row.bleus) - np.mean(base.bleus)),
            seed_noise(base.bleus, len(row.bleus)),
            sentence_noise(bleu_of, row.bleu_counts, base.bleu_counts),
            round(ours.bleu - theirs.bleu, 6),
            SAME_BLEU,
            CLOSE_BLEU,
        )
        logs = [[math.log(value) for value in each.perplexities] for each in (row, base)]
        perplexity = Difference(
            float(np.mean(logs[0]) - np.mean(logs[1])),
            seed_noise(logs[1], len(logs[0])),
            sentence_noise(log_perplexity_of, row.nll_counts, base.nll_counts),
            math.log(ours.perplexity / theirs.perplexity),
            SAME_PERPLEXITY,
            CLOSE_PERPLEXITY,
        )
        result[row.row.name] = Verdict(bleu, perplexity)
    return result


def seed_noise(base: Sequence[float], count: int) -> float:
    """The half-width of a difference of means over seeds, from the spread of base's seeds."""
    if len(base) < 2:
        return math.inf
    student = STUDENT.get(len(base) - 1, 2.0)
    return float(student * np.std(base, ddof=1) * math.sqrt(1 / count + 1 / len(base)))


def sentence_noise(figure: Figure, row: np.ndarray, base: np.ndarray) -> float:
    """The half-width of a difference under paired bootstrap of sentences; counts are `seeds × sentences × counts`."""
    both, cut, width = np.concatenate([_wide(row), _wide(base)], axis=1), row.shape[0] * row.shape[2], row.shape[2]
    low, high = report.bootstrap_interval(lambda sums: _mean(figure, sums[:cut], width) - _mean(figure, sums[cut:], width), both)
    return (high - low) / 2


def sentence_interval(figure: Figure, counts: np.ndarray) -> tuple[float, float]:
    """The bootstrap interval of a mean over seeds, resampling sentences."""
    return report.bootstrap_interval(lambda sums: _mean(figure, sums, counts.shape[2]), _wide(counts))


def _wide(counts: np.ndarray) -> np.ndarray:
    """`seeds × sentences × counts` → `sentences × (seeds counts)`."""
    return counts.transpose(1, 0, 2).reshape(counts.shape[1], -1)


def _mean(figure: Figure, sums: np.ndarray, width: int) -> float:
    return float(np.mean([figure(part) for part in sums.reshape(-1, width)]))


def format_noise(noise: float, digits: int = 2) -> str:
    """The noise as text; unknown if base has one seed only."""
    return "unknown" if noise > 1e9 else f"{noise:.{digits}f}"


def verdict_lines(table: Sequence[RowResult], verdicts: dict[str, Verdict]) -> list[str]:
    """A line for each row, and the totals."""
    lines = []
    for row in table[1:]:
        verdict = verdicts[row.row.name]
        lines.append(
            f"- **{row.row.name}** ({row.row.change} in the paper; here {row.change}): BLEU {verdict.bleu.difference:+.2f} "
            f"(noise {format_noise(verdict.bleu.noise)}; paper {verdict.bleu.paper:+.1f}) {verdict.bleu.verdict}; perplexity "
            f"× {math.exp(verdict.perplexity.difference):.3f} "
            f"(noise × {format_noise(math.exp(min(99.0, verdict.perplexity.noise)), 3)}; "
            f"paper × {math.exp(verdict.perplexity.paper):.3f}) {verdict.perplexity.verdict}."
        )
    return [*lines, "", *(_total(name, [getattr(each, name) for each in verdicts.values()]) for name in ("bleu", "perplexity"))]


def _total(name: str, differences: Sequence[Difference]) -> str:
    counts = {kind: sum(each.verdict == kind for each in differences) for kind in ("agrees", "disagrees", "not resolved")}
    said = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"- Of {len(differences)} rows by {name if name != 'bleu' else 'BLEU'}: {said}."


def difference_chart(verdicts: dict[str, Verdict]) -> Chart:
    """BLEU of each row less that of base, here with its noise and in the paper."""
    names = list(verdicts)
    ours = [(place - 0.12, verdicts[name].bleu) for place, name in enumerate(names)]
    finite = [0.0 if math.isinf(each.noise) else each.noise for _, each in ours]
    here = Series(
        "here, with noise",
        [(place, each.difference) for place, each in ours],
        [(each.difference - noise, each.difference + noise) for (_, each), noise in zip(ours, finite, strict=True)],
        connect=False,
    )
    there = Series("paper", [(place + 0.12, verdicts[name].bleu.paper) for place, name in enumerate(names)], connect=False)
    return Chart("BLEU of each row less that of base", "row of Table 3", "Δ BLEU", [here, there], names=names)
