"""The layer types of Table 1 and section 4: the derived costs of each, and its code. [paper 4, Table 1]"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.nn.attention import attention

Layer: TypeAlias = Callable[[Tensor], Tensor]
"""A layer as a function of a sequence, `B n d` → `B n d`."""


class Shape(NamedTuple):
    """n positions of width d; kernel width k; neighbourhood r."""

    n: int
    d: int
    k: int
    r: int


class Kind(NamedTuple):
    """One row of Table 1, or a layer mentioned in the text."""

    name: str
    complexity: str
    sequential: str
    path: str
    operations: Callable[[Shape], float]
    """Multiply-add pairs, leading terms."""
    sequential_operations: Callable[[Shape], float]
    path_length: Callable[[Shape], float]
    exponents: tuple[float, float]
    """Of n and of d in the complexity."""
    make: Callable[[Shape, torch.Generator], Layer]
    reach: Callable[[Shape, torch.Generator], Callable[[Tensor, Tensor, int], Tensor]]
    """Apply the layer once more to all positions: (states, inputs, number of earlier applications) → states."""
    weights: Callable[[Shape], float]
    """Number of weights of the layer."""
    held: Callable[[Shape], float]
    """Numbers read and written for one sequence: inputs, outputs and intermediate results."""
    place: str = "Table 1"
    """Where the paper mentions it."""


def weights(count: int, d: int, chance: torch.Generator) -> list[Tensor]:
    """Random matrices `d d` that preserve the scale of their inputs."""
    return [torch.randn(d, d, generator=chance) / math.sqrt(d) for _ in range(count)]


def self_attention(shape: Shape, chance: torch.Generator) -> Layer:
    """Every position attends to every other; without projections, as the paper counts. [paper Table 1]"""
    return lambda x: attention(x, x, x)[0]


def recurrent(shape: Shape, chance: torch.Generator) -> Layer:
    """h_t = tanh(x_t W + h_{t−1} U), one position after the other. [paper Table 1]"""
    w, u = weights(2, shape.d, chance)

    def layer(x: Tensor) -> Tensor:
        inputs = (x @ w).unbind(1)
        state = torch.zeros_like(inputs[0])
        states = []
        for given in inputs:
            state = torch.tanh(torch.addmm(given, state, u))
            states.append(state)
        return torch.stack(states, dim=1)

    return layer


def convolutional(shape: Shape, chance: torch.Generator) -> Layer:
    """Every position from its k neighbours. [paper Table 1]"""
    kernel = torch.randn(shape.d, shape.d, shape.k, generator=chance) / math.sqrt(shape.d * shape.k)
    return lambda x: F.conv1d(x.transpose(1, 2), kernel.to(x.dtype), padding=shape.k // 2).transpose(1, 2)


def separable(shape: Shape, chance: torch.Generator) -> Layer:
    """Every feature from its k neighbours, then every position from its features. [paper 4]"""
    depth = torch.randn(shape.d, 1, shape.k, generator=chance) / math.sqrt(shape.k)
    (point,) = weights(1, shape.d, chance)

    def layer(x: Tensor) -> Tensor:
        mixed = F.conv1d(x.transpose(1, 2), depth.to(x.dtype), padding=shape.k // 2, groups=shape.d)
        return mixed.transpose(1, 2) @ point.to(x.dtype)

    return layer


def additive(shape: Shape, chance: torch.Generator) -> Layer:
    """Every position attends to every other, with scores from a hidden layer. [paper 3.2.1]"""
    w, u = weights(2, shape.d, chance)
    v = torch.randn(shape.d, generator=chance) / math.sqrt(shape.d)
    return lambda x: additive_attention(x, x, x, w.to(x.dtype), u.to(x.dtype), v.to(x.dtype))


def additive_attention(query: Tensor, key: Tensor, value: Tensor, w: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """Attention whose scores are v·tanh(q W + k U), as in Bahdanau et al. [paper 3.2.1]

    The tanh is in place, so only one hidden layer for each pair of positions is held, the least that plain code can do.
    """
    hidden = (query @ w)[:, :, None] + (key @ u)[:, None]  # B T S d
    return (hidden.tanh_() @ v).softmax(dim=-1) @ value


def restricted(shape: Shape, chance: torch.Generator) -> Layer:
    """Every position attends to a neighbourhood of r. [paper Table 1]"""
    return lambda x: restricted_attention(x, x, x, shape.r)


def restricted_attention(query: Tensor, key: Tensor, value: Tensor, r: int) -> Tensor:
    """Attention to positions at most r/2 away, in O(r·n·d): blocks of r/2 queries attend to three blocks of keys. [paper 4]"""
    batch, n, d = query.shape
    block = max(1, r // 2)
    count = -(-n // block)
    queries = _blocks(query, block, count, 0).flatten(0, 1)  # (m B) b d
    keys, values = (_blocks(x, block, count, 1) for x in (key, value))  # m + 2, B b d
    beside = [slice(side, side + count) for side in range(3)]
    scores = torch.cat([queries @ keys[side].flatten(0, 1).transpose(1, 2) for side in beside], dim=-1)  # (m B) b 3b
    scores = (scores / math.sqrt(d)).unflatten(0, (count, batch)).masked_fill_(~_near(n, block, count)[:, None], -1e30)
    shares = scores.softmax(dim=-1).flatten(0, 1).split(block, dim=-1)
    mixed = sum(share @ values[side].flatten(0, 1) for share, side in zip(shares, beside, strict=True))
    return torch.as_tensor(mixed).unflatten(0, (count, batch)).transpose(0, 1).flatten(1, 2)[:, :n]


def _blocks(x: Tensor, block: int, count: int, around: int) -> Tensor:
    """`B n d` → `m B b d`, with `around` empty blocks before and after; neighbouring blocks are adjacent in memory."""
    room = (0, 0, around * block, around * block + count * block - x.shape[1])
    return F.pad(x, room).unflatten(1, (-1, block)).transpose(0, 1).contiguous()


def _near(n: int, block: int, count: int) -> Tensor:
    """`m b 3b`: the keys in the three blocks that each query of a block may attend to."""
    places = torch.arange(count * block).view(count, block, 1)
    seen = torch.arange(-block, 2 * block) + places[:, :1]  # m 1 3b
    return ((seen - places).abs() <= block) & (seen >= 0) & (seen < n)


def _stack(
    make: Callable[[Shape, torch.Generator], Layer],
) -> Callable[[Shape, torch.Generator], Callable[[Tensor, Tensor, int], Tensor]]:
    """A stack of the same layer."""

    def reach(shape: Shape, chance: torch.Generator) -> Callable[[Tensor, Tensor, int], Tensor]:
        layer = make(shape, chance)
        return lambda states, inputs, before: layer(states)

    return reach


def _recurring(shape: Shape, chance: torch.Generator) -> Callable[[Tensor, Tensor, int], Tensor]:
    """The recurrence applied to all positions at once: each time, every state receives the one before it."""
    w, u = weights(2, shape.d, chance)

    def apply(states: Tensor, inputs: Tensor, before: int) -> Tensor:
        past = F.pad(states, (0, 0, 1, 0))[:, :-1] if before else torch.zeros_like(states)
        return torch.tanh(inputs @ w.to(inputs.dtype) + past @ u.to(inputs.dtype))

    return apply


def _dilated(shape: Shape, chance: torch.Generator) -> Callable[[Tensor, Tensor, int], Tensor]:
    """Causal convolutions whose dilation grows k-fold from layer to layer."""
    kernel = torch.rand(shape.d, shape.d, shape.k, generator=chance) / (shape.d * shape.k)

    def apply(states: Tensor, inputs: Tensor, before: int) -> Tensor:
        hole = shape.k**before
        past = F.pad(states.transpose(1, 2), (hole * (shape.k - 1), 0))
        return F.conv1d(past, kernel.to(states.dtype), dilation=hole).transpose(1, 2)

    return apply


def _dilated_separable(shape: Shape, chance: torch.Generator) -> Callable[[Tensor, Tensor, int], Tensor]:
    """The same with separable convolutions: each feature by itself, then all features of a position."""
    depth = torch.rand(shape.d, 1, shape.k, generator=chance) / shape.k
    point = torch.rand(shape.d, shape.d, generator=chance) / shape.d

    def apply(states: Tensor, inputs: Tensor, before: int) -> Tensor:
        hole = shape.k**before
        past = F.pad(states.transpose(1, 2), (hole * (shape.k - 1), 0))
        mixed = F.conv1d(past, depth.to(states.dtype), dilation=hole, groups=shape.d)
        return mixed.transpose(1, 2) @ point.to(states.dtype)

    return apply


def _layers_of_side(n: int, side: int) -> int:
    """Number of layers that span n positions when each reaches `side` positions further."""
    return max(1, math.ceil((n - 1) / side))


def _dilated_layers(shape: Shape) -> float:
    """The least m with k^m ≥ n: log_k(n), rounded up."""
    m = 1
    while shape.k**m < shape.n:
        m += 1
    return m


SELF_ATTENTION = Kind(
    "self-attention", "O(n²·d)", "O(1)", "O(1)",
    lambda s: 2 * s.n**2 * s.d, lambda s: 1, lambda s: 1, (2, 1), self_attention, _stack(self_attention),
    weights=lambda s: 0, held=lambda s: 2 * s.n * s.d + s.n**2,
)  # fmt: skip

RECURRENT = Kind(
    "recurrent", "O(n·d²)", "O(n)", "O(n)",
    lambda s: 2 * s.n * s.d**2, lambda s: s.n, lambda s: s.n, (1, 2), recurrent, _recurring,
    weights=lambda s: 2 * s.d**2, held=lambda s: 3 * s.n * s.d,
)  # fmt: skip

CONVOLUTIONAL = Kind(
    "convolutional", "O(k·n·d²)", "O(1)", "O(log_k(n))",
    lambda s: s.k * s.n * s.d**2, lambda s: 1, _dilated_layers, (1, 2), convolutional, _dilated,
    weights=lambda s: s.k * s.d**2, held=lambda s: 2 * s.n * s.d,
)  # fmt: skip

RESTRICTED = Kind(
    "self-attention (restricted)", "O(r·n·d)", "O(1)", "O(n/r)",
    lambda s: 3 * s.r * s.n * s.d, lambda s: 1, lambda s: _layers_of_side(s.n, max(1, s.r // 2)), (1, 1), restricted,
    _stack(restricted), weights=lambda s: 0, held=lambda s: 5 * s.n * s.d + 1.5 * s.r * s.n,
)  # fmt: skip

SEPARABLE = Kind(
    "separable convolutional", "O(k·n·d + n·d²)", "O(1)", "O(log_k(n))",
    lambda s: s.k * s.n * s.d + s.n * s.d**2, lambda s: 1, _dilated_layers, (1, 2), separable, _dilated_separable,
    weights=lambda s: s.k * s.d + s.d**2, held=lambda s: 3 * s.n * s.d, place="text of section 4",
)  # fmt: skip

KINDS: tuple[Kind, ...] = (SELF_ATTENTION, RECURRENT, CONVOLUTIONAL, RESTRICTED, SEPARABLE)
"""The layers measured over n and d."""

CONTIGUOUS = CONVOLUTIONAL._replace(
    name="convolutional, contiguous", path="O(n/k)", path_length=lambda s: _layers_of_side(s.n, s.k // 2),
    reach=_stack(convolutional), place="text of section 4",
)  # fmt: skip
"""Contiguous kernels, as in the paper's text; its table has dilated ones."""

ADDITIVE = Kind(
    "additive attention", "O(n²·d + n·d²)", "O(1)", "O(1)",
    lambda s: 3 * s.n**2 * s.d + 2 * s.n * s.d**2, lambda s: 1, lambda s: 1, (2, 1), additive, _stack(additive),
    weights=lambda s: 2 * s.d**2 + s.d, held=lambda s: s.n**2 * s.d, place="section 3.2.1",
)  # fmt: skip
"""The older form of attention; one n²·d of its operations is sums and tanh."""


def feed_forward_operations(shape: Shape) -> float:
    """Operations of a position-wise feed-forward layer with d_ff = 4·d, as in the paper's models. [paper 3.3]"""
    return 2 * shape.n * shape.d * (4 * shape.d)
