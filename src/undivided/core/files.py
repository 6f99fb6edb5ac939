"""Files that others wrote are read within bounds; files of ours appear whole or not at all."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from undivided.core.errors import InputError
from undivided.core.locks import hold_file, make_temporary_folder, remove_abandoned, remove_abandoned_files

MAX_JSON_BYTES = 16 << 20
"""The largest JSON file that is read: a thousand times what we write."""

PART = "undivided-part"
"""How the names of files end that `open_atomic` has not completed."""

BUILDING = "*.[0-9]*.building"
"""The names that `build_folder` gives its folders until they are complete, as a pattern of the shell."""


def read_bounded(path: Path, limit: int) -> bytes:
    """The bytes of a file, unless there are more than `limit` of them."""
    check_plain(path)
    with path.open("rb") as stream:
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise InputError(f"{path}: damaged or not what its name says: it has more than {limit:,} bytes")
    return content


def parse_json(content: bytes) -> Any:
    """JSON, or ValueError: also for what is nested so deep that Python gives up."""
    try:
        return json.loads(content.decode("utf-8"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def check_plain(path: str | Path) -> None:
    """Refuse what is there and is neither a file nor a folder: to open a pipe would wait for ever.

    What a shell hands over (`<(…)`) is a pipe that somebody writes to.
    """
    if str(path).startswith(("/dev/fd/", "/dev/stdin", "/proc/self/fd/")):
        return
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{path}: is no plain file (a pipe or a device)")


def read_json(path: Path, limit: int = MAX_JSON_BYTES) -> dict[str, Any]:
    """The object that a JSON file holds; `InputError` where it does not."""
    try:
        value = parse_json(read_bounded(path, limit))
    except ValueError as error:
        raise InputError(f"{path}: damaged, it cannot be read as JSON: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: missing or damaged: {error.strerror or error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{path}: damaged, it holds no JSON object")
    return value


def sha256_of(path: str | Path) -> str:
    """sha256 of a file's bytes, in hexadecimal."""
    check_plain(path)
    try:
        with Path(path).open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


def check_folder_name(folder: str | Path) -> None:
    """Refuse a folder for weights whose name is not UTF-8: safetensors opens no such path."""
    try:
        os.fsencode(folder).decode("utf-8")
    except UnicodeError:
        raise InputError(f"{folder}: the name of a model folder must be UTF-8; rename it or choose another") from None


def create_file(path: Path) -> BinaryIO:
    """Open a new file for writing. What had that name is removed first, so that nothing is written through a link."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def open_append(path: Path) -> BinaryIO:
    """Open a file of ours to add to its end. A link is refused; of a file that has a second name elsewhere a copy is made first."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    try:
        handle = os.open(path, flags | getattr(os, "O_BINARY", 0), 0o666)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        raise InputError(f"{path}: is no plain file, so nothing is written there; remove it") from None
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return os.fdopen(handle, "ab")
    os.close(handle)
    if not stat.S_ISREG(found.st_mode):
        raise InputError(f"{path}: is no plain file, so nothing is written there; remove it")
    with path.open("rb") as old, open_atomic(path) as new:
        shutil.copyfileobj(old, new)
    return open_append(path)


def fsync(path: Path) -> None:
    """Make sure that a file or folder has reached the disk."""
    if os.name == "nt" and path.is_dir():
        return  # Windows opens no folders, and writes their entries by itself.
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def temporary_name(path: Path, suffix: str) -> Path:
    """Where this process writes what will become `path`: beside it, so that one rename puts it into place."""
    return path.with_name(f"{path.name}.{os.getpid()}.{suffix}")


_open_parts: set[Path] = set()
"""What this process has not completed."""


def remove_open_parts() -> None:
    """Remove what this process has not completed: it ends now, whatever it is doing."""
    for part in list(_open_parts):
        with suppress(OSError):
            part.unlink()


def check_replaceable(path: Path) -> None:
    """Refuse to put a file in the place of a device or a pipe, also where a link leads to one, as `/dev/stdout` does."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(
            f"{path}: is no plain file (a pipe or a device), and no file is put in its place; to write to stdout, leave it out"
        )


def keep_mode(handle: int, path: Path) -> None:
    """Give an open file the permissions of the one that it will replace; of a link nothing is taken."""
    with suppress(OSError):
        found = path.lstat()
        if stat.S_ISREG(found.st_mode) and hasattr(os, "fchmod"):
            os.fchmod(handle, stat.S_IMODE(found.st_mode) & 0o777)


@contextmanager
def open_atomic(path: Path) -> Iterator[BinaryIO]:
    """Write a file so that at every moment the old or the new one is there, whole and on the disk.

    After an error the old one stays, and nothing else is left behind; what a killed process left is removed by the next.
    """
    check_replaceable(path)
    remove_abandoned_files(path, PART)
    part = temporary_name(path, PART)
    _open_parts.add(part)
    try:
        with _create_held(part) as stream:
            keep_mode(stream.fileno(), path)
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
            if os.name != "nt":  # While it is held: no other process takes it for an abandoned one.
                part.replace(path)
        if os.name == "nt":  # Which renames no open file.
            part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        _open_parts.discard(part)
    fsync(path.parent)


def _create_held(part: Path) -> BinaryIO:
    """A new file that this process holds until it is closed."""
    while True:
        stream = create_file(part)
        if hold_file(stream, part):
            return stream
        stream.close()


def write_atomic(path: Path, content: bytes | str) -> None:
    """Write a file at once, with the promises of `open_atomic`; text as `encode_text` says."""
    with open_atomic(path) as stream:
        stream.write(encode_text(content) if isinstance(content, str) else content)


def encode_text(text: str) -> bytes:
    """Text as UTF-8. Bytes of a file name that are not UTF-8 are spelled out (`\\udcff`), which JSON reads as the same name."""
    return text.encode("utf-8", "backslashreplace")


@contextmanager
def build_folder(path: Path) -> Iterator[Path]:
    """A new folder to fill, which takes its name when all is in it; one that had the name is removed then.

    It is on the disk before. After an error nothing is left behind, and what a killed process left is removed.
    """
    remove_abandoned(path.parent, BUILDING)
    with make_temporary_folder(temporary_name(path, "building")) as building:
        yield building
        for part in [*building.rglob("*"), building]:
            fsync(part)
        shutil.rmtree(path, ignore_errors=True)
        building.rename(path)
        fsync(path.parent)
