"""Read the arrays of a NumPy archive (`.npz`) within bounds: no entry may claim more than it holds, and none is an object."""

from __future__ import annotations

import io
import math
import zipfile
from pathlib import Path

import numpy as np
from numpy.lib import format as npy

from undivided.core.errors import InputError

MOST_COMPRESSED = 20
"""Weights hardly become smaller: an entry that grows more than this when it is unpacked is a trap."""
MAX_ENTRIES = 20_000


def read_npz(path: Path) -> dict[str, np.ndarray]:
    """The arrays by name."""
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MAX_ENTRIES:
                raise ValueError(f"it has {len(entries):,} entries")
            return {entry.filename.removesuffix(".npy"): _read(archive, entry) for entry in entries}
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (zipfile.BadZipFile, ValueError, EOFError, RuntimeError, NotImplementedError, TypeError, MemoryError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as a NumPy archive: {error}") from None


def _read(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> np.ndarray:
    if entry.file_size > MOST_COMPRESSED * (entry.compress_size + 4096):
        raise ValueError(f"{entry.filename} claims {entry.file_size:,} bytes, more than is believable")
    stream = io.BytesIO(archive.read(entry))
    version = npy.read_magic(stream)
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    if version not in readers:
        raise ValueError(f"{entry.filename} has a header of the unknown version {version}")
    shape, by_columns, dtype = readers[version](stream)
    content = stream.read()
    if dtype.hasobject or dtype.fields is not None or len(content) != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{entry.filename} claims {shape} numbers of type {dtype}, but holds {len(content):,} bytes")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if by_columns else "C")
