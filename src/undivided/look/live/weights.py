"""The weights of a model for a page: a list of tensors and their bytes, 8, 16 or 32 bits a number, as text in base 85."""

from __future__ import annotations

import math
import zlib
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor, nn

Stored = Literal["int8", "float16", "float32"]
STORED: tuple[Stored, ...] = ("int8", "float16", "float32")
"""How weights can be stored: int8 with a scale for each row of a matrix, or 16 or 32 bits."""

LARGEST_HALF = 65504.0

DIGITS = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=:?@^_`{|}~"
"""Of base 85, as base64.b85encode has them, but without <, > and &, which mean something in a page."""


class PackedWeights(NamedTuple):
    """Where each tensor lies, and all of them compressed, in base 85."""

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
            content, _ = _to_bytes(_array_of(tensor), how)
            places[tensor.data_ptr()] = {"shape": list(tensor.shape), "stored": how, "offset": size}
            parts.append(content)
            size += len(content)
        entries.append({"name": name} | places[tensor.data_ptr()])
    return PackedWeights(entries, to_base85(zlib.compress(b"".join(parts), 9)))


def measure_loss(model: nn.Module, stored: Stored) -> float:
    """How far the matrices in a page are from those of the model: the root mean square of the differences ÷ that of the weights."""
    different = whole = 0.0
    for array in {tensor.data_ptr(): _array_of(tensor) for _, tensor in _tensors(model) if tensor.dim() == 2}.values():
        _, kept = _to_bytes(array, stored)
        different += float(np.square(kept - array, dtype=np.float64).sum())
        whole += float(np.square(array, dtype=np.float64).sum())
    return math.sqrt(different / whole) if whole else 0.0


def estimate_bytes(model: nn.Module, stored: Stored) -> int:
    """About how many bytes the weights take in a page, in base 85 and before compression."""
    width = {"int8": 1, "float16": 2, "float32": 4}[stored]
    unique = {tensor.data_ptr(): tensor for _, tensor in _tensors(model)}
    return sum(tensor.numel() * width for tensor in unique.values()) * 5 // 4


def exceeds_half(model: nn.Module) -> bool:
    """Whether some weight is too large for 16 bits."""
    return any(tensor.dim() == 2 and float(tensor.detach().abs().max()) > LARGEST_HALF for _, tensor in _tensors(model))


def _tensors(model: nn.Module) -> list[tuple[str, Tensor]]:
    return list(model.named_parameters(remove_duplicate=False))


def _array_of(tensor: Tensor) -> np.ndarray:
    return tensor.detach().float().cpu().numpy()


def to_base85(content: bytes) -> str:
    """Five digits for every four bytes, a sixteenth less than base64; at the end as many are left out as bytes were missing."""
    missing = -len(content) % 4
    words = np.frombuffer(content + bytes(missing), ">u4").astype(np.uint32)
    digits = np.empty((len(words), 5), np.uint8)
    for place in reversed(range(5)):
        words, digits[:, place] = np.divmod(words, 85)
    text = np.frombuffer(DIGITS, np.uint8)[digits].tobytes().decode("ascii")
    return text[: len(text) - missing]


def _to_bytes(array: np.ndarray, stored: Stored) -> tuple[bytes, np.ndarray]:
    """The bytes of a tensor, and the numbers that a page reads in them."""
    if stored == "float32":
        return array.astype("<f4").tobytes(), array
    if stored == "float16":
        halves = array.astype("<f2")
        content = halves.tobytes()
        return content + bytes(-len(content) % 4), halves.astype(np.float32)
    scales = (np.maximum(np.abs(array).max(axis=1, keepdims=True), 1e-30) / 127).astype("<f4")
    levels = np.rint(array / scales).astype("i1")
    content = scales.tobytes() + levels.tobytes()
    return content + bytes(-len(content) % 4), levels * scales
