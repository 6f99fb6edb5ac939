"""Errors for people: one clear message, an exit code, no traceback."""

from __future__ import annotations

import errno
import re
import sys

NO_MEMORY = re.compile(r"can't start new thread|[Cc]an(?:'t|not) allocate memory|bad_alloc|failed to map segment")
"""What Python, the loader of libraries and PyTorch say where there is too little memory."""


class UndividedError(Exception):
    """A failure described in one clear message, without a traceback. Exit code 1."""

    exit_code = 1


class InputError(UndividedError):
    """Wrong usage or input: says which file and line, and what to do. Exit code 2."""

    exit_code = 2


class IncompatibleSettings(InputError):
    """Incompatible settings, found before step 1; the run folder is left free."""


def describe_error(error: BaseException) -> tuple[str, int] | None:
    """The message for a person and the exit code; None for an error that nobody foresaw."""
    if isinstance(error, UndividedError):
        return str(error), error.exit_code
    if isinstance(error, OSError):
        if error.errno == errno.EBADF and not error.filename:
            return "stdin or stdout is closed", 1
        where = f"{error.filename}: " if error.filename else ""
        kind = "the disk is full: " if error.errno == errno.ENOSPC else ""
        return f"{where}{kind}{error.strerror or error}", 1
    if isinstance(error, UnicodeEncodeError) and error.encoding == sys.getfilesystemencoding():
        return f"{error.object!r} cannot be a file name in this locale; set LC_ALL=C.UTF-8 or PYTHONUTF8=1", 2
    if isinstance(error, MemoryError) or NO_MEMORY.search(str(error)):
        return "not enough memory; free some, raise `ulimit -v` if it is set, or use fewer --threads", 1
    return None
