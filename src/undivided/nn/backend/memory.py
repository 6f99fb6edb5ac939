"""Tensors as the C kernels get them: addresses, after a check of type, order and size."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from undivided.nn.library import load_library, why_no_kernels
from undivided.nn.library.signatures import HeadView

WIDE = 16
"""Heads are as wide as a multiple of this."""


def kernels() -> ctypes.CDLL:
    """The C functions, all with their signatures."""
    found = load_library()
    if found is None:
        raise RuntimeError(f"there are no C kernels here: {why_no_kernels()}")
    return found


def address(tensor: Tensor, count: int, dtype: torch.dtype = torch.float32) -> int:
    """The address of `count` contiguous numbers of a type. C does not check what it reads and writes, so this does."""
    if tensor.dtype is not dtype or not tensor.is_cpu or not tensor.is_contiguous() or tensor.numel() < count:
        raise ValueError(
            f"a kernel needs {count} contiguous {dtype} numbers on the CPU, not {tensor.dtype} of shape {tuple(tensor.shape)} "
            f"and strides {tensor.stride()} on {tensor.device}"
        )
    return tensor.data_ptr()


def same_shape(x: Tensor, y: Tensor) -> None:
    """Refuse tensors that a kernel would read side by side and that differ in shape."""
    if x.shape != y.shape:
        raise ValueError(f"a kernel needs two tensors of one shape, not {tuple(x.shape)} and {tuple(y.shape)}")


def packed_heads(tensor: Tensor, start: int, heads: int, width: int) -> HeadView:
    """The heads of a part of the last dimension of a tensor `B T (…)`, which begins at `start`."""
    if start + heads * width > tensor.shape[-1] or width % WIDE:
        raise ValueError(f"{heads} heads of width {width} do not lie from {start} on in rows of {tensor.shape[-1]}")
    begin = address(tensor, tensor.numel()) + 4 * start
    return HeadView(begin, tensor.stride(0), tensor.stride(1), width)


def cached_heads(tensor: Tensor, positions: int) -> HeadView:
    """The heads of a tensor, or view, `B H T K` with at least this many positions."""
    if tensor.dtype is not torch.float32 or not tensor.is_cpu or tensor.stride(3) != 1 or tensor.shape[3] % WIDE:
        raise ValueError(f"cached heads must be float32 on the CPU and {WIDE}·n wide, not {tensor.dtype} {tuple(tensor.shape)}")
    if tensor.shape[2] < positions:
        raise ValueError(f"a cache of {tensor.shape[2]} positions, but {positions} are asked for")
    return HeadView(tensor.data_ptr(), tensor.stride(0), tensor.stride(2), tensor.stride(1))
