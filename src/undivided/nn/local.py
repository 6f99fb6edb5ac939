"""Self-attention restricted to a neighbourhood in O(r·n·d): blocks of a sequence read themselves and their edges. [paper 4]

Each block of queries is to everything below an attention of its own: of kernels, fused or plain, with dropout or without. What
no query of a block may see is masked, so the result is that of the whole sequence under the mask of `LocalMask.dense`.
Differs from that mask: in the last bits, since sums may be taken in another order; and dropout on weights draws other masks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SMALLEST_BLOCK = 32
"""Queries of a block at least: smaller ones leave a core waiting for its next product."""

WORTH = 3
"""Blocks are computed where whole sequences have so many times as many scores; below, copying edges costs what they save."""


class Blocks(NamedTuple):
    """How a sequence is cut: blocks of so many queries, each reading so many keys."""

    number: int
    queries: int
    before: int
    """Keys in front of a block's own."""
    after: int

    @property
    def keys(self) -> int:
        """What a block reads."""
        return self.before + self.queries + self.after

    @property
    def scores(self) -> int:
        """All that are computed of one head."""
        return self.number * self.queries * self.keys


def cut_blocks(length: int, window: int, *, causal: bool) -> Blocks | None:
    """The blocks in which a sequence is computed; None where a mask over all of it costs less. [paper 4, Table 1]"""
    reach = window // 2
    queries = max(SMALLEST_BLOCK, reach)
    blocks = Blocks(-(-length // queries), queries, reach, 0 if causal else reach)
    return blocks if window and length * length >= WORTH * blocks.scores else None


def count_scores(length: int, window: int, *, causal: bool) -> int:
    """How many scores a head computes within a sequence, masked ones included."""
    blocks = cut_blocks(length, window, causal=causal)
    return length * length if blocks is None else blocks.scores


@dataclass(frozen=True)
class LocalMask:
    """Who may attend to whom within sequences of one length, as `O(r·n)` booleans: those of every block."""

    length: int
    blocks: Blocks
    real: Tensor | None  # B T
    device: torch.device

    @cached_property
    def allowed(self) -> Tensor:
        """`B N Q K`, B of 1 if nothing is padding: the keys of its block that a query may see. [paper 4]

        Whoever sees nobody else sees itself: a softmax over nothing would be NaN.
        """
        blocks = self.blocks
        query = torch.arange(blocks.queries, device=self.device)[:, None] + blocks.before
        key = torch.arange(blocks.keys, device=self.device)
        near = (key - query >= -blocks.before) & (key - query <= blocks.after)  # Q K
        real = self.real
        if real is None:
            real = torch.ones(1, self.length, dtype=torch.bool, device=self.device)
        return near & self._read(real[:, :, None]).squeeze(-1)[:, :, None] | (key == query)

    def attend(self, queries: Tensor, read: Tensor, function: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Tensor:
        """What an attention gives block by block: queries `B T ·`, and keys and values side by side `B T ·` → `B T ·`."""
        batch = len(queries)
        rows = self._pad(queries).flatten(0, 1)  # (B N) Q
        allowed = self.allowed.expand(batch, -1, -1, -1).flatten(0, 1)[:, None]  # (B N) 1 Q K
        out = function(rows, self._read(read).flatten(0, 1), allowed)
        return out.unflatten(0, (batch, self.blocks.number)).flatten(1, 2)[:, : self.length]

    def _pad(self, x: Tensor) -> Tensor:
        """`B T ·` → `B N Q ·`."""
        missing = self.blocks.number * self.blocks.queries - x.shape[1]
        return F.pad(x, (0, 0, 0, missing)).unflatten(1, (self.blocks.number, self.blocks.queries))

    def _read(self, x: Tensor) -> Tensor:
        """`B T ·` → `B N K ·`: of each block what it reads, zero beyond the ends. Edges overlap, so they are copied."""
        _, size, before, after = self.blocks
        own = self._pad(x)
        nothing = own.new_zeros(len(x), 1, size, x.shape[2])
        parts = [own]
        if before:
            parts.insert(0, torch.cat([nothing, own[:, :-1]], dim=1)[:, :, size - before :])
        if after:
            parts.append(torch.cat([own[:, 1:], nothing], dim=1)[:, :, :after])
        return torch.cat(parts, dim=2)
