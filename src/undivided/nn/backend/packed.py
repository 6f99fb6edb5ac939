"""Packed weights: in the order in which this CPU's matrix products read them best. For models that no longer change."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.nn.backend.rows import copy_rows, extend_rows, first_rows


class PackedWeights:
    """The packed copies of a model's weights, made when first needed; `rounded`: to bfloat16. Each weight is held twice."""

    def __init__(self, rounded: bool = False) -> None:
        self.rounded = rounded
        self._packed: dict[tuple[int, torch.dtype], tuple[Tensor, Tensor]] = {}
        self._lock = threading.Lock()

    @contextmanager
    def use(self) -> Iterator[None]:
        """Within, in this thread, products have packed weights."""
        before, _in_use.weights = _in_use.weights, self
        try:
            yield
        finally:
            _in_use.weights = before

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, then: str = "none", exact: bool = False) -> Tensor:
        """xW + b, and `then` what oneDNN knows by that name; `exact`: in float32 also where weights are rounded."""
        dtype = torch.bfloat16 if self.rounded and not exact else torch.float32
        rows = x.reshape(-1, x.shape[-1])
        rows = extend_rows(rows) if rows.dtype is dtype else copy_rows(rows, dtype)
        bias = None if bias is None else bias.to(dtype)
        out = torch.ops.mkldnn._linear_pointwise(rows, self._pack(weight, dtype), bias, then, [], "")
        return first_rows(out, x.shape)

    def _pack(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        key = id(weight), dtype
        with self._lock:
            if key not in self._packed:
                # The weight itself is kept beside its copy, so that no other tensor gets its id.
                self._packed[key] = weight, torch.ops.mkldnn._reorder_linear_weight(weight.detach().to(dtype))
            return self._packed[key][1]


class _InUse(threading.local):
    weights: PackedWeights | None = None


_in_use = _InUse()


def packed_weights_for(x: Tensor) -> PackedWeights | None:
    """The packed weights that this thread uses, where a product with these rows can have them."""
    return _in_use.weights if _in_use.weights is not None and supports_packing(x) else None


def supports_packing(x: Tensor) -> bool:
    """Whether a product with these rows can have packed weights: float32 on a CPU, in inference mode."""
    return x.dtype is torch.float32 and x.device.type == "cpu" and torch.is_inference_mode_enabled() and packing_works()


@cache
def packing_works(rounded: bool = False) -> bool:
    """Whether this PyTorch has packed weights, and multiplies by them what it does without; `rounded`: in bfloat16."""
    with contextlib.suppress(AttributeError, RuntimeError), torch.inference_mode():
        x, weight, bias = (torch.arange(1.0, 1 + math.prod(shape)).sin().view(shape) for shape in ((16, 24), (40, 24), (40,)))
        right, near = F.linear(x, weight, bias).relu(), 0.1 if rounded else 1e-4
        own = [each.to(torch.bfloat16 if rounded else torch.float32) for each in (x, weight, bias)]
        packed = torch.ops.mkldnn._reorder_linear_weight(own[1])
        out = torch.ops.mkldnn._linear_pointwise(own[0], packed, own[2], "relu", [], "")
        return torch.allclose(out.float(), right, rtol=near, atol=near)
    return False
