"""Training with bfloat16 products on a CPU that is much faster with them: only the factors are rounded. [paper 5.2]

On a GPU that is autocast's work. On a CPU autocast would round everything else as well; here all between the products stays in
float32, and so do the weights that are trained.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.core.cache import cache_folder
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.nn.backend.rows import copy_rows, first_rows
from undivided.nn.library import describe_processor

MIN_SPEEDUP = 1.4
"""How many times as fast as in float32 products of bfloat16 must be for `auto` to train with them on a CPU."""

LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""Variables by which a person keeps the library behind the products from using instructions that the processor has."""


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The type of training's products: `auto` is bfloat16 on GPUs that have it and on CPUs that are much faster with it."""
    if name == "float16" and device.type == "cpu":
        raise InputError("train.precision: float16 is for GPUs; on a CPU use bfloat16 or float32")
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
    pays = bfloat16_pays() if device.type == "cpu" else device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if pays else torch.float32


@cache
def bfloat16_pays() -> bool:
    """Whether this CPU multiplies much faster in bfloat16 than in float32: measured once, and kept in the user's cache."""
    limits = [os.environ.get(name, "") for name in LIMITS]
    facts = repr((describe_processor(), limits, torch.__version__, measure_speedup.__code__.co_code))
    path = cache_folder() / f"bfloat16-{hashlib.sha256(facts.encode()).hexdigest()[:20]}.txt"
    with contextlib.suppress(OSError, ValueError):
        return float(path.read_text()) >= MIN_SPEEDUP
    found = _measure_in_a_process()
    with contextlib.suppress(OSError):
        write_atomic(path, f"{found}\n".encode())
    return found >= MIN_SPEEDUP


def _measure_in_a_process() -> float:
    """`measure_speedup` in a process of its own, 0 where that fails.

    A processor may announce instructions that it then refuses. It must not be this process that finds out.
    """
    command = [sys.executable, "-P", "-c", "from undivided.nn.backend.bfloat16 import measure_speedup; print(measure_speedup())"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        tried = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, stdin=subprocess.DEVNULL)
        return float(tried.stdout)
    return 0.0


def measure_speedup() -> float:
    """How many times as fast as in float32 this CPU multiplies bfloat16 numbers, on one thread."""
    torch.set_num_threads(1)
    sides = [torch.randn(512, 512).to(dtype) for dtype in (torch.float32, torch.bfloat16)]
    exact, rounded = (min(_seconds(side) for _ in range(15)) for side in sides)
    return exact / rounded


def _seconds(side: Tensor) -> float:
    began = time.thread_time()
    side @ side.t()
    return time.thread_time() - began


class _State(threading.local):
    on = False


_state = _State()


@contextmanager
def bfloat16_products(on: bool = True) -> Iterator[None]:
    """Within, in this thread, the factors of products are rounded to bfloat16; sums are not."""
    before, _state.on = _state.on, on
    try:
        yield
    finally:
        _state.on = before


def uses_bfloat16(x: Tensor) -> bool:
    """Whether products of this thread with such a factor are computed in bfloat16."""
    return _state.on and x.dtype is torch.float32


def linear(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """xW + b."""
    return _Linear.apply(x, weight, bias)


def feed_forward(x: Tensor, inner: nn.Linear, outer: nn.Linear) -> Tensor:
    """max(0, xW₁ + b₁)W₂ + b₂, where what lies between the products is never in float32. [paper 3.3, Eq. 2]"""
    return _FeedForward.apply(x, inner.weight, inner.bias, outer.weight, outer.bias)


def bfloat16_rows(x: Tensor) -> Tensor:
    """`… K` → bfloat16 rows `N K`, and below them rows of zeros up to a round number."""
    padded = copy_rows(x.reshape(-1, x.shape[-1]), torch.bfloat16)
    padded[x.shape[:-1].numel() :] = 0
    return padded


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        factor, rounded = bfloat16_rows(x), weight.bfloat16()
        ctx.save_for_backward(factor, rounded)
        ctx.biased, ctx.shape = bias is not None, x.shape
        return first_rows(F.linear(factor, rounded, None if bias is None else bias.bfloat16()), x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (factor, rounded), (grad,) = ctx.saved_tensors, grads
        slope = bfloat16_rows(grad)
        grad_x = first_rows(torch.mm(slope, rounded), ctx.shape)
        return grad_x, torch.mm(slope.t(), factor).float(), _sum(grad) if ctx.biased else None


class _FeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        factor, (first, first_bias, second, second_bias) = bfloat16_rows(x), (each.bfloat16() for each in weights)
        between = F.linear(factor, first, first_bias).relu_()
        ctx.save_for_backward(factor, between, first, second)
        return first_rows(F.linear(between, second, second_bias), x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        (factor, between, first, second), (grad,) = ctx.saved_tensors, grads
        slope = bfloat16_rows(grad)
        below = torch.ops.aten.threshold_backward(torch.mm(slope, second), between, 0)
        grad_first, grad_second = torch.mm(below.t(), factor).float(), torch.mm(slope.t(), between).float()
        grad_x = first_rows(torch.mm(below, first), grad.shape)
        return grad_x, grad_first, below.sum(dim=0, dtype=torch.float32), grad_second, _sum(grad)


def _sum(grad: Tensor) -> Tensor:
    return grad.reshape(-1, grad.shape[-1]).sum(dim=0)
