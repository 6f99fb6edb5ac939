"""c/*.c → a library for this machine: compiled once, tried in a process of its own, kept in the user's cache."""

from __future__ import annotations

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from undivided.core.cache import cache_folder
from undivided.nn.backend.signatures import declare

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
        return declare(ctypes.CDLL(str(_library_path())))
    except (NoKernels, OSError) as error:
        return str(error)


def _library_path() -> Path:
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
    if not path.exists():
        _build(command, path)
    return path


def _build(command: list[str], path: Path) -> None:
    """Compile to a temporary file, try it, move it into place: another process finds all of it or nothing."""
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        made = Path(folder) / path.name
        _run([*command, *(str(path) for path in SOURCES if path.suffix == ".c"), "-o", str(made), "-lm"])
        # A processor may announce instructions that it then refuses. It must not be this process that finds out.
        _run([sys.executable, "-I", str(TRIAL), str(made)])
        made.replace(path)


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
