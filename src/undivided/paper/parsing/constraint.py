"""A constraint on beam search: outputs in form `compact` are always trees over the words. [paper 6.3]"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from undivided.core.ids import EOS
from undivided.data.subwords import Subwords
from undivided.inference.search import Constraint
from undivided.paper.parsing.linear import SAME_WORD, balance

WORD, LAST_WORD, SAME, END = range(4)
"""What must be written at a position: a word that leaves a bracket open, the word that closes all, `~`, or `</s>`."""


class TreeConstraint(NamedTuple):
    """The tokens of a target vocabulary as parts of trees."""

    words: Tensor
    """`V`: whether a token represents a word."""
    opened: Tensor
    """`V`: how many more brackets it opens than it closes."""
    same: int
    """The id of `~`."""

    @classmethod
    def of(cls, target: Subwords, device: torch.device) -> TreeConstraint | None:
        """The constraint for a vocabulary; None if the model does not write trees in this form."""
        pieces = target.pieces(range(len(target)))
        if not any("|" in piece for piece in pieces) or f"▁{SAME_WORD}" not in pieces:
            return None
        kinds = [balance(piece) for piece in pieces]
        words, opened = torch.tensor([stands for stands, _ in kinds]), torch.tensor([count for _, count in kinds])
        return cls(words.to(device), opened.to(device), pieces.index(f"▁{SAME_WORD}"))

    def rule(self, subwords: Sequence[Sequence[int]]) -> Constraint:
        """The constraint for sentences, given the number of subwords of each word."""
        rows = [_kinds(counts) for counts in subwords]
        kinds = torch.full((len(rows), max(map(len, rows))), END, device=self.words.device)
        for place, row in enumerate(rows):
            kinds[place, : len(row)] = torch.tensor(row, device=kinds.device)
        allowed = self._allowed()
        deepest = allowed.shape[1] - 1

        def may_follow(sentences: Tensor, tokens: Tensor) -> Tensor:
            kind = kinds[sentences, min(tokens.shape[2], kinds.shape[1] - 1)][:, None]  # B 1
            depth = self.opened[tokens].sum(dim=2).clamp(0, deepest)  # B W
            return allowed[kind, depth]  # B W V

        return may_follow

    def _allowed(self) -> Tensor:
        """The allowed tokens by kind of position and number of open brackets: `4 N V`."""
        # Deeper brackets than the last word can close must not be opened.
        deepest = max(1, int((-self.opened).max()))
        open_before = torch.arange(deepest + 1, device=self.words.device)[:, None]
        depth = open_before + self.opened  # N V
        vocabulary = torch.arange(len(self.words), device=self.words.device).expand_as(depth)
        kinds = {
            WORD: self.words & (depth >= 1) & (depth <= deepest),
            LAST_WORD: self.words & (depth == 0),
            SAME: vocabulary == self.same,
            END: vocabulary == EOS,
        }
        return torch.stack([kinds[kind] for kind in range(len(kinds))])


def _kinds(counts: Sequence[int]) -> list[int]:
    """The kind of each position, given the number of subwords of each word."""
    kinds = [kind for count in counts for kind in (WORD, *[SAME] * (count - 1))]
    kinds[len(kinds) - counts[-1]] = LAST_WORD
    return [*kinds, END]
