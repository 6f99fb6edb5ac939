"""Files that others wrote are read within bounds; files of ours appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

from undivided.core.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

MOST_JSON = 16 << 20
"""Bytes of the largest JSON file that is read: a thousand times what we write."""


def read_bounded(path: Path, most: int) -> bytes:
    """The bytes of a file, unless there are more than `most` of them."""
    with path.open("rb") as stream:
        content = stream.read(most + 1)
    if len(content) > most:
        raise InputError(f"{path}: damaged or not what its name says: it has more than {most:,} bytes")
    return content


def parse_json(content: bytes) -> Any:
    """JSON, or ValueError: also for what is nested so deep that Python gives up."""
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def read_json(path: Path, most: int = MOST_JSON) -> dict[str, Any]:
    """The object that a JSON file holds; `InputError` where it does not."""
    try:
        value = parse_json(read_bounded(path, most))
    except ValueError as error:
        raise InputError(f"{path}: damaged, it cannot be read as JSON: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: missing or damaged: {error.strerror or error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: damaged, it holds no JSON object")
    return value


def sha256_of(path: str | Path) -> str:
    """sha256 of a file's bytes."""
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def create_file(path: Path) -> BinaryIO:
    """A new file for writing: what lay under that name is removed first, so that nothing is written through a link."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def fsync(path: Path) -> None:
    """Make sure that a file or directory has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_atomic(path: Path, content: bytes) -> None:
    """Write a small file so that at every moment the old or the new one is there."""
    building = path.with_name(f"{path.name}.{os.getpid()}.building")
    with create_file(building) as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    building.replace(path)
    fsync(path.parent)
