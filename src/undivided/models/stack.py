"""Layers of self-attention and feed-forward, one after the other: what every single-stack model is made of. [paper 3.1]"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.transformer import EncoderLayer
from undivided.nn.attention import Cache, SelfMask


class Stack(nn.Module):
    """The paper's encoder: with a causal mask it is a decoder without an encoder. [paper 3.1]"""

    def __init__(self, config: ModelConfig, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(depth))
        self.norm = nn.LayerNorm(config.d_model, config.norm_epsilon) if config.norm == "pre" else nn.Identity()

    def _layers(self) -> Iterable[EncoderLayer]:
        return cast("Iterable[EncoderLayer]", self.layers)

    def forward(self, x: Tensor, mask: SelfMask) -> Tensor:
        """`B T D` → the same."""
        for layer in self._layers():
            x = layer(x, mask)
        return self.norm(x)

    def step(self, x: Tensor, past: Sequence[Cache]) -> Tensor:
        """One position `B W D`, behind those that the caches hold."""
        for layer, cache in zip(self._layers(), past, strict=True):
            x = layer.step(x, cache)
        return self.norm(x)


@dataclass
class StackState:
    """Between steps: how far we are, and the past of every layer."""

    length: int
    past: list[Cache]

    def select(self, sentences: Tensor, parents: Tensor) -> StackState:
        """The state of chosen sentences (`B'`) and, of each, chosen beams (`B' W'`)."""
        return StackState(self.length, [cache.select(sentences, parents) for cache in self.past])
