"""The process that a command runs in: its standard streams, its locale, its limits."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from undivided.core.errors import InputError, UndividedError

BASE_MEMORY = 1 << 30
"""Address space that Python and PyTorch take before any model."""

THREAD_MEMORY = 32 << 20
"""Address space of a thread: its stack and its part of the heap."""


def open_standard_streams() -> None:
    """Replace what the caller has closed (`>&-`): else the next file that is opened would become stdout or stderr.

    Writing to a stdout that was closed fails, as it should; messages to a closed stderr are dropped.
    """
    for number, mode in enumerate((os.O_WRONLY, os.O_RDONLY, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, mode), True)  # Takes the lowest number that is free, which is this one.
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Help and messages have signs that ASCII, which `LC_ALL=C` asks for, and some Windows code pages lack.
            stream.reconfigure(
                encoding="utf-8" if stream.encoding in ("ascii", "ANSI_X3.4-1968") else None, errors="backslashreplace"
            )


def discard_stdout() -> None:
    """Python must not complain at exit about what stdout no longer takes."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def argument_text(text: str) -> str:
    """A text of the command line, which Python has decoded as if it were a file name, as UTF-8."""
    try:
        return os.fsencode(text).decode("utf-8")
    except UnicodeError:
        raise InputError("the text on the command line is not valid UTF-8") from None


def address_limit() -> int | None:
    """The bytes of address space that this process may take (`ulimit -v`); None if there is no limit."""
    try:
        import resource
    except ImportError:  # Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def usable_memory() -> int:
    """The bytes that this process may use: the machine's memory, what its container or its limits allow; 0 is unknown."""
    limits = [address_limit(), *container_limits()]
    with suppress(AttributeError, ValueError, OSError):  # Windows has no `sysconf`.
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min((limit for limit in limits if limit), default=0)


def container_limits(root: Path = Path("/"), own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """The bytes that the control groups of this process allow, its own and those above it: Linux, both versions of cgroups."""
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, name = line.split(":", 2)
        if controllers not in ("", "memory") and "memory" not in controllers.split(","):
            continue
        top = root / "sys/fs/cgroup" / ("memory" if controllers else "")
        file = "memory.limit_in_bytes" if controllers else "memory.max"
        group = top / name.lstrip("/")
        # In a container the group is mounted at the top, under whatever name the machine has for it.
        for folder in {top, *(each for each in (group, *group.parents) if each.is_relative_to(top))}:
            try:
                text = (folder / file).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                yield int(text)


def describe_limit(error: Exception) -> tuple[str, int] | None:
    """What oneDNN says where memory is limited and has run out; elsewhere it may mean something else."""
    if address_limit() is None or "could not create a primitive" not in str(error):
        return None
    return "not enough memory; raise the limit: ulimit -v unlimited", 1


def check_memory_limit(threads: int = 0) -> None:
    """Refuse to start where the libraries cannot be loaded: too little address space ends in aborts that nobody can catch."""
    limit, needed = address_limit(), BASE_MEMORY + THREAD_MEMORY * max(threads, os.cpu_count() or 1)
    if limit is not None and limit < needed:
        raise UndividedError(
            f"this process may use {limit >> 20:,} MiB of address space (ulimit -v), and needs at least {needed >> 20:,}; "
            "raise the limit: ulimit -v unlimited"
        )
