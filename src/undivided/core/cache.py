"""The user's cache: a folder for what this user's own processes made, which nobody else can write to."""

from __future__ import annotations

import atexit
import os
import stat
import tempfile
from functools import cache
from pathlib import Path


@cache
def cache_folder() -> Path:
    """A folder that only this user can write to; where there is none, one that ends with this process."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "undivided"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_own_folder(folder) and os.access(folder, os.W_OK):
            return folder
    except (OSError, RuntimeError, AttributeError):  # Windows has no `getuid`; without a home there is a RuntimeError.
        pass
    return _temporary_folder()


def is_own_folder(folder: Path) -> bool:
    """Whether this is a folder, not a link to one, that belongs to this user and that nobody else can write to."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _temporary_folder() -> Path:
    """A folder that ends with this process."""
    folder = tempfile.TemporaryDirectory(prefix="undivided-")
    atexit.register(folder.cleanup)
    return Path(folder.name)
