"""File locks between processes. The system releases them when a process ends, however it ends."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from filelock import lock_descriptor

from undivided.core.errors import InputError


@contextmanager
def lock_folder(folder: Path, message: str) -> Iterator[None]:
    """Hold the file `lock` of a folder; where another process holds it, refuse at once with `message`."""
    folder.mkdir(parents=True, exist_ok=True)
    # Never through a link, and without truncating what is there: a folder may have come from somebody else.
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(folder / "lock", flags, 0o644)
    try:
        if not lock_descriptor(handle, blocking=False):
            raise InputError(message)
        yield
    finally:
        os.close(handle)


@contextmanager
def try_lock_folder(folder: Path) -> Iterator[bool]:
    """Whether this process now holds the folder itself, without a file in it. Never on Windows, which locks files only."""
    if os.name == "nt":
        yield False
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        locked = False
        with suppress(OSError):
            locked = lock_descriptor(handle, blocking=False)
        yield locked
    finally:
        os.close(handle)


@contextmanager
def make_temporary_folder(folder: Path) -> Iterator[Path]:
    """A new folder that this process holds while it fills it; what still has its name at the end is removed.

    So a temporary folder that nobody holds was left by a process that was killed.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with try_lock_folder(folder):
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned(parent: Path, pattern: str) -> None:
    """Remove the temporary folders of killed processes whose names match a pattern of the shell."""
    for folder in list(parent.glob(pattern)):
        # What is no folder, a link or held by a process stays.
        with suppress(OSError), try_lock_folder(folder) as locked:
            # An empty one may be new and not yet locked.
            if locked and any(folder.iterdir()):
                shutil.rmtree(folder)


def hold_file(stream: BinaryIO, path: Path) -> bool:
    """Hold a new file until it is closed; whether it still has its name, which another process may have removed before.

    Not on Windows, nor where the file system has no locks: there nobody removes anything.
    """
    if os.name == "nt":
        return True
    with suppress(OSError):
        lock_descriptor(stream.fileno())
    return _has_name(stream.fileno(), path)


def remove_abandoned_files(path: Path, suffix: str) -> None:
    """Remove what killed processes left beside a file, under its name, their number and a suffix: what nobody holds."""
    names = []
    if os.name != "nt":
        with suppress(OSError):
            names = [name for name in os.listdir(path.parent) if name.startswith(path.name) and name.endswith(suffix)]
    for name in names:
        number = name.removeprefix(f"{path.name}.").removesuffix(f".{suffix}")
        with suppress(OSError):
            if number.isdecimal():
                _remove_unless_held(path.with_name(name))


def _remove_unless_held(path: Path) -> None:
    """Remove a plain file that no process holds."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        plain = stat.S_ISREG(os.fstat(handle).st_mode)
        if plain and lock_descriptor(handle, blocking=False) and _has_name(handle, path):
            os.unlink(path)
    finally:
        os.close(handle)


def _has_name(handle: int, path: Path) -> bool:
    """Whether an open file is the one of that name."""
    try:
        return os.path.samestat(os.fstat(handle), os.lstat(path))
    except FileNotFoundError:
        return False
