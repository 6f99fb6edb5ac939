"""Recurrent cells: each written out once, and as torch's layer that is fused over a whole sequence."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

State = tuple[Tensor, ...]
"""What a cell remembers: `(h,)`, or `(h, c)` of an LSTM, each `… D`. The first part is also its output."""


class Weights(NamedTuple):
    """Of x and of h; the gates of a cell are stacked in the order of torch."""

    x: Tensor
    h: Tensor
    x_bias: Tensor
    h_bias: Tensor


def rnn_cell(x: Tensor, state: State, weights: Weights) -> State:
    """h' = tanh(W x + U h) (Elman, 1990). Biases are left out of the formulas."""
    (h,) = state
    return (torch.tanh(F.linear(x, weights.x, weights.x_bias) + F.linear(h, weights.h, weights.h_bias)),)


def lstm_cell(x: Tensor, state: State, weights: Weights) -> State:
    """c' = f c + i tanh(W x + U h), h' = o tanh(c') (Hochreiter and Schmidhuber, 1997; Gers et al., 2000, for f).

    The gates i, f and o are each σ(W x + U h) with weights of their own.
    """
    h, c = state
    both = F.linear(x, weights.x, weights.x_bias) + F.linear(h, weights.h, weights.h_bias)
    write, keep, new, show = both.chunk(4, dim=-1)
    c = keep.sigmoid() * c + write.sigmoid() * new.tanh()
    return show.sigmoid() * c.tanh(), c


def gru_cell(x: Tensor, state: State, weights: Weights) -> State:
    """h' = z h + (1 − z) tanh(W x + r (U h)), with gates r and z, each σ(W x + U h) (Cho et al., 2014).

    They wrote U (r h); cuDNN and torch reset after the product, which fuses better.
    """
    (h,) = state
    of_x, of_h = F.linear(x, weights.x, weights.x_bias), F.linear(h, weights.h, weights.h_bias)
    (reset, keep, new), (reset_h, keep_h, new_h) = of_x.chunk(3, dim=-1), of_h.chunk(3, dim=-1)
    keep = (keep + keep_h).sigmoid()
    return (keep * h + (1 - keep) * (new + (reset + reset_h).sigmoid() * new_h).tanh(),)


class Cell(NamedTuple):
    """A kind of cell: written out, fused, and of how many parts its state and its weights are."""

    written_out: Callable[[Tensor, State, Weights], State]
    fused: type[nn.RNN] | type[nn.LSTM] | type[nn.GRU]
    parts: int
    gates: int


CELLS = {
    "rnn": Cell(rnn_cell, nn.RNN, 1, 1),
    "lstm": Cell(lstm_cell, nn.LSTM, 2, 4),
    "gru": Cell(gru_cell, nn.GRU, 1, 3),
}


class Recurrence(nn.Module):
    """One layer of cells: fused over whole sequences, or one step written out, with the same weights."""

    def __init__(self, kind: str, d_in: int, d_out: int) -> None:
        super().__init__()
        self.cell = CELLS[kind]
        self.fused = self.cell.fused(d_in, d_out, batch_first=True)

    def initialise(self) -> None:
        """Glorot-uniform for x, orthogonal for h, no bias, but an LSTM keeps what it holds at first (Jozefowicz et al., 2015)."""
        weights = self.weights()
        for of_x, of_h in zip(weights.x.chunk(self.cell.gates), weights.h.chunk(self.cell.gates), strict=True):
            nn.init.xavier_uniform_(of_x)
            nn.init.orthogonal_(of_h)
        nn.init.zeros_(weights.x_bias)
        nn.init.zeros_(weights.h_bias)
        if isinstance(self.fused, nn.LSTM):
            nn.init.ones_(weights.x_bias.chunk(4)[1])

    def weights(self) -> Weights:
        """The weights of the fused layer, as the cell takes them."""
        return Weights(*self.fused.all_weights[0])

    def forward(self, x: Tensor, begin: State | None = None) -> Tensor:
        """`B T …` → outputs `B T D`; `begin` is the state before the first token, zero if not given."""
        if begin is None:
            return self.fused(x)[0]
        parts = tuple(part[None].contiguous() for part in begin)
        return self.fused(x, parts if self.cell.parts > 1 else parts[0])[0]

    def step(self, x: Tensor, state: State) -> State:
        """One token for each row `…`."""
        return self.cell.written_out(x, state, self.weights())
