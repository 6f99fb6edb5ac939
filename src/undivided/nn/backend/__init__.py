"""The one seam to fast arithmetic: layers call these functions, which decide who computes, and each has its plain PyTorch.

To add a way to compute (another library, int8), write one file beside `bfloat16`, `packed` and `kernels`, and ask for it in the
functions of `dispatch`. `UNDIVIDED_KERNELS=0` in the environment leaves the C kernels out.
"""

from __future__ import annotations

from undivided.nn.backend.bfloat16 import bfloat16_products, choose_precision, uses_bfloat16
from undivided.nn.backend.choice import decodes_with_kernels
from undivided.nn.backend.dispatch import (
    add,
    add_norm,
    attend_memory,
    attend_packed,
    attend_past,
    dropout,
    feed_forward,
    linear,
    prefers_fused_attention,
    split_heads,
)
from undivided.nn.backend.kernels import top_tokens
from undivided.nn.backend.loss import consistent_factors, consistent_slopes, loss_factors, round_chunk, softmax_slope
from undivided.nn.backend.mask import KEEP_ALL, DropoutMask
from undivided.nn.backend.packed import PackedWeights, packing_works
from undivided.nn.library import why_no_kernels

__all__ = [
    "KEEP_ALL",
    "DropoutMask",
    "PackedWeights",
    "add",
    "add_norm",
    "attend_memory",
    "attend_packed",
    "attend_past",
    "bfloat16_products",
    "choose_precision",
    "consistent_factors",
    "consistent_slopes",
    "decodes_with_kernels",
    "dropout",
    "feed_forward",
    "linear",
    "loss_factors",
    "packing_works",
    "prefers_fused_attention",
    "round_chunk",
    "softmax_slope",
    "split_heads",
    "top_tokens",
    "uses_bfloat16",
    "why_no_kernels",
]
