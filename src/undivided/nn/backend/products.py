"""Products with weights: in float32 or, where the CPU is far faster so, of factors rounded to bfloat16. [paper 5.2]

On a GPU that is autocast's work. On a CPU autocast would round everything else as well; here all between the products stays in
float32, and so do the weights that are trained.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
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

from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.nn.backend.build import home, processor

PAYS = 1.4
"""How many times as fast products of bfloat16 must be for a CPU to train with them unasked."""


def choose_precision(name: str, device: torch.device) -> torch.dtype:
    """The arithmetic of training: `auto` is bfloat16 where it pays, on GPUs that have it and CPUs that are far faster so."""
    if name == "float16" and device.type == "cpu":
        raise InputError("train.precision: float16 is for GPUs; on a CPU use bfloat16 or float32")
    if name != "auto":
        return {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}[name]
    pays = bfloat16_pays() if device.type == "cpu" else device.type == "cuda" and torch.cuda.is_bf16_supported()
    return torch.bfloat16 if pays else torch.float32


@cache
def bfloat16_pays() -> bool:
    """Whether this CPU multiplies bfloat16 numbers much faster than others: tried once, and remembered in the user's cache."""
    facts = repr((processor(), torch.__version__, advantage.__code__.co_code))
    path = home() / f"bfloat16-{hashlib.sha256(facts.encode()).hexdigest()[:20]}.txt"
    with contextlib.suppress(OSError, ValueError):
        return float(path.read_text()) >= PAYS
    found = _tried()
    with contextlib.suppress(OSError):
        write_atomic(path, f"{found}\n".encode())
    return found >= PAYS


def _tried() -> float:
    """The advantage of this CPU, 0 where the trial fails.

    A processor may announce instructions that it then refuses. It must not be this process that finds out.
    """
    command = [sys.executable, "-P", "-c", "from undivided.nn.backend.products import advantage; print(advantage())"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError):
        tried = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120, stdin=subprocess.DEVNULL)
        return float(tried.stdout)
    return 0.0


def advantage() -> float:
    """How many times as fast as in float32 this CPU multiplies bfloat16 numbers, on one thread."""
    torch.set_num_threads(1)
    sides = [torch.randn(512, 512).to(dtype) for dtype in (torch.float32, torch.bfloat16)]
    exact, rounded = (min(_seconds(side) for _ in range(15)) for side in sides)
    return exact / rounded


def _seconds(side: Tensor) -> float:
    began = time.thread_time()
    side @ side.t()
    return time.thread_time() - began


class _Rounding(threading.local):
    on = False


_rounding = _Rounding()


@contextmanager
def bfloat16_products(on: bool = True) -> Iterator[None]:
    """Within, in this thread, factors of products are rounded to bfloat16; sums are not."""
    before, _rounding.on = _rounding.on, on
    try:
        yield
    finally:
        _rounding.on = before


def uses_bfloat16(x: Tensor) -> bool:
    """Whether products of this thread with a float32 factor have rounded ones."""
    return _rounding.on and x.dtype is torch.float32


class Linear(nn.Linear):
    """xW + b."""

    def forward(self, x: Tensor) -> Tensor:
        return _RoundedLinear.apply(x, self.weight, self.bias) if uses_bfloat16(x) else linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None, *, exact: bool = False) -> Tensor:
    """xW + b, of packed weights where those are in use; `exact`: in float32 also where they are rounded."""
    packs = _packing.packs
    return F.linear(x, weight, bias) if packs is None or not packs.suit(x) else packs.product(x, weight, bias, exact=exact)


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """max(0, xW + b), of packed weights where those are in use."""
    packs = _packing.packs
    return F.linear(x, weight, bias).relu_() if packs is None or not packs.suit(x) else packs.product(x, weight, bias, "relu")


class PackedWeights:
    """Weights in the order in which this CPU's products read them best, made when first needed; `rounded`: to bfloat16.

    For models that no longer change. It holds each weight a second time.
    """

    def __init__(self, rounded: bool = False) -> None:
        self.rounded = rounded
        self._made: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def used(self) -> Iterator[None]:
        """Within, in this thread, products have packed weights."""
        before, _packing.packs = _packing.packs, self
        try:
            yield
        finally:
            _packing.packs = before

    @staticmethod
    def suit(x: Tensor) -> bool:
        """Whether a product with these rows can have packed weights."""
        return x.dtype is torch.float32 and x.device.type == "cpu" and torch.is_inference_mode_enabled() and packing_works()

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None, then: str = "none", exact: bool = False) -> Tensor:
        """xW + b, and `then` what oneDNN knows by that name."""
        dtype = torch.bfloat16 if self.rounded and not exact else torch.float32
        rows = x.reshape(-1, x.shape[-1])
        rows = _extended(rows) if rows.dtype is dtype else _copied(rows, dtype)
        bias = None if bias is None else bias.to(dtype)
        return _exact(torch.ops.mkldnn._linear_pointwise(rows, self._packed(weight, dtype), bias, then, [], ""), x.shape)

    def _packed(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        key = id(weight), dtype
        with self._lock:
            if key not in self._made:
                self._made[key] = weight, torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype))
            return self._made[key][1]


