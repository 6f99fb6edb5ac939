"""How much trainings differ that differ in their seed alone, pooled over all rows: the noise of differences. [paper 6.2]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

STUDENT = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78, 5: 2.57, 6: 2.45, 7: 2.36, 8: 2.31, 9: 2.26}
"""Two-sided 95 % points of Student's t by degrees of freedom."""

NORMAL = 1.959964
"""That of the normal distribution."""


def student(degrees: int) -> float:
    """The two-sided 95 % point of Student's t, beyond the table by its expansion."""
    if degrees in STUDENT:
        return STUDENT[degrees]
    z = NORMAL
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)


@dataclass(frozen=True)
class Spread:
    """A standard deviation over seeds and its degrees of freedom; 0 degrees if nothing was trained twice."""

    deviation: float
    degrees: int
    paired: bool
    """Whether what a seed does to all rows alike has been taken out of it."""

    def half_width(self, one: int, other: int) -> float:
        """Of the 95 % interval of a difference of the means of so many trainings each."""
        return student(self.degrees) * self.deviation * math.sqrt(1 / one + 1 / other) if self.degrees else math.inf


def pool(rows: Sequence[Sequence[float]]) -> Spread:
    """The spread of all rows, as if it were the same in each.

    With the same seeds in all rows, what a seed (order of the data, first weights) does to all rows alike does not count, because
    differences between rows are taken seed by seed: an analysis of variance of rows and seeds. Else it is one of rows alone.
    """
    counts = {len(row) for row in rows}
    if len(rows) > 1 and len(counts) == 1 and min(counts) > 1:
        values = np.array(rows, dtype=np.float64)
        rest = values - values.mean(axis=1, keepdims=True) - values.mean(axis=0, keepdims=True) + values.mean()
        degrees = (values.shape[0] - 1) * (values.shape[1] - 1)
        return Spread(float(np.sqrt((rest**2).sum() / degrees)), degrees, paired=True)
    return pool_unpaired(rows)


def pool_unpaired(rows: Sequence[Sequence[float]]) -> Spread:
    """The spread of the trainings of a row around its mean, pooled over rows."""
    degrees = sum(len(row) - 1 for row in rows)
    squares = sum(float(((np.array(row) - np.mean(row)) ** 2).sum()) for row in rows)
    return Spread(math.sqrt(squares / degrees) if degrees else math.inf, degrees, paired=False)
