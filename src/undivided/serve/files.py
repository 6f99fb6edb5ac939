"""Translated files, kept for a while under names that nobody can guess."""

from __future__ import annotations

import os
import re
import secrets
import time
from pathlib import Path, PurePosixPath, PureWindowsPath
from urllib.parse import quote

from undivided.core.files import write_atomic
from undivided.serve.errors import Refusal

SECONDS = 3600
"""How long a file can be fetched."""

MOST_BYTES = 500_000_000
"""Of all files together; the oldest are removed first."""

TOKEN = re.compile(r"[0-9a-f]{32}")


class FileStore:
    """A folder of files; several processes may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, data: bytes, name: str) -> str:
        """Keep a file and return the last part of its address."""
        self.clean(len(data))
        token = secrets.token_hex(16)
        write_atomic(self.folder / token, data)
        # Its age is counted by a clock that nobody sets, and that all processes of a machine share.
        os.utime(self.folder / token, (time.monotonic(), time.monotonic()))
        return f"{token}.{quote(safe_name(name), safe='')}"

    def find(self, name: str) -> tuple[Path, str]:
        """The file with this address, and its own name."""
        token, _, own = name.partition(".")
        path = self.folder / token
        if not TOKEN.fullmatch(token) or not path.is_file() or time.monotonic() - path.stat().st_mtime > SECONDS:
            raise Refusal(404, "no such file; translated files are kept for an hour")
        return path, safe_name(own)

    def clean(self, more: int = 0) -> None:
        """Remove what is too old, and the oldest where there is too much."""
        found = []
        for path in self.folder.iterdir():
            if TOKEN.fullmatch(path.name):
                status = path.stat()
                found.append((status.st_mtime, status.st_size, path))
        total = sum(size for _, size, _ in found) + more
        for made, size, path in sorted(found):
            if time.monotonic() - made > SECONDS or total > MOST_BYTES:
                path.unlink(missing_ok=True)
                total -= size


def safe_name(name: str) -> str:
    """A file name without folders, control characters and what a header or a shell might obey."""
    last = PureWindowsPath(PurePosixPath(name).name).name
    cleaned = re.sub(r"[^\w.()\[\] +,@-]", "_", last).strip(". ")[-120:]
    return cleaned or "translated"