class _Packing(threading.local):
    packs: PackedWeights | None = None


_packing = _Packing()


@cache
def packing_works() -> bool:
    """Whether this PyTorch has packed weights, and multiplies by them what it does without."""
    with contextlib.suppress(AttributeError, RuntimeError), torch.inference_mode():
        x, weight, bias = (torch.arange(1.0, 1 + math.prod(shape)).sin().view(shape) for shape in ((16, 24), (40, 24), (40,)))
        packed = torch.ops.mkldnn._reorder_linear_weight(weight)
        out = torch.ops.mkldnn._linear_pointwise(x, packed, bias, "relu", [], "")
        return torch.allclose(out, F.linear(x, weight, bias).relu(), rtol=1e-4, atol=1e-4)
    return False


def rounded_feed_forward(x: Tensor, inner: Linear, outer: Linear) -> Tensor:
    """max(0, xW₁ + b₁)W₂ + b₂, where what lies between the products is never in float32. [paper 3.3, Eq. 2]"""
    return _RoundedFeedForward.apply(x, inner.weight, inner.bias, outer.weight, outer.bias)


def rounded_rows(x: Tensor) -> Tensor:
    """`… K` → bfloat16 rows `N K`, and below them rows of zeros up to a round number."""
    padded = _copied(x.reshape(-1, x.shape[-1]), torch.bfloat16)
    padded[x.shape[:-1].numel() :] = 0
    return padded


def _copied(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows in a type, and below them, up to a round number, whatever lies there."""
    padded = torch.empty(round_up(len(rows)), rows.shape[1], dtype=dtype)
    padded[: len(rows)] = rows
    return padded


def _extended(rows: Tensor) -> Tensor:
    """The same without a copy, where the memory behind the rows goes on far enough. Nobody may write to it."""
    count, width = round_up(len(rows)), rows.shape[1]
    end = (rows.storage_offset() + count * width) * rows.element_size()
    if rows.is_contiguous() and end <= rows.untyped_storage().nbytes():
        return rows.as_strided((count, width), (width, 1))
    return _copied(rows, rows.dtype)


def round_up(rows: int) -> int:
    """The next round number of rows, at most a sixteenth more, or 15.

    The library behind a product makes a program for every number of rows that it meets, and keeps it: a few numbers must do.
    """
    step = max(16, (1 << rows.bit_length()) // 32)
    return -(-rows // step) * step


def _exact(rows: Tensor, shape: torch.Size) -> Tensor:
    """The first rows as a float32 tensor of some shape, but for its last dimension."""
    return rows[: shape[:-1].numel()].view(*shape[:-1], rows.shape[1]).float()


class _RoundedLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        factor, rounded = rounded_rows(x), weight.bfloat16()
        ctx.save_for_backward(factor, rounded)
        ctx.biased, ctx.shape = bias is not None, x.shape
        return _exact(F.linear(factor, rounded, None if bias is None else bias.bfloat16()), x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (factor, rounded), (grad,) = ctx.saved_tensors, grads
        slope = rounded_rows(grad)
        grad_x = _exact(torch.mm(slope, rounded), ctx.shape)
        return grad_x, torch.mm(slope.t(), factor).float(), _sum(grad) if ctx.biased else None


class _RoundedFeedForward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *weights: Tensor) -> Tensor:
        factor, (first, first_bias, second, second_bias) = rounded_rows(x), (each.bfloat16() for each in weights)
        between = F.linear(factor, first, first_bias).relu_()
        ctx.save_for_backward(factor, between, first, second)
        return _exact(F.linear(between, second, second_bias), x.shape)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, ...]:
        (factor, between, first, second), (grad,) = ctx.saved_tensors, grads
        slope = rounded_rows(grad)
        below = torch.ops.aten.threshold_backward(torch.mm(slope, second), between, 0)
        grad_first, grad_second = torch.mm(below.t(), factor).float(), torch.mm(slope.t(), between).float()
        grad_x = _exact(torch.mm(below, first), grad.shape)
        return grad_x, grad_first, below.sum(dim=0, dtype=torch.float32), grad_second, _sum(grad)


def _sum(grad: Tensor) -> Tensor:
    return grad.reshape(-1, grad.shape[-1]).sum(dim=0)
