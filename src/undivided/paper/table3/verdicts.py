"""Does a row differ from base here as it does in the paper? A stated statistical rule decides. [paper 6.2]"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from undivided.paper import report
from undivided.paper.chart import Chart, Series
from undivided.paper.table3.spread import Spread, pool
from undivided.paper.table3.table import Figure, RowResult, bleu_of, log_perplexity_of
from undivided.paper.table3.variations import Published

SAME_BLEU, SAME_PERPLEXITY = 0.25, 0.02
"""Differences in the paper up to this size count as none: BLEU points, and a fraction of the perplexity."""

CLOSE_BLEU, CLOSE_PERPLEXITY = 1.5, 0.1
"""Two rows are the same here only if their difference plus its noise is within this."""

RULE_OF_AGREEMENT = (
    "How agreement is judged: a row differs from base here if the difference exceeds its noise, the larger of two 95 % "
    "half-widths: over seeds (Student's t with a standard deviation pooled over all rows, as if it were the same in each; with "
    "the same seeds in every row, what a seed does to all of them alike is taken out of it) and over test sentences (1,000 paired "
    "bootstrap samples). In the paper a row differs from base if the difference exceeds "
    f"{SAME_BLEU:g} BLEU or {SAME_PERPLEXITY:.0%} of the perplexity. Same direction in both: agrees. No difference in both: agrees "
    f"if the difference here plus its noise is within {CLOSE_BLEU:g} BLEU or {CLOSE_PERPLEXITY:.0%} of the perplexity. A "
    "difference here that has the other direction in the paper, or is none there: disagrees. Otherwise: not resolved. A row that "
    "the paper has not is measured only."
)


@dataclass(frozen=True)
class Difference:
    """A row minus base: BLEU points, or the logarithm of perplexity."""

    difference: float
    seeds: float
    """Half-width of the interval over seeds; infinite if no row has two."""
    sentences: float
    """Half-width of the interval over sentences."""
    paper: float | None
    """The same difference in the paper, if it has the row."""
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
    def there(self) -> int | None:
        """The same in the paper."""
        if self.paper is None:
            return None
        return 0 if abs(self.paper) <= self.same else int(math.copysign(1, self.paper))

    @property
    def verdict(self) -> str:
        """`agrees`, `disagrees` or `not resolved`; of a row that the paper has not, `lower`, `higher` or `not resolved`."""
        if self.there is None:
            return ("lower", "not resolved", "higher")[1 + self.here]
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
    base, spreads = table[0], spreads_of(table)
    result = {}
    for row in table[1:]:
        counts = len(row.results), len(base.results)
        bleu = Difference(
            float(np.mean(row.bleus) - np.mean(base.bleus)),
            spreads["BLEU"].half_width(*counts),
            sentence_noise(bleu_of, row.bleu_counts, base.bleu_counts),
            _published(row, base, lambda here, there: round(here.bleu - there.bleu, 6)),
            SAME_BLEU,
            CLOSE_BLEU,
        )
        perplexity = Difference(
            float(np.mean(np.log(row.perplexities)) - np.mean(np.log(base.perplexities))),
            spreads["perplexity"].half_width(*counts),
            sentence_noise(log_perplexity_of, row.nll_counts, base.nll_counts),
            _published(row, base, lambda here, there: math.log(here.perplexity / there.perplexity)),
            SAME_PERPLEXITY,
            CLOSE_PERPLEXITY,
        )
        result[row.row.name] = Verdict(bleu, perplexity)
    return result


def _published(row: RowResult, base: RowResult, compare: Callable[[Published, Published], float]) -> float | None:
    here, there = row.row.published, base.row.published
    return compare(here, there) if here and there else None


def spreads_of(table: Sequence[RowResult]) -> dict[str, Spread]:
    """How much BLEU, and the logarithm of perplexity, differ between trainings that differ in their seed alone."""
    logs = [[math.log(value) for value in row.perplexities] for row in table]
    return {"BLEU": pool([row.bleus for row in table]), "perplexity": pool(logs)}


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
    """The noise as text; unknown if no row has two seeds."""
    return "unknown" if noise > 1e9 else f"{noise:.{digits}f}"


def as_percent(logarithm: float) -> str:
    """A ratio of perplexities as the change that it is: `+1.3 %`."""
    return f"{100 * math.expm1(logarithm):+.1f} %"


def noise_percent(noise: float) -> str:
    """Its noise, in percent of the perplexity."""
    return "unknown" if noise > 1e9 else f"{100 * math.expm1(noise):.1f} %"


def verdict_lines(table: Sequence[RowResult], verdicts: dict[str, Verdict]) -> list[str]:
    """A line for each row, and the totals."""
    lines = []
    for row in table[1:]:
        verdict = verdicts[row.row.name]
        bleu, perplexity = verdict.bleu, verdict.perplexity
        theirs = [""] * 2
        if bleu.paper is not None and perplexity.paper is not None:
            theirs = [f"; paper {bleu.paper:+.1f}", f"; paper {as_percent(perplexity.paper)}"]
        change = f"{row.row.change} in the paper; here {row.change}" if row.row.published else row.row.change
        ours = f"BLEU {bleu.difference:+.2f} ± {format_noise(bleu.noise)}{theirs[0]}: {bleu.verdict}"
        other = f"{as_percent(perplexity.difference)} ± {noise_percent(perplexity.noise)}{theirs[1]}: {perplexity.verdict}"
        lines.append(f"- **{row.row.name}** ({change}): {ours}; perplexity {other}.")
    return [*lines, "", *(_total(name, [getattr(each, name) for each in verdicts.values()]) for name in ("bleu", "perplexity"))]


def _total(name: str, differences: Sequence[Difference]) -> str:
    published = [each for each in differences if each.paper is not None]
    counts = {kind: sum(each.verdict == kind for each in published) for kind in ("agrees", "disagrees", "not resolved")}
    said = ", ".join(f"{kind} {count}" for kind, count in counts.items())
    return f"- Of {len(published)} rows by {name if name != 'bleu' else 'BLEU'}: {said}."


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
    published = [(place + 0.12, verdicts[name].bleu.paper) for place, name in enumerate(names)]
    there = Series("paper", [(place, paper) for place, paper in published if paper is not None], connect=False)
    return Chart("BLEU of each row less that of base", "row of Table 3", "Δ BLEU", [here, there], names=names)
