"""Images and labels: read from IDX files (the format of MNIST) or image files, written as PNG."""

from __future__ import annotations

import math
import struct
import warnings
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from undivided.core.console import plural
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.text_files import decompression_errors, open_bytes, read_lines

MAX_IDX_VALUES = 1 << 30
"""Most values of an IDX file: twenty times the training images of MNIST."""

MAX_IDX_DIMENSIONS = 8
"""Most dimensions of an IDX file: coloured images have four."""


def is_idx(path: str | Path) -> bool:
    """Whether a file, decompressed, starts like an IDX file of bytes."""
    try:
        with open_bytes(path) as stream:
            return stream.read(3) == b"\0\0\x08"
    except decompression_errors() as error:
        raise InputError(f"{path}: damaged: {error}") from None


def read_idx(path: str | Path) -> np.ndarray:
    """The array of an IDX file: bytes, with as many dimensions as it says."""
    try:
        with open_bytes(path) as stream:
            head = stream.read(4)
            if len(head) < 4 or head[:3] != b"\0\0\x08":
                raise InputError(f"{path}: not an IDX file of bytes (it does not start with 00 00 08)")
            shape = struct.unpack(f">{head[3]}I", stream.read(4 * head[3]))
            size = math.prod(shape)
            if size > MAX_IDX_VALUES or len(shape) > MAX_IDX_DIMENSIONS:
                raise InputError(f"{path}: damaged or too large: its header announces {size:,} values in {len(shape)} dimensions")
            # Not at once: what a header announces takes memory only as far as it is there.
            values, found = np.empty(size, dtype=np.uint8), 0
            while read := stream.readinto(values[found:].data) if found < size else 0:  # type: ignore[attr-defined]
                found += read
            found += len(stream.read(1))
    except struct.error as error:
        raise InputError(f"{path}: damaged: {error}") from None
    except decompression_errors() as error:
        raise InputError(f"{path}: damaged: {error}") from None
    if found != size:
        raise InputError(f"{path}: damaged: its header announces {size:,} values, but it has {found:,} or more")
    return values.reshape(shape)


def write_idx(path: str | Path, values: np.ndarray) -> None:
    """Bytes of any shape as an IDX file: images `N Y X` (grey) or `N Y X C`, labels `N`."""
    head = struct.pack(f">4B{values.ndim}I", 0, 0, 8, values.ndim, *values.shape)
    write_atomic(Path(path), head + np.ascontiguousarray(values, dtype=np.uint8).tobytes())


def read_images(path: str | Path) -> np.ndarray:
    """Images `N C Y X` as bytes: an IDX file of grey `N Y X` or coloured `N Y X C`, or one image file (needs Pillow)."""
    if Path(path).suffix.lower() in (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp"):
        return _read_image_file(path)
    values = read_idx(path)
    if values.ndim not in (3, 4):
        raise InputError(f"{path}: images have 3 dimensions, or 4 with colours, not {values.ndim}")
    return values[:, None] if values.ndim == 3 else values.transpose(0, 3, 1, 2)


def _read_image_file(path: str | Path) -> np.ndarray:
    try:
        from PIL import Image
    except ImportError:
        raise InputError(f"{path}: image files need Pillow: pip install pillow; IDX files need none") from None
    try:
        with warnings.catch_warnings():
            # Pillow warns of pictures that are larger than it likes; we count their pixels below.
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image = Image.open(path)
        with image:
            if image.width * image.height > 1 << 24:
                raise InputError(f"{path}: {image.width} × {image.height} pixels; at most 2²⁴ pixels are supported")
            grey = image.mode in ("1", "L", "LA", "I;16")
            values = np.asarray(image.convert("L" if grey else "RGB"))
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (InputError, MemoryError):
        raise
    except Exception as error:  # Pillow's readers of formats raise whatever comes of damaged files.
        raise InputError(f"{path}: cannot be read as an image: {error}") from None
    return values[None, None] if grey else values.transpose(2, 0, 1)[None]


GREY = (0.299, 0.587, 0.114)
"""Shares of red, green and blue in what looks equally bright (ITU-R BT.601)."""


def fit_images(images: np.ndarray, channels: int, height: int, width: int) -> np.ndarray:
    """Images `N C Y X` with so many channels and pixels: colours become grey or grey becomes colours, then the size changes."""
    if images.shape[1] == 3 and channels == 1:
        images = np.tensordot(images, np.array(GREY), axes=(1, 0)).round().astype(np.uint8)[:, None]
    elif images.shape[1] == 1 and channels == 3:
        images = images.repeat(3, axis=1)
    if images.shape[1] != channels:
        raise InputError(f"images with {plural(images.shape[1], 'channel')}, but this model was trained on {channels}")
    return np.ascontiguousarray(_resize(_resize(images, height, 2), width, 3))


def _resize(images: np.ndarray, size: int, axis: int) -> np.ndarray:
    """Change one side: each new pixel is the mean of the old ones that it covers, weighted by how much of them."""
    before = images.shape[axis]
    if before == size:
        return images
    edges = np.linspace(0, before, size + 1)
    starts, ends = edges[:-1, None], edges[1:, None]
    places = np.arange(before)[None]
    shares = np.clip(np.minimum(ends, places + 1) - np.maximum(starts, places), 0, None) * (size / before)
    resized = np.moveaxis(np.tensordot(images, shares, axes=(axis, 1)), -1, axis)
    return resized.round().clip(0, 255).astype(np.uint8)


def read_labels(path: str | Path, classes: Sequence[str]) -> list[str]:
    """The class name of each image: lines of a text file, or numbers of an IDX file that index `classes`."""
    if not is_idx(path):
        return [line.strip() for line in read_lines(path)]
    numbers = read_idx(path)
    if numbers.ndim != 1:
        raise InputError(f"{path}: labels have one dimension, not {numbers.ndim}")
    return [classes[number] if number < len(classes) else str(number) for number in numbers.tolist()]


def read_labelled_images(images: str, labels: str, classes: Sequence[str]) -> tuple[np.ndarray, list[str]]:
    """Images and the class name of each; an error if their numbers differ."""
    values, names = read_images(images), read_labels(labels, classes)
    if len(values) != len(names):
        raise InputError(f"{images} holds {plural(len(values), 'image')}, but {labels} {plural(len(names), 'label')}")
    return values, names


def encode_png(image: np.ndarray) -> bytes:
    """An image of bytes, grey `Y X` or coloured `Y X 3`, as PNG."""
    height, width = image.shape[:2]
    rows = np.ascontiguousarray(image, dtype=np.uint8).reshape(height, -1)
    filtered = np.hstack([np.zeros((height, 1), dtype=np.uint8), rows])
    kind = struct.pack(">2I5B", width, height, 8, 0 if image.ndim == 2 else 2, 0, 0, 0)
    chunks = [(b"IHDR", kind), (b"IDAT", zlib.compress(filtered.tobytes(), 9)), (b"IEND", b"")]
    parts = [struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def contact_sheet(images: np.ndarray, columns: int, scale: int, gap: int = 2) -> np.ndarray:
    """Images `N Y X` side by side in rows, each enlarged, with grey gaps."""
    large = images.repeat(scale, axis=1).repeat(scale, axis=2)
    rows = -(-len(large) // columns)
    height, width = large.shape[1] + gap, large.shape[2] + gap
    sheet = np.full((rows * height + gap, columns * width + gap), 96, dtype=np.uint8)
    for number, image in enumerate(large):
        top, left = gap + number // columns * height, gap + number % columns * width
        sheet[top : top + image.shape[0], left : left + image.shape[1]] = image
    return sheet
