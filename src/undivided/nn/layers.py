"""Feed-forward, residual + LayerNorm, embeddings, positions, dropout: what models are made of. [paper 3.1, 3.3–3.5]"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.core.errors import InputError
from undivided.core.ids import BOS
from undivided.nn import backend
from undivided.nn.dropout import Dropout


class Linear(nn.Linear):
    """xW + b."""

    def forward(self, x: Tensor) -> Tensor:
        return backend.linear(x, self.weight, self.bias)


class FeedForward(nn.Module):
    """max(0, xW₁ + b₁)W₂ + b₂, or with another non-linearity. [paper 3.3, Eq. 2]"""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.activation = config.activation
        gated = config.activation == "swiglu"
        self.inner = Linear(config.d_model, config.d_ff * (2 if gated else 1))
        self.outer = Linear(config.d_ff, config.d_model)
        self.dropout = Dropout(config.activation_dropout)

    def forward(self, x: Tensor) -> Tensor:
        if self.activation == "relu":
            return backend.feed_forward(x, self.inner, self.outer, self.dropout)
        x = self.inner(x)
        match self.activation:
            case "gelu":
                x = F.gelu(x)
            case "gelu_tanh":
                x = F.gelu(x, approximate="tanh")
            case "swish":
                x = F.silu(x)
            case "swiglu":
                gate, x = x.chunk(2, dim=-1)
                x = F.silu(gate) * x
        return self.outer(self.dropout(x))


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), or with the norm before the sub-layer. [paper 3.1, 5.4]"""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model, config.norm_epsilon)
        self.pre = config.norm == "pre"
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre:
            return backend.add(x, sublayer(self.norm(x)), self.dropout)
        return backend.add_norm(x, sublayer(x), self.dropout, self.norm)


def sinusoids(length: int, width: int, layout: str = "sinusoidal") -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(…). [paper 3.5]

    Layout `halves` has all sines first and then all cosines (Hugging Face's Marian): the same numbers in another order of
    dimensions. Layout `marian` (Marian itself, tensor2tensor) has slightly other wavelengths: 10000^(i / (d_model/2 − 1)).
    """
    place = torch.arange(length, dtype=torch.float64)[:, None]
    steps = max(1, width // 2 - 1) if layout == "marian" else width / 2
    rate = 10000.0 ** (-torch.arange(width // 2, dtype=torch.float64) / steps)
    angle = place * rate
    if layout in ("halves", "marian"):
        return torch.cat([angle.sin(), angle.cos()], dim=1).float()
    return torch.stack([angle.sin(), angle.cos()], dim=2).flatten(1).float()


class Positions(nn.Module):
    """Tells the model where in the sequence a token stands. [paper 3.5]"""

    table: Tensor

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.kind, self.width = config.positions, config.d_model
        self.concatenated = config.join_positions == "concatenate"
        if self.kind == "learned":
            self.learned = nn.Parameter(torch.empty(config.max_positions, self.width))
        else:
            self.register_buffer("table", self._fixed_rows(64), persistent=False)
        if self.concatenated:
            self.project = Linear(2 * self.width, self.width, bias=False)

    def initialise(self) -> None:
        """Learned positions near nothing; others have no weights. The paper does not say."""
        if self.kind == "learned":
            nn.init.normal_(self.learned, std=0.02)

    def forward(self, x: Tensor, start: int | Tensor = 0) -> Tensor:
        """Embeddings `B T D` → embeddings that know their place: the first token's is `start`, or each token's, `B T`."""
        if self.kind == "none":
            return x
        if isinstance(start, Tensor):
            here = self.rows(int(start.max()) + 1)[start]
        else:
            here = self.rows(start + x.shape[-2])[start:]
        if self.concatenated:
            return self.project(torch.cat([x, here.expand_as(x)], dim=-1))
        return x + here

    def rows(self, length: int) -> Tensor:
        """Encodings of the first places, `T D`; sinusoids reach as far as asked."""
        if self.kind == "learned":
            if length > len(self.learned):
                raise InputError(
                    f"a sequence of {length} tokens is longer than the {len(self.learned)} learned positions of this model; "
                    "split the text, or train with a larger model.max_positions or with sinusoidal positions"
                )
            return self.learned[:length]
        if length > len(self.table):
            self.table = self._fixed_rows(2 * length).to(self.table)
        return self.table[:length]

    def _fixed_rows(self, length: int) -> Tensor:
        if self.kind == "index":
            return torch.arange(length, dtype=torch.float32)[:, None].expand(length, self.width).contiguous()
        return sinusoids(length, self.width, self.kind)


class Embedding(nn.Module):
    """Token ids → vectors × √d_model + positions (if any), with dropout on the sum. [paper 3.4, 3.5, 5.4]"""

    def __init__(self, config: ModelConfig, weight: nn.Parameter, positions: Positions | None) -> None:
        super().__init__()
        self.weight = weight
        self.scale = math.sqrt(config.d_model) if config.scale_embeddings else 1.0
        self.unmoved = BOS if config.start == "zero" else None
        """The token whose vector training leaves as it is: zero."""
        self.positions = positions
        self.dropout = Dropout(config.dropout)

    def forward(self, tokens: Tensor, start: int | Tensor = 0) -> Tensor:
        vectors = F.embedding(tokens, self.weight, padding_idx=self.unmoved) * self.scale
        return self.dropout(vectors if self.positions is None else self.positions(vectors, start))


def initialise_linear(linear: nn.Linear) -> None:
    """Glorot-uniform weights, no bias. The paper does not say."""
    nn.init.xavier_uniform_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
