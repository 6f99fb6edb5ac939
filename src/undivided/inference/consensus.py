"""Minimum Bayes risk: of several outputs, the one that agrees most with the others, by character n-grams (chrF).

What one hypothesis gets wrong, the others rarely get wrong in the same way; the text that all of them resemble is the safest.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from undivided.config import SearchConfig
from undivided.data.subwords import Subwords
from undivided.inference.drafts import DraftCount
from undivided.inference.engines.contract import Engine
from undivided.inference.hypothesis import Hypothesis

if TYPE_CHECKING:
    from undivided.inference.engines.torch import TorchEngine

LONGEST = 6
BETA = 2
"""chrF counts sequences of up to six characters, spaces aside, and weighs recall twice (Popović, 2015)."""


def count_ngrams(text: str) -> list[Counter[str]]:
    """The character n-grams of a text for each length."""
    letters = "".join(text.split())
    return [Counter(letters[at : at + size] for at in range(len(letters) - size + 1)) for size in range(1, LONGEST + 1)]


def agreement(ours: Sequence[Counter[str]], theirs: Sequence[Counter[str]]) -> float:
    """chrF of one text with another as its reference, from 0 to 1."""
    precision = recall = orders = 0.0
    for one, other in zip(ours, theirs, strict=True):
        if not one or not other:
            continue
        common = (one & other).total()
        precision += common / one.total()
        recall += common / other.total()
        orders += 1
    if not orders or not precision + recall:
        return 0.0
    precision, recall = precision / orders, recall / orders
    factor = BETA**2
    return (1 + factor) * precision * recall / (factor * precision + recall)


def rank_by_consensus(hypotheses: Sequence[Hypothesis], texts: Sequence[str], weighted: bool) -> list[Hypothesis]:
    """Hypotheses by their expected chrF, best first; `weighted` by their probabilities, which samples have already.

    Ties keep the order of the search.
    """
    if len(hypotheses) < 2:
        return list(hypotheses)
    counts = [count_ngrams(text) for text in texts]
    top = max(each.score for each in hypotheses)
    weights = [math.exp(each.score - top) if weighted else 1.0 for each in hypotheses]
    expected = [sum(weight * agreement(one, other) for other, weight in zip(counts, weights, strict=True)) for one in counts]
    order = sorted(range(len(hypotheses)), key=lambda place: -expected[place])
    return [hypotheses[place] for place in order]


class ConsensusEngine:
    """Another engine whose outputs come in the order of their consensus."""

    def __init__(self, engine: Engine, target: Subwords) -> None:
        self.engine, self.target = engine, target
        self.name, self.is_parallel, self.has_shortlist = engine.name, engine.is_parallel, engine.has_shortlist
        self.drafts: DraftCount | None = None

    @property
    def reference(self) -> TorchEngine:
        """The PyTorch engine of the same model."""
        return self.engine.reference

    def search(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, prefixes: Sequence[Sequence[int]], keys: Sequence[int]
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """More outputs of each source than are asked for, and of these the ones that agree most with all."""
        count = max(config.consensus, config.n_best)
        wider = dataclasses.replace(config, n_best=count, beam_size=max(config.beam_size, count))
        for place, found in self.engine.search(sources, wider, prefixes, keys):
            texts = self.target.decode([each.tokens for each in found])
            yield place, rank_by_consensus(found, texts, weighted=not config.sample)[: config.n_best]
