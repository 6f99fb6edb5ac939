"""Text files, plain or compressed, as lines of bytes with bounded memory."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from undivided.core.errors import InputError
from undivided.data.encodings import UTF_16_MARKS, is_wide

COMPRESSED = (".gz", ".xz", ".zst")
"""Endings of compressed files that are read as they are."""


def is_compressed(path: str | Path) -> bool:
    """Whether a file is compressed, by its name."""
    return Path(path).suffix in COMPRESSED


def open_bytes(path: str | Path) -> BinaryIO:
    """Open a file for reading; `COMPRESSED` files are decompressed."""
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a directory, not a text file")
        if path.suffix == ".gz":
            import gzip

            if path.is_file() and not path.stat().st_size:
                raise InputError(f"{path}: damaged: an empty file holds no gzip archive")
            return cast(BinaryIO, gzip.open(path, "rb"))
        if path.suffix == ".xz":
            return cast(BinaryIO, io.BufferedReader(_XzReader(path.open("rb")), BLOCK))
        if path.suffix == ".zst":
            return cast(BinaryIO, zstd_module().open(path, "rb"))
        return path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


BLOCK = 1 << 16
"""Bytes that are read at a time."""


class _XzReader(io.RawIOBase):
    """An xz file, read with bounded memory: Python's own reader takes as much as the file asks for, up to 4 GiB."""

    MEMORY = 256 << 20
    """`xz -9` needs 65 MiB."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.decoder = stream, self._new_decoder()

    def _new_decoder(self) -> Any:
        import lzma

        return lzma.LZMADecompressor(memlimit=self.MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; a file may be several xz streams in a row, with zeros between them."""
        while True:
            packed = b""
            if self.decoder.eof:
                if not (packed := self._after_padding()):
                    return 0
                self.decoder = self._new_decoder()
            elif self.decoder.needs_input and not (packed := self.stream.read(BLOCK)):
                raise EOFError("it ends too early")
            if content := self.decoder.decompress(packed, max_length=len(buffer)):
                buffer[: len(content)] = content
                return len(content)

    def _after_padding(self) -> bytes:
        """What comes after the padding behind a stream: of any length, but as the format says a multiple of four zeros."""
        zeros, packed = 0, self.decoder.unused_data or self.stream.read(BLOCK)
        while packed and not (rest := packed.lstrip(b"\0")):
            zeros, packed = zeros + len(packed), self.stream.read(BLOCK)
        zeros += len(packed) - len(rest) if packed else 0
        if zeros % 4:
            raise EOFError(f"{zeros} zeros after a stream, which is no multiple of four: something is missing")
        return rest if packed else b""

    def close(self) -> None:
        self.stream.close()
        super().close()


