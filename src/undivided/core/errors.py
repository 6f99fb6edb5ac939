"""Errors for people: one clear message, an exit code, no traceback."""

from __future__ import annotations

import errno


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
        where = f"{error.filename}: " if error.filename else ""
        kind = "the disk is full: " if error.errno == errno.ENOSPC else ""
        return f"{where}{kind}{error.strerror or error}", 1
    return None
