"""Files and streams of the verbs: lines in, results out."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from undivided.core.errors import InputError
from undivided.core.files import create_file


def keep_apart(output: str | None, *inputs: str | None) -> None:
    """Refuse an output that would replace an input, or that cannot be a file."""
    if output and output != "-" and Path(output).is_dir():
        raise InputError(f"{output}: is a folder; name a file with --output")
    if output and output != "-" and Path(output).exists():
        for name in inputs:
            if name and name != "-" and Path(name).exists() and Path(output).samefile(name):
                raise InputError(f"{output}: it is an input, so it cannot be written to; choose another --output")


class Output:
    """Stdout, or a file that appears only when it is complete."""

    def __init__(self, name: str) -> None:
        self.path = None if name == "-" else Path(name)

    def __enter__(self) -> Any:
        if self.path is None:
            sys.stdout.reconfigure(encoding="utf-8", errors="strict", newline="\n")  # type: ignore[union-attr]
            return sys.stdout
        if not self.path.parent.is_dir():
            raise InputError(f"{self.path.parent}: no such directory")
        self.part = self.path.with_name(self.path.name + ".part")
        self.stream = io.TextIOWrapper(create_file(self.part), encoding="utf-8", newline="\n")
        return self.stream

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self.path is not None:
            self.stream.close()
            if kind is None:
                self.part.replace(self.path)


def count_lines(name: str) -> int | None:
    """The number of lines of an uncompressed file, for the progress bar; else None."""
    path = Path(name)
    if name == "-" or path.suffix in (".gz", ".xz", ".zst") or not path.is_file():
        return None
    with path.open("rb") as stream:
        return sum(block.count(b"\n") for block in iter(lambda: stream.read(1 << 20), b""))


def input_lines(name: str) -> Iterator[bytes]:
    """The lines of a file or of stdin, as bytes."""
    from undivided.data.corpus import raw_lines, split_lines, strip_bom

    if name != "-":
        yield from raw_lines(name)
        return
    # Not through `sys.stdin`: Python aborts at exit if a thread still waits there.
    with open(0, "rb", closefd=False) as stream:
        yield from strip_bom(split_lines(stream))


def input_text(name: str) -> Iterator[str]:
    """The lines of a file or of stdin as text; an error names the line."""
    from undivided.data.corpus import MAX_LINE_BYTES

    where = "stdin" if name == "-" else name
    for number, line in enumerate(input_lines(name), 1):
        if b"\0" in line:
            raise InputError(f"{where}, line {number:,}: holds a NUL character; is this a text file?")
        if len(line) > MAX_LINE_BYTES:
            raise InputError(f"{where}, line {number:,}: longer than {MAX_LINE_BYTES:,} bytes")
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            raise InputError(f"{where}, line {number:,}: not valid UTF-8") from None
