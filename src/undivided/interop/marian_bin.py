"""Marian's binary model files: named arrays, in float32 or in the 8 bits of Bergamot and Firefox (intgemm8).

A file begins with its version (1), the number of arrays, and of each the length of its name, its type, the number of its
dimensions and of its bytes; then come all names, all shapes, a gap that ends at a multiple of 256 bytes, and all contents. An
array of intgemm8 is stored transposed, but for embeddings, and behind its numbers stands the float that they were multiplied by.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from undivided.core.errors import InputError
from undivided.core.files import read_bounded

VERSION = 1
INT8, FLOAT32, INTGEMM8 = 0x0101, 0x0404, 0x4101
"""Types of arrays: a text, and the two of weights."""
ALIGNED = 256
MAX_ARRAYS, MAX_NAME, MAX_DIMENSIONS = 20_000, 1000, 4
MAX_BYTES = 4 << 30
SCALE = "_QuantMultA"
"""Behind the name of a weight: what its inputs are multiplied by before they are rounded."""
LARGEST = 127


class Stored(NamedTuple):
    """An array as it lies in a file."""

    name: str
    kind: int
    shape: tuple[int, ...]
    content: bytes


class Header(NamedTuple):
    """Of one array."""

    name_length: int
    kind: int
    dimensions: int
    size: int


def write_bin(arrays: Mapping[str, np.ndarray], rounded: bool) -> bytes:
    """The content of a file; `rounded`: with the weights of matrix products and embeddings in 8 bits."""
    stored = [_store(name, array, rounded) for name, array in arrays.items()]
    head = struct.pack("<QQ", VERSION, len(stored))
    head += b"".join(struct.pack("<4Q", len(each.name) + 1, each.kind, len(each.shape), len(each.content)) for each in stored)
    head += b"".join(each.name.encode("ascii") + b"\0" for each in stored)
    head += b"".join(struct.pack(f"<{len(each.shape)}i", *each.shape) for each in stored)
    gap = -(len(head) + 8) % ALIGNED
    return head + struct.pack("<Q", gap) + bytes(gap) + b"".join(each.content for each in stored)


def _store(name: str, array: np.ndarray, rounded: bool) -> Stored:
    if array.dtype == np.int8:
        kind, content = INT8, array.tobytes()
    elif rounded and is_weight(name):
        kind, content = INTGEMM8, _round(name, array)
    else:
        kind, content = FLOAT32, array.astype("<f4").tobytes()
    return Stored(name, kind, array.shape, content + bytes(-len(content) % ALIGNED))


def is_weight(name: str) -> bool:
    """Whether an array is of those that Bergamot computes with in 8 bits: embeddings, and what ends in `_W`, `_Wq`, `_W1`, …"""
    return name.endswith("Wemb") or name[-2:] == "_W" or name[-3:-1] == "_W"


def _round(name: str, array: np.ndarray) -> bytes:
    """In 8 bits, one scale for the whole matrix, which stands behind it."""
    scale = np.float32(LARGEST / max(float(np.abs(array).max()), 1e-30))
    stored = array if name.endswith("Wemb") else array.T
    whole = np.clip(np.rint(stored * scale), -LARGEST, LARGEST).astype(np.int8)
    return np.ascontiguousarray(whole).tobytes() + scale.astype("<f4").tobytes()


def is_bin(path: Path) -> bool:
    """Whether a file begins like a model of Marian."""
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        begin = file.read(16)
    return len(begin) == 16 and struct.unpack("<QQ", begin)[0] == VERSION and 0 < struct.unpack("<QQ", begin)[1] <= MAX_ARRAYS


def read_bin(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name; those of 8 bits become float32 again. Nothing may claim more than the file holds."""
    content = read_bounded(path, MAX_BYTES)
    try:
        return dict(_arrays(content))
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as a binary model of Marian: {error}") from None


def _arrays(content: bytes) -> Iterator[tuple[str, np.ndarray]]:
    version, count = struct.unpack_from("<QQ", content)
    if version != VERSION or count > MAX_ARRAYS:
        raise ValueError(f"version {version:,} with {count:,} arrays")
    place, names, shapes = 16 + 32 * count, list[str](), list[tuple[int, ...]]()
    headers = [Header(*struct.unpack_from("<4Q", content, 16 + 32 * number)) for number in range(count)]
    for header in headers:
        if not 0 < header.name_length <= MAX_NAME or header.dimensions > MAX_DIMENSIONS:
            raise ValueError(f"a name of {header.name_length:,} bytes, or {header.dimensions:,} dimensions")
        names.append(content[place : place + header.name_length].split(b"\0")[0].decode("ascii"))
        place += header.name_length
    for header in headers:
        shapes.append(struct.unpack_from(f"<{header.dimensions}i", content, place))
        place += 4 * header.dimensions
    place += 8 + struct.unpack_from("<Q", content, place)[0]
    for header, name, shape in zip(headers, names, shapes, strict=True):
        if place + header.size > len(content):
            raise ValueError(f"{name} claims {header.size:,} bytes, but the file ends")
        yield name, _array(name, header.kind, shape, content[place : place + header.size])
        place += header.size


def _array(name: str, kind: int, shape: tuple[int, ...], content: bytes) -> np.ndarray:
    width = {INT8: 1, FLOAT32: 4, INTGEMM8: 1}.get(kind)
    if width is None:
        raise ValueError(f"{name} has the unknown type {kind:#x}")
    count = math.prod(shape)
    if any(each < 0 for each in shape) or len(content) < count * width + (4 if kind == INTGEMM8 else 0):
        raise ValueError(f"{name} claims {shape} numbers, but holds {len(content):,} bytes")
    if kind != INTGEMM8:
        return np.frombuffer(content, np.int8 if kind == INT8 else "<f4", count).reshape(shape)
    (scale,) = struct.unpack_from("<f", content, count)
    if not scale > 0 or not math.isfinite(scale):
        raise ValueError(f"{name} has the scale {scale}")
    whole = np.frombuffer(content, np.int8, count)
    stored = whole.reshape(shape) if "Wemb" in name else whole.reshape(shape[1], shape[0]).T
    return (stored / np.float32(scale)).astype(np.float32)
