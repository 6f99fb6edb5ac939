"""Run the command `undivided`: in a fork of this process, which has imported everything already, or as a process of its own.

A fork runs `main`, waits for threads and calls exit functions as Python does; with `to_the_end` it also takes the interpreter
down (`Py_Exit`), so that native threads which outlive it show: that costs three times as much. What happens before `main`, while
Python starts and libraries are loaded, only a process of its own shows.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import os
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

UNDIVIDED = [sys.executable, "-P", "-m", "undivided"]
PR_SET_PDEATHSIG = 1
"""Linux: which signal a process gets when its parent ends."""
CLOSED = -1
"""A stream that the caller has closed."""


class Patience:
    """By how much all time limits are longer on this machine, which may be slow or busy; set before trials start."""

    factor = 1.0


def patient(seconds: float) -> float:
    """A time limit on this machine."""
    return seconds * Patience.factor


@dataclass
class Ended:
    """How a command ended."""

    command: str
    code: int
    """Negative for a signal."""
    out: bytes = b""
    err: str = ""
    seconds: float = 0.0
    peak: int = 0
    """Bytes of memory at most, what was inherited included."""
    hung: bool = False
    sent: list[int] = field(default_factory=list)
    """Signals that the trial itself sent."""
    silent: bool = False
    """Whether its stderr went nowhere."""

    @property
    def lines(self) -> list[bytes]:
        return self.out.split(b"\n")[:-1]


class Running:
    """A command at work in a fork, or in a process of its own."""

    def __init__(self, pid: int, command: str, out: Path | None, err: Path | None) -> None:
        self.pid, self.command, self.out, self.err = pid, command, out, err
        self.sent: list[int] = []
        self.began = time.monotonic()

    def send(self, number: int) -> None:
        self.sent.append(number)
        os.kill(self.pid, number)

    def wait(self, timeout: float) -> Ended:
        """Wait for its end; after `timeout` it has hung and is killed with all it started."""
        status, usage, hung = self._reap(timeout), None, False
        if status is None:
            hung = True
            os.killpg(self.pid, signal.SIGKILL)
            status = self._reap(30)
        number, usage = status or (9, None)
        return Ended(
            self.command,
            os.waitstatus_to_exitcode(number),
            self.out.read_bytes() if self.out else b"",
            self.err.read_text("utf-8", "replace") if self.err else "",
            time.monotonic() - self.began,
            usage.ru_maxrss * 1024 if usage else 0,
            hung,
            self.sent,
            self.err is None,
        )

    def _reap(self, timeout: float) -> tuple[int, Any] | None:
        deadline = time.monotonic() + patient(timeout)
        while time.monotonic() < deadline:
            pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            if pid:
                return status, usage
            time.sleep(0.004)
        return None


def start_forked(
    arguments: Sequence[str | bytes | Path],
    folder: Path,
    *,
    stdin: int | bytes | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str | None] | None = None,
    before: Callable[[], None] | None = None,
    to_the_end: bool = False,
) -> Running:
    """Start the command in a fork. Streams are descriptors, `CLOSED`, bytes to read, or None: nothing to read, files to write to.

    `before` is called in the fork, to set limits, to change the user or to break something.
    """
    number = len(list(folder.glob("stdout-*")))
    out = None if stdout is not None else folder / f"stdout-{number}"
    err = None if stderr is not None else folder / f"stderr-{number}"
    text = folder / f"stdin-{number}"
    text.write_bytes(stdin if isinstance(stdin, bytes) else b"")
    for name in ("stdout", "stderr"):  # It may be killed before it opens them.
        (folder / f"{name}-{number}").touch()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if not pid:
        streams = (
            stdin if isinstance(stdin, int) else os.open(text, os.O_RDONLY),
            stdout if out is None else os.open(out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666),
            stderr if err is None else os.open(err, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666),
        )
        _become(arguments, streams, cwd, env or {}, before, to_the_end)
    return Running(pid, " ".join(os.fsdecode(each) for each in arguments), out, err)


def run_forked(arguments: Sequence[str | bytes | Path], folder: Path, timeout: float = 60, **how: Any) -> Ended:
    """Run the command in a fork to its end."""
    return start_forked(arguments, folder, **how).wait(timeout)


def _become(
    arguments: Sequence[str | bytes | Path],
    streams: tuple[int | None, ...],
    cwd: Path | None,
    env: Mapping[str, str | None],
    before: Callable[[], None] | None,
    to_the_end: bool,
) -> NoReturn:
    """In a fork: be the command, and end as Python ends."""
    code = 120
    try:
        os.setsid()
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        _take_streams(streams)
        for name, value in env.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        os.chdir(cwd or os.getcwd())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if before is not None:
            before()
        sys.argv = ["undivided", *(os.fsdecode(each) for each in arguments)]
        from undivided.cli import main

        code = main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        code = 1
        if sys.stderr is not None:
            traceback.print_exc()
    if to_the_end:
        ctypes.pythonapi.Py_Exit(code)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(code)


def _take_streams(streams: tuple[int | None, ...]) -> None:
    """Put descriptors in the place of stdin, stdout and stderr; a closed one is None, as Python has it."""
    # Above 2 first: one that is put into place must not close another.
    held = [None if each in (None, CLOSED) else fcntl.fcntl(each, fcntl.F_DUPFD, 10) for each in streams]
    # The other ends of pipes and terminals are the trial's alone.
    for number in range(3, 1024):
        if number not in held:
            with suppress(OSError):
                os.close(number)
    made: list[Any] = []
    for number, handle in enumerate(held):
        if handle is None:
            os.close(number)
            made.append(None)
            continue
        os.dup2(handle, number)
        os.close(handle)
        mode = "r" if number == 0 else "w"
        made.append(open(number, mode, encoding="utf-8", errors="surrogateescape", closefd=False))  # noqa: SIM115
    sys.stdin, sys.stdout, sys.stderr = made
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = made


def run_process(
    arguments: Sequence[str | bytes | Path],
    folder: Path,
    timeout: float = 120,
    shell: str = "…",
    env: Mapping[str, str | None] | None = None,
    starter: Sequence[str] = (),
) -> Ended:
    """Run the command as a process of its own.

    `shell` is what a shell is told before and after it, such as `ulimit -v 500000; …` or `… 2>&-`; `starter` is a program that
    starts it.
    """
    before, _, after = shell.partition("…")
    command = f'{before} exec "$@" {after}'
    changes = env or {}
    full = {name: value for name, value in os.environ.items() if name not in changes}
    full |= {name: value for name, value in changes.items() if value is not None}
    began = time.monotonic()
    with subprocess.Popen(
        ["bash", "-c", command, "bash", *starter, *UNDIVIDED, *arguments],
        cwd=folder, env=full, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        hung = False
        try:
            out, err = process.communicate(timeout=patient(timeout))
        except subprocess.TimeoutExpired:
            hung = True
            os.killpg(process.pid, signal.SIGKILL)
            out, err = process.communicate()
    shown = f"{shell} undivided {' '.join(os.fsdecode(each) for each in arguments)}"
    silent = "2>&-" in shell
    return Ended(shown, process.returncode, out, err.decode("utf-8", "replace"), time.monotonic() - began, 0, hung, [], silent)


def limit_memory(more: int) -> None:
    """In a fork: so many bytes of address space beyond what it has."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + more
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
