"""c/*.c → a library for this machine: compiled once, tried in a process of its own, kept in the user's cache."""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from io import BufferedReader
from pathlib import Path

from undivided.core.cache import cache_folder
from undivided.core.files import sha256_of, write_atomic
from undivided.nn.library.signatures import declare

SOURCES = sorted(Path(__file__).with_name("c").glob("*.[ch]"))
TRIAL = Path(__file__).with_name("trial.py")
FLAGS = ["-O3", "-std=gnu11", "-shared", "-fPIC"]
FAST_MATH = ["-fno-math-errno", "-fno-trapping-math", "-fassociative-math", "-fno-signed-zeros"]
"""Sums may be taken in another order, which is what makes them fast. NaN and infinities keep their meaning."""
SWITCH = "UNDIVIDED_KERNELS"
"""The environment variable that turns the kernels off."""
COMPILE_TIMEOUT = 120
"""Seconds that the compiler may take."""


class NoKernels(Exception):
    """Why the kernels cannot be used here."""


@cache
def load_library() -> ctypes.CDLL | None:
    """The kernels, or None where there are none; `why_no_kernels` says why."""
    return None if isinstance(found := _load_or_say_why(), str) else found


def why_no_kernels() -> str:
    """Why there are no C kernels here; empty where there are."""
    return found if isinstance(found := _load_or_say_why(), str) else ""


@cache
def _load_or_say_why() -> ctypes.CDLL | str:
    try:
        path, library = _open_library()
        with library:
            # By descriptor where the system can: no other file can have taken its name since it was checked.
            by_descriptor = Path(f"/proc/self/fd/{library.fileno()}")
            return declare(ctypes.CDLL(str(by_descriptor if by_descriptor.exists() else path)))
    except (NoKernels, OSError) as error:
        return str(error)


def _open_library() -> tuple[Path, BufferedReader]:
    """The library's file, built if need be: one for these sources, this compiler and this processor."""
    if os.environ.get(SWITCH, "").lower() in {"0", "off", "no"}:
        raise NoKernels(f"{SWITCH} turns them off")
    compiler = shutil.which(os.environ.get("CC", "")) or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform == "win32" or compiler is None:
        raise NoKernels("there is no C compiler (cc) here")
    command = [compiler, *FLAGS, *FAST_MATH, *_processor_flags()]
    sources = [path.read_bytes() for path in SOURCES]
    facts = repr((sources, command, _run([compiler, "--version"]), describe_processor()))
    path = cache_folder() / f"kernels-{hashlib.sha256(facts.encode()).hexdigest()[:20]}.so"

    def build(made: Path) -> None:
        _run([*command, *(str(path) for path in SOURCES if path.suffix == ".c"), "-o", str(made), "-lm"])
        # A processor may announce instructions that it then refuses. It must not be this process that finds out.
        _run([sys.executable, "-I", str(TRIAL), str(made)])

    return path, open_kept(path, build)


def open_kept(path: Path, build: Callable[[Path], None]) -> BufferedReader:
    """A file of the cache, opened and checked: it is this user's alone and what was built. Where it is not, it is built again."""
    digest = path.with_name(f"{path.name}.sha256")
    with suppress(OSError):
        with _open_own(digest) as stream:
            sha256 = stream.read(64).decode("ascii", "replace")
        library = _open_own(path)
        if hashlib.file_digest(library, "sha256").hexdigest() == sha256:
            library.seek(0)
            return library
        library.close()
    # In a temporary folder first: another process finds all of it or nothing.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        build(made)
        made.chmod(0o700)
        library = _open_own(made)
        write_atomic(digest, sha256_of(made))
        digest.chmod(0o600)
        made.replace(path)
    return library


def _open_own(path: Path) -> BufferedReader:
    """Open a file by descriptor and check that: a plain file, no link, with one name, that only this user can have written."""
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    found = os.fstat(handle)
    if stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022 and found.st_nlink == 1:
        return open(handle, "rb")
    os.close(handle)
    raise PermissionError(errno.EPERM, "not a plain file of this user alone", str(path))


def _run(command: list[str]) -> str:
    try:
        ran = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=COMPILE_TIMEOUT, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoKernels(f"{Path(command[0]).name} failed: {error}") from None
    if ran.returncode:
        last = next((line for line in reversed(ran.stderr.splitlines()) if line.strip()), f"exit code {ran.returncode}")
        raise NoKernels(f"{Path(command[0]).name} failed: {last.strip()}")
    return ran.stdout


def _processor_flags() -> list[str]:
    if platform.machine().lower() in {"x86_64", "amd64"}:
        return ["-march=native", "-mprefer-vector-width=512"]
    return ["-mcpu=native"]


def describe_processor() -> str:
    """What tells processors apart: a home may be shared between machines."""
    facts = Path("/proc/cpuinfo")
    if not facts.exists():
        return platform.platform() + platform.processor()
    keys = ("model name", "flags", "Features", "CPU part", "CPU implementer")
    return "\n".join(sorted({line for line in facts.read_text(errors="replace").splitlines() if line.startswith(keys)}))
