"""What a search finds, and its length penalty. Importing this must not import torch."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from undivided.core.errors import InputError

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


MOST_NATS = 700.0
"""No model that was trained is further off for a token; beyond, perplexity is no number that a computer has."""


class NotFinite(InputError):
    """A model whose weights are finite computed something that is not."""

    def __init__(self) -> None:
        super().__init__("the model computes numbers that are not finite: its weights are damaged, or of a training that failed")


def to_perplexity(log_likelihood: float, tokens: int) -> float:
    """exp of the mean negative log-likelihood of a token."""
    mean = -log_likelihood / max(1, tokens)
    if not mean < MOST_NATS:
        raise NotFinite
    return math.exp(mean)


def length_penalty(length: int | Tensor, alpha: float, norm: str = "wu") -> float | Tensor:
    """((5 + |Y|) / 6)^α (Wu et al., 2016), or with the norm `length` |Y|^α, as Marian and its relatives rank. [paper 6.1]"""
    return length**alpha if norm == "length" else ((5 + length) / 6) ** alpha
