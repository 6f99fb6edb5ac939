"""Rows in round numbers: oneDNN compiles and keeps a program for every number of rows it meets, so a few numbers must do."""

from __future__ import annotations

import torch
from torch import Tensor


def round_up(rows: int) -> int:
    """The next round number of rows, at most a sixteenth more, or 15."""
    step = max(16, (1 << rows.bit_length()) // 32)
    return -(-rows // step) * step


def copy_rows(rows: Tensor, dtype: torch.dtype) -> Tensor:
    """Rows in a type, and below them, up to a round number, whatever lies there."""
    out = torch.empty(round_up(len(rows)), rows.shape[1], dtype=dtype)
    out[: len(rows)] = rows
    return out


def extend_rows(rows: Tensor) -> Tensor:
    """The same without a copy, where the memory behind the rows reaches far enough. Nobody may write to it."""
    count, width = round_up(len(rows)), rows.shape[1]
    end = (rows.storage_offset() + count * width) * rows.element_size()
    if rows.is_contiguous() and end <= rows.untyped_storage().nbytes():
        return rows.as_strided((count, width), (width, 1))
    return copy_rows(rows, rows.dtype)


def first_rows(rows: Tensor, shape: torch.Size) -> Tensor:
    """The first rows as a float32 tensor of some shape, but for its last dimension."""
    return rows[: shape[:-1].numel()].view(*shape[:-1], rows.shape[1]).float()
