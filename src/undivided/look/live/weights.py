"""The weights of a model for a page: a list of tensors and their bytes, 8, 16 or 32 bits a number."""

from __future__ import annotations

import base64
import zlib
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

Stored = Literal["int8", "float16", "float32"]
STORED: tuple[Stored, ...] = ("int8", "float16", "float32")
"""How weights can be stored: int8 with a scale for each row of a matrix, or 16 or 32 bits."""

LARGEST_HALF = 65504.0


class PackedWeights(NamedTuple):
    """Where each tensor lies, and all of them compressed, as base64."""

    entries: list[dict[str, Any]]
    text: str


def pack_weights(model: nn.Module, stored: Stored) -> PackedWeights:
    """The tensors of a model. Tied weights are stored once; vectors (biases, norms) always with 32 bits."""
    parts: list[bytes] = []
    entries: list[dict[str, Any]] = []
    places: dict[int, dict[str, Any]] = {}
    size = 0
    for name, tensor in _tensors(model):
        if tensor.data_ptr() not in places:
            how: Stored = stored if tensor.dim() == 2 else "float32"
            content = _to_bytes(tensor.detach().float().cpu().numpy(), how)
            places[tensor.data_ptr()] = {"shape": list(tensor.shape), "stored": how, "offset": size}
            parts.append(content)
            size += len(content)
        entries.append({"name": name} | places[tensor.data_ptr()])
    return PackedWeights(entries, base64.b64encode(zlib.compress(b"".join(parts), 9)).decode())


def estimate_bytes(model: nn.Module, stored: Stored) -> int:
    """About how many bytes the weights take in a page, as base64 and before compression."""
    width = {"int8": 1, "float16": 2, "float32": 4}[stored]
    unique = {tensor.data_ptr(): tensor for _, tensor in _tensors(model)}
    return sum(tensor.numel() * width for tensor in unique.values()) * 4 // 3


def exceeds_half(model: nn.Module) -> bool:
    """Whether some weight is too large for 16 bits."""
    return any(tensor.dim() == 2 and float(tensor.detach().abs().max()) > LARGEST_HALF for _, tensor in _tensors(model))


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return list(model.named_parameters(remove_duplicate=False))


def _to_bytes(array: np.ndarray, stored: Stored) -> bytes:
    if stored == "float32":
        return array.astype("<f4").tobytes()
    if stored == "float16":
        content = array.astype("<f2").tobytes()
        return content + bytes(-len(content) % 4)
    scales = np.maximum(np.abs(array).max(axis=1, keepdims=True), 1e-30) / 127
    content = scales.astype("<f4").tobytes() + np.rint(array / scales.astype("<f4")).astype("i1").tobytes()
    return content + bytes(-len(content) % 4)
