"""Files that others wrote are read within bounds; files of ours appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from undivided.console import InputError

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


def digest(path: str | Path) -> str:
    """sha256 of a file's bytes."""
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def fresh(path: Path) -> BinaryIO:
    """A new file for writing: what lay under that name is removed first, so that nothing is written through a link."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def sync(path: Path) -> None:
    """Make sure that a file or directory has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, content: bytes) -> None:
    """Write a small file so that at every moment the old or the new one is there."""
    building = path.with_name(f"{path.name}.{os.getpid()}.building")
    with fresh(building) as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    building.replace(path)
    sync(path.parent)


@contextmanager
def alone(folder: Path, message: str) -> Iterator[None]:
    """Within, no other process holds this folder. The system takes the lock back when the process ends, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    # Never through a link, and without cutting what is there: a folder may have come from somebody else.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    with os.fdopen(os.open(folder / "lock", flags, 0o644), "w") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise InputError(message) from None
        yield


@contextmanager
def held(folder: Path) -> Iterator[bool]:
    """Whether, within, this process holds a folder that one at a time can hold; never, where the system has no such locks."""
    with ExitStack() as opened:
        mine = False
        if fcntl is not None:
            handle = os.open(folder, os.O_RDONLY)
            opened.callback(os.close, handle)
            with suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                mine = True
        yield mine