MAX_LINE_BYTES = 4 << 20
"""Most bytes of a line. A longer line is cut one byte beyond this, so that readers can tell."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream, split at \\n only, without line ends."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if line.endswith(b"\n") or len(line) <= MAX_LINE_BYTES:
            yield line.removesuffix(b"\n").removesuffix(b"\r")
            continue
        yield line
        while (rest := stream.readline(1 << 16)) and not rest.endswith(b"\n"):
            pass


def raw_lines(path: str | Path, encoding: str = "") -> Iterator[bytes]:
    """The lines of a file as UTF-8, without line ends and byte-order mark; what is not valid in `encoding` is no UTF-8 either.

    Without `encoding` a file is UTF-8. One that begins with a byte-order mark is what that says.
    """
    number = 0
    with open_bytes(path) as stream:
        try:
            for line in utf8_lines(stream, encoding):
                number += 1
                yield line
        except UnicodeError as error:
            raise InputError(f"{path}: not valid {encoding or 'UTF-16'} after line {number:,}: {error}") from None
        except decompression_errors() as error:
            raise InputError(f"{path}: damaged after line {number}: {error}") from None


def utf8_lines(stream: BinaryIO, encoding: str = "") -> Iterator[bytes]:
    """The lines of a stream as UTF-8; see `raw_lines`."""
    head = bytes(stream.peek(3)[:3])  # type: ignore[attr-defined]
    # A file that says itself what it is, is that.
    encoding = "" if head == BYTE_ORDER_MARK else UTF_16_MARKS.get(head[:2], encoding)
    if not encoding:
        yield from strip_bom(split_lines(stream))
    elif is_wide(encoding):
        yield from strip_bom(_decoded_lines(stream, encoding))
    else:
        yield from strip_bom(_recode(line, encoding) for line in split_lines(stream))


def _decoded_lines(stream: BinaryIO, encoding: str) -> Iterator[bytes]:
    text = io.TextIOWrapper(stream, encoding=encoding, newline="\n")
    while line := text.readline(MAX_LINE_BYTES + 1):
        yield line.removesuffix("\n").removesuffix("\r").encode("utf-8", "surrogatepass")
        while not line.endswith("\n") and (line := text.readline(1 << 16)):
            pass
    text.detach()


def _recode(line: bytes, encoding: str) -> bytes:
    try:
        return line.decode(encoding).encode("utf-8")
    except UnicodeError:
        return NOT_UTF8 + line


NOT_UTF8 = b"\xff"
"""A byte that no UTF-8 has."""


MAX_HELD_BYTES = 512 << 20
"""Most memory of the lines of a file that is held as a whole; a few kilobytes that are compressed can be far more."""

LINE_COST = 64
"""Bytes that a line takes beside its text."""


def read_lines(path: str | Path, encoding: str = "") -> list[str]:
    """The lines of a text file, which must fit into memory; an error names the bad line."""
    lines, held = [], 0
    for number, line in enumerate(raw_lines(path, encoding), 1):
        held += len(line) + LINE_COST
        if held > MAX_HELD_BYTES:
            raise too_much_text(path, number)
        if len(line) > MAX_LINE_BYTES:
            raise line_too_long(path, number)
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise InputError(f"{path}, line {number}: not valid UTF-8") from None
    return lines


def decode_lines(lines: Iterable[bytes], name: str, warn: Callable[[str], None] | None = None, first: int = 0) -> Iterator[str]:
    """Lines as text, behind `first` lines of the same file. Over-long lines are refused, and files that are no text.

    NUL characters and bytes that are not UTF-8 are refused too or, where there is somebody to `warn`, read as \\ufffd, so that no
    line is lost.
    """
    for number, line in enumerate(lines, first + 1):
        if b"\0" in line and (warn is None or (number == 1 and is_no_text(line))):
            raise nul_character(name, number)
        if len(line) > MAX_LINE_BYTES:
            raise line_too_long(name, number)
        try:
            text = line.decode("utf-8")
            fault = "a NUL character" if "\0" in text else ""
        except UnicodeDecodeError:
            if warn is None:
                raise InputError(f"{name}, line {number:,}: not valid UTF-8") from None
            text, fault = line.decode("utf-8", errors="replace"), "not valid UTF-8"
        if fault and warn is not None:
            warn(f"line {number}: {fault}, the broken parts are read as \ufffd")
        yield text.replace("\0", "\ufffd") if fault else text


def is_no_text(line: bytes) -> bool:
    """Whether the first line of a file says that it is no UTF-8 text: it is full of NUL characters, as UTF-16 is."""
    return 4 * line.count(b"\0") > len(line) > 1


def too_much_text(path: str | Path, number: int) -> InputError:
    """The error for a text that is held in memory and has more than that many lines of its kind."""
    return InputError(f"{path}: too large to be held in memory: more than {MAX_HELD_BYTES:,} bytes up to line {number:,}; split it")


def nul_character(name: str | Path, number: int) -> InputError:
    """The error for a line with a NUL character."""
    return InputError(
        f"{name}, line {number:,}: holds a NUL character; is this a text file? (UTF-16 is read with --encoding utf-16)"
    )


def line_too_long(name: str | Path, number: int) -> InputError:
    """The error for a line that is not read to its end."""
    return InputError(f"{name}, line {number:,}: longer than {MAX_LINE_BYTES:,} bytes; is this a text file? Break the line up")


def strip_bom(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without the byte-order mark that some programs put before UTF-8 text."""
    return (line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line for number, line in enumerate(lines))


def decompression_errors() -> tuple[type[Exception], ...]:
    """What the decompressors raise on a damaged file."""
    import lzma
    import zlib

    return (EOFError, OSError, zlib.error, lzma.LZMAError, zstd_module().ZstdError)


def zstd_module() -> Any:
    """Python's zstd module, or its backport before Python 3.14."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd
