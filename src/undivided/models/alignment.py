"""Attention before the Transformer: how much of each source state a decoder state takes, by one function for each kind.

Queries are the decoder's states `B T D`, or in decoding the beams of a sentence `B W D`; keys belong to the source, `B S D`.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from undivided.nn.attention import apply_hook


def additive_weights(query: Tensor, key: Tensor, energy: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(vᵀ tanh(q + k)), `B T S`, with q and k projected before (Bahdanau et al., 2015). [paper 3.2.1]"""
    scores = torch.tanh(query[:, :, None] + key[:, None]) @ energy  # B T S
    return _softmax(scores, mask)


def multiplicative_weights(query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
    """softmax(q · k), `B T S` (Luong et al., 2015: `dot`; with k = W s it is `general`). [paper 3.2.1]"""
    return _softmax(query @ key.transpose(1, 2), mask)


def _softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Over the real tokens of the source, `B S`."""
    if mask is not None:
        scores = scores.masked_fill(~mask[:, None], -math.inf)
    return scores.softmax(dim=-1)


class Alignment(nn.Module):
    """Additive or multiplicative attention; its weights pass through the attention hook."""

    def __init__(self, kind: str, width: int) -> None:
        super().__init__()
        self.kind = kind
        self.key = nn.Linear(width, width, bias=False)
        if kind == "additive":
            self.query = nn.Linear(width, width)
            self.energy = nn.Linear(width, 1, bias=False)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """The context of each query, `B T D`, and the weights `B T S`. `key` is what `self.key` made of the source states."""
        if self.kind == "additive":
            weights = additive_weights(self.query(query), key, self.energy.weight[0], mask)
        else:
            weights = multiplicative_weights(query, key, mask)
        weights = apply_hook(self, weights[:, None])[:, 0]  # B T S
        return weights @ value, weights
