"""The simpler simple recurrent unit (SSRU): instead of attention to its own past, a decoder layer may keep one vector of it.

What it remembers has one size however long the sentence is, and all its products are over whole sequences: only an elementwise
sum runs over time. From "From Research to Production and Back: Ludicrously Fast Neural Machine Translation" (Kim et al., 2019).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.nn.layers import Linear


class _WeightedSum(torch.autograd.Function):
    """cₜ = fₜ ⊙ cₜ₋₁ + xₜ over `B T D`, from c₀ = 0: one fused operation for each position, forward and backward."""

    @staticmethod
    def forward(ctx: Any, forget: Tensor, x: Tensor) -> Tensor:
        cells = torch.empty_like(x)
        before = torch.zeros_like(x[:, 0])
        for place in range(x.shape[1]):
            before = torch.addcmul(x[:, place], forget[:, place], before, out=cells[:, place])
        ctx.save_for_backward(forget, cells)
        return cells

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        forget, cells = ctx.saved_tensors
        of_x = grad.clone()
        for place in range(grad.shape[1] - 2, -1, -1):
            of_x[:, place].addcmul_(forget[:, place + 1], of_x[:, place + 1])
        of_forget = torch.zeros_like(cells)
        torch.mul(of_x[:, 1:], cells[:, :-1], out=of_forget[:, 1:])
        return of_forget, of_x


def weighted_sum(forget: Tensor, x: Tensor) -> Tensor:
    """cₜ = fₜ ⊙ cₜ₋₁ + xₜ for all positions of `B T D`; c₀ is zero."""
    result: Tensor = _WeightedSum.apply(forget, x)
    return result


class CellState:
    """What a layer remembers between steps: one vector for each sentence and beam, `B W D`; None before the first step."""

    def __init__(self, cell: Tensor | None = None) -> None:
        self.cell = cell

    def select(self, sentences: Tensor, parents: Tensor) -> CellState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""
        return CellState(None if self.cell is None else self.cell[sentences[:, None], parents])


class SSRU(nn.Module):
    """fₜ = σ(xₜW_f + b_f), cₜ = fₜ ⊙ cₜ₋₁ + (1 − fₜ) ⊙ xₜW, and max(0, cₜ) is what the layer reads (Kim et al., 2019)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.candidate = Linear(config.d_model, config.d_model, bias=False)
        self.forget = Linear(config.d_model, config.d_model)

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Whole sequences `B T D`. It never looks ahead, so it needs no `mask`."""
        forget = self.forget(x).sigmoid()
        return weighted_sum(forget, (1 - forget) * self.candidate(x)).relu()

    def step(self, x: Tensor, past: CellState) -> Tensor:
        """One more position of every beam, `B W D`."""
        forget, candidate = self.forget(x).sigmoid(), self.candidate(x)
        # c + f(c₋ − c) is f c₋ + (1 − f)c, and before the first position c₋ is 0.
        past.cell = (1 - forget) * candidate if past.cell is None else torch.lerp(candidate, past.cell, forget)
        return past.cell.relu()

    def start(self) -> CellState:
        """What is remembered before the first position: nothing."""
        return CellState()
