"""Interpolated modified Kneser-Ney n-grams (Chen and Goodman, 1999): the baseline that a language model has to beat.

The highest order counts n-grams; every lower order counts in how many different words an n-gram may begin one longer to the
left. What stands at the beginning of a text has nothing to its left, so it is counted as the highest order does. Each order
has three discounts, from its counts of counts; what they take away goes to the next lower order, and below the single words
to all words alike.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

Gram = tuple[int, ...]


BEGIN = -1
"""Stands before every text; never predicted."""


class KneserNey:
    """Learned from texts of ids; predicts each id of other texts from those before it."""

    def __init__(self, texts: Iterable[Sequence[int]], vocabulary: int, order: int = 5) -> None:
        self.vocabulary, self.order = vocabulary, order
        begun = [(BEGIN, *text) for text in texts]
        counts = Counter(text[at : at + order] for text in begun for at in range(len(text) - order + 1))
        if order == 1:
            del counts[(BEGIN,)]
        self.counts: list[Counter[Gram]] = [counts]
        for length in range(order - 1, 0, -1):
            # `Counter` over the different longer n-grams, not over their occurrences.
            lower = Counter(gram[1:] for gram in self.counts[0])
            if length > 1:
                lower.update(text[:length] for text in begun if len(text) >= length)
            self.counts.insert(0, lower)
        self.discounts = [discounts_of(counts) for counts in self.counts]
        self.totals, self.taken = zip(*map(self._contexts, range(order)), strict=True)

    def _contexts(self, level: int) -> tuple[dict[Gram, int], dict[Gram, float]]:
        """Of each context the sum of its counts, and what the discounts take of it."""
        totals: dict[Gram, int] = defaultdict(int)
        taken: dict[Gram, float] = defaultdict(float)
        for gram, count in self.counts[level].items():
            totals[gram[:-1]] += count
            taken[gram[:-1]] += self.discounts[level][min(count, 3)]
        return dict(totals), dict(taken)

    def probability(self, context: Gram, word: int) -> float:
        """Of one word after as many before it as the order holds, or fewer."""
        result = 1.0 / self.vocabulary
        for level in range(min(len(context), self.order - 1) + 1):
            before = context[len(context) - level :]
            total = self.totals[level].get(before, 0)
            if not total:
                break
            count = self.counts[level].get((*before, word), 0)
            result = (count - self.discounts[level][min(count, 3)] + self.taken[level][before] * result) / total
        return result

    def perplexity(self, texts: Sequence[Sequence[int]]) -> float:
        """exp of the mean negative log-likelihood of an id; the first ones of a text have shorter contexts."""
        history, total = self.order - 1, 0.0
        for text in texts:
            begun = (BEGIN, *text)
            places = range(1, len(begun))
            total += sum(math.log(self.probability(begun[max(0, at - history) : at], begun[at])) for at in places)
        return math.exp(-total / sum(map(len, texts)))


def discounts_of(counts: Counter[Gram]) -> tuple[float, float, float, float]:
    """What is taken of counts 0, 1, 2 and 3 or more: k − (k + 1) Y n_{k+1} / n_k with Y = n₁ / (n₁ + 2 n₂)."""
    often = Counter(counts.values())
    n1, n2, n3, n4 = (often[times] for times in (1, 2, 3, 4))
    if not (n1 and n2 and n3):
        return (0.0, 0.5, 0.5, 0.5)
    share = n1 / (n1 + 2 * n2)
    wanted = (1 - 2 * share * n2 / n1, 2 - 3 * share * n3 / n2, 3 - 4 * share * n4 / n3)
    # A discount must lie between 0 and the count it is taken from.
    return (0.0, *(min(max(value, 0.0), float(limit)) for limit, value in enumerate(wanted, 1)))  # type: ignore[return-value]
