"""File locks between processes. The system releases them when a process ends, however it ends."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

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
