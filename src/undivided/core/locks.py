"""Locks on folders between processes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from undivided.core.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


@contextmanager
def lock_folder(folder: Path, message: str) -> Iterator[None]:
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
def try_lock_folder(folder: Path) -> Iterator[bool]:
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
