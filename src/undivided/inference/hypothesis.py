"""What a search finds, and its length penalty. Importing this must not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One translation in ids, without `<s>` and `</s>`."""

    tokens: list[int]
    log_probability: float
    score: float
    finished: bool
    """Whether it ended by itself; if not, it was cut at the length limit."""


def length_penalty(length: int | Tensor, alpha: float, norm: str = "wu") -> float | Tensor:
    """((5 + |Y|) / 6)^α (Wu et al., 2016), or with the norm `length` |Y|^α, as Marian and its relatives rank. [paper 6.1]"""
    return length**alpha if norm == "length" else ((5 + length) / 6) ** alpha
