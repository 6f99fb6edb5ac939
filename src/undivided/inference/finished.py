"""What a beam search has finished, and when that is enough. Importing this must not import torch. [paper 6.1]"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from undivided.config import SearchConfig
from undivided.inference.hypothesis import Hypothesis, length_penalty

Beams = Callable[[], Sequence[tuple[list[int], float]]]
"""The unfinished hypotheses of a sentence, each its tokens and their log-probability."""


class Finished:
    """The finished hypotheses of every sentence of a batch, best first."""

    def __init__(self, sentences: int, config: SearchConfig) -> None:
        self.config = config
        self.found: list[list[Hypothesis]] = [[] for _ in range(sentences)]

    def best(self) -> list[list[Hypothesis]]:
        """The n best of every sentence."""
        return [hypotheses[: self.config.n_best] for hypotheses in self.found]

    def add(self, sentence: int, tokens: list[int], log_probability: float, length: int, finished: bool = True) -> None:
        """One more hypothesis of so many tokens, `</s>` included."""
        score = log_probability / self._penalty(length)
        self.found[sentence].append(Hypothesis(tokens, log_probability, score, finished))
        self.found[sentence].sort(key=lambda hypothesis: (-hypothesis.finished, -hypothesis.score))

    def continues(self, sentence: int, best: float, length: int, limit: int, beams: Beams) -> bool:
        """Whether the search for a sentence goes on, whose best unfinished hypothesis has log-probability `best`.

        At the length limit, input + 50 in the paper, unfinished hypotheses complete the n best. [paper 6.1]
        """
        if best == -math.inf or self._is_decided(self.found[sentence], best, length, limit):
            return False
        if length < limit:
            return True
        for tokens, log_probability in beams():
            if len(self.found[sentence]) < self.config.n_best and log_probability > -math.inf:
                self.add(sentence, tokens, log_probability, length, finished=False)
        return False

    def _is_decided(self, finished: list[Hypothesis], best: float, length: int, limit: int) -> bool:
        """Whether unfinished hypotheses, the best with log-probability `best`, can be dropped.

        Either they cannot beat the n best even at full length, or a whole beam has ended and they are behind as they stand.
        """
        if len(finished) < self.config.n_best:
            return False
        as_it_stands, at_most = (best / self._penalty(tokens) for tokens in (length, limit))
        if self.config.length_norm == "length":
            # Where every hypothesis that is longer wins by its length, Marian's relatives wait for a beam of better ones.
            beam = self.config.beam_size
            return len(finished) >= beam and as_it_stands <= finished[beam - 1].score
        to_beat = finished[self.config.n_best - 1].score
        behind = len(finished) >= self.config.beam_size and as_it_stands <= to_beat
        return behind or at_most <= to_beat

    def _penalty(self, length: int) -> float:
        return float(length_penalty(length, self.config.length_penalty, self.config.length_norm))
