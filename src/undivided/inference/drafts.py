"""Draft and verify: greedy search that writes several tokens in a step of the model. Importing this must not import torch.

A small decoder proposes tokens one after the other. The model reads them all at once, and keeps them as far as they are what it
would have written itself, and behind them one token of its own. So the output is that of greedy search, whatever is proposed.
The paper's conclusion names less sequential generation as a goal; this way there is blockwise parallel decoding (Stern et al.,
2018) with a decoder in the place of its heads, as in speculative decoding (Xia et al., 2023; Leviathan et al., 2023). [paper 7]
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from undivided.config import SearchConfig
from undivided.core.ids import BOS, EOS
from undivided.inference.finished import Finished
from undivided.inference.hypothesis import Hypothesis, NotFinite

UNSURE = math.log(0.4)
"""Behind a proposal that is less likely than that, by its own decoder, no further ones follow: they would rarely be kept."""


class Reader(Protocol):
    """A decoder that reads tokens at any positions of its sentences; what stood there and behind is forgotten."""

    def read(
        self, sentences: Sequence[int], starts: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> tuple[list[int], Sequence[float]]:
        """Tokens of some sentences, each row from its position on → after every token the most likely next one, and how likely.

        Likely is a log-probability. One sentence's follow another's.
        """


class DraftCount:
    """How many tokens the searches of an engine have written with drafts, and in how many steps of the model; in any thread."""

    def __init__(self) -> None:
        self.tokens = self.steps = 0
        self._lock = threading.Lock()

    def add(self, tokens: int, steps: int) -> None:
        """A search more. A step in which several sentences take part counts for each."""
        with self._lock:
            self.tokens, self.steps = self.tokens + tokens, self.steps + steps

    @property
    def per_step(self) -> float:
        """Tokens for each step of the model; without drafts it is 1."""
        return self.tokens / max(1, self.steps)


class DraftSearch:
    """Greedy search over a batch with drafts. Each sentence is as far as its own drafts have brought it."""

    def __init__(self, model: Reader, drafter: Reader, limits: Sequence[int], config: SearchConfig, count: DraftCount) -> None:
        self.model, self.drafter, self.limits, self.config, self.count = model, drafter, limits, config, count
        self.finished = Finished(len(limits), config)
        self.texts: list[list[int]] = [[BOS] for _ in limits]
        self.scores = [np.float32(0) for _ in limits]
        self.drafted = [0] * len(limits)
        """Positions of each text that the drafter has read."""
        self.open = list(range(len(limits)))
        self.steps = 0

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is done."""
        while self.open:
            self._step()
        found = self.finished.best()
        self.count.add(sum(len(each.tokens) + each.finished for row in found for each in row), self.steps)
        return found

    def _step(self) -> None:
        drafts = self._propose()
        rows = [[self.texts[sentence][-1], *drafts[sentence]] for sentence in self.open]
        tokens, scores = self.model.read(self.open, [len(self.texts[sentence]) - 1 for sentence in self.open], rows)
        self.steps += len(self.open)
        still, end = [], 0
        for sentence, row in zip(self.open, rows, strict=True):
            start, end = end, end + len(row)
            if self._accept(sentence, row[1:], tokens[start:end], scores[start:end]):
                still.append(sentence)
        self.open = still

    def _propose(self) -> dict[int, list[int]]:
        """Drafts of every open sentence: what the drafter would write by greedy search, as long as it is sure of that."""
        drafts: dict[int, list[int]] = {sentence: [] for sentence in self.open}
        # The model adds a token of its own, and all together stay within the limit.
        most = {sentence: min(self.config.draft, self.limits[sentence] - len(self.texts[sentence])) for sentence in self.open}
        going = [sentence for sentence in self.open if most[sentence] > 0]
        rows = [self.texts[sentence][self.drafted[sentence] :] for sentence in going]
        while going:
            tokens, scores = self.drafter.read(going, [self.drafted[sentence] for sentence in going], rows)
            sure, end = [], 0
            for sentence, row in zip(going, rows, strict=True):
                end += len(row)
                self.drafted[sentence] += len(row)
                drafts[sentence].append(tokens[end - 1])
                if tokens[end - 1] != EOS and scores[end - 1] >= UNSURE and len(drafts[sentence]) < most[sentence]:
                    sure.append(sentence)
            going, rows = sure, [[drafts[sentence][-1]] for sentence in sure]
        return drafts

    def _accept(self, sentence: int, draft: Sequence[int], tokens: Sequence[int], scores: Sequence[float]) -> bool:
        """Keep what the model would have written, and its own token behind that; whether the sentence goes on."""
        text = self.texts[sentence]
        for number, (token, score) in enumerate(zip(tokens, scores, strict=True)):
            total = self.scores[sentence] = np.float32(self.scores[sentence] + score)
            if not np.isfinite(total):
                raise NotFinite
            length = len(text)
            if token != EOS:
                text.append(token)
            if token == EOS or length >= self.limits[sentence]:
                self.finished.add(sentence, text[1:], float(total), length, finished=token == EOS)
                return False
            if number < len(draft) and draft[number] != token:
                break
        # Behind what was kept, the drafter has read something else.
        self.drafted[sentence] = min(self.drafted[sentence], len(text) - 1)
        return True
