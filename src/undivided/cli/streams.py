"""Files and streams of the verbs: lines in, results out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from undivided.core.errors import InputError
from undivided.core.files import check_replaceable, open_atomic
from undivided.data.text_files import is_compressed


def keep_apart(output: str | None, *inputs: str | None) -> None:
    """Refuse an output that would replace an input, or that cannot be a file."""
    if output and output != "-":
        check_replaceable(Path(output))
    if output and output != "-" and Path(output).is_dir():
        raise InputError(f"{output}: is a folder; name a file with --output")
    if output and output != "-" and Path(output).exists():
        for name in inputs:
            if name and name != "-" and Path(name).exists() and Path(output).samefile(name):
                raise InputError(f"{output}: it is an input, so it cannot be written to; choose another --output")


@contextmanager
def open_output(name: str) -> Iterator[TextIO]:
    """Stdout for `-`, or a file that appears only when it is complete."""
    if name == "-":
        sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")  # type: ignore[union-attr]
        yield sys.stdout
        return
    if not Path(name).parent.is_dir():
        raise InputError(f"{Path(name).parent}: no such directory")
    with open_atomic(Path(name)) as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8", newline="\n")
        yield text
        text.flush()
        text.detach()


def count_lines(name: str) -> int | None:
    """The number of lines of an uncompressed file, for the progress bar; else None."""
    path = Path(name)
    if name == "-" or is_compressed(name) or not path.is_file():
        return None
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def input_lines(name: str, encoding: str = "") -> Iterator[bytes]:
    """The lines of a file or of stdin, as UTF-8."""
    from undivided.data.text_files import raw_lines, utf8_lines

    if name != "-":
        yield from raw_lines(name, encoding)
        return
    # Not through `sys.stdin`: Python aborts at exit if a thread still waits there.
    with open(0, "rb", closefd=False) as stream:
        yield from utf8_lines(stream, encoding)


def input_text(name: str) -> Iterator[str]:
    """The lines of a file or of stdin as text; an error names the line."""
    from undivided.data.text_files import decode_lines

    return decode_lines(input_lines(name), "stdin" if name == "-" else name)
