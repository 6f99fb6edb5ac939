"""Files → pairs of text, or text alone. What is wrong with a line is counted and reported, never dropped in silence. [paper 5.1]"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from undivided.config import CorpusFiles, DataConfig
from undivided.core.console import plural
from undivided.core.errors import InputError
from undivided.core.files import sha256_of


class Pair(NamedTuple):
    """One line of a parallel corpus."""

    line: int
    source: str
    target: str


FAULTS = {
    "not_utf8": "not valid UTF-8",
    "nul": "holds a NUL character",
    "columns": "not exactly two tab-separated columns",
    "empty": "empty on one side or both",
    "too_long": "longer than data.max_chars",  # or than MAX_LINE_BYTES
    "equal": "source equal to target",
}
KEPT = {"equal"}
"""Faults that are reported only: names and numbers rightly stay as they are."""


@dataclass
class CorpusReport:
    """What was found in one corpus: lines read and, for each fault, how many and the first line numbers."""

    name: str
    lines: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[int]] = field(default_factory=dict)

    def add(self, fault: str, line: int) -> None:
        """Count one faulty line."""
        self.counts[fault] = self.counts.get(fault, 0) + 1
        if self.counts[fault] <= 5:
            self.first.setdefault(fault, []).append(line)

    @property
    def dropped(self) -> int:
        """Lines that training does not see."""
        return sum(count for fault, count in self.counts.items() if fault not in KEPT)

    @property
    def kept(self) -> int:
        """Lines that training sees."""
        return self.lines - self.dropped

    def summary(self) -> str:
        """The report of one corpus, a line for each fault."""
        rows = [f"{self.name}: {plural(self.lines, 'line')} read, {self.kept:,} kept, {self.dropped:,} dropped"]
        for fault, count in self.counts.items():
            where = ", ".join(map(str, self.first[fault])) + (", …" if count > len(self.first[fault]) else "")
            fate = "kept" if fault in KEPT else "dropped"
            rows.append(f"  {fate}: {plural(count, 'line')} {FAULTS[fault]} (line {where})")
        return "\n".join(rows)


def open_bytes(path: str | Path) -> BinaryIO:
    """Open a file for reading, through gzip, xz or zstd where its name says so."""
    path = Path(path)
    try:
        if path.is_dir():
            raise InputError(f"{path}: is a directory, not a file of text")
        if path.suffix == ".gz":
            import gzip

            return cast(BinaryIO, gzip.open(path, "rb"))
        if path.suffix == ".xz":
            return cast(BinaryIO, io.BufferedReader(_Xz(path.open("rb")), 1 << 16))
        if path.suffix == ".zst":
            return cast(BinaryIO, zstd_module().open(path, "rb"))
        return path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None


class _Xz(io.RawIOBase):
    """An xz file, read within bounds: Python's own reader takes as much memory as the file asks for, up to 4 GiB."""

    MEMORY = 256 << 20
    """`xz -9` needs 65 MiB."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.part = stream, self._next_part()

    def _next_part(self) -> Any:
        import lzma

        return lzma.LZMADecompressor(memlimit=self.MEMORY)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """The next bytes; a file may have several parts, one after the other, with zeros between."""
        while True:
            given = b""
            if self.part.eof:
                given = self.part.unused_data.lstrip(b"\0") or self.stream.read(1 << 16).lstrip(b"\0")
                if not given:
                    return 0
                self.part = self._next_part()
            elif self.part.needs_input and not (given := self.stream.read(1 << 16)):
                raise EOFError("it ends too early")
            if content := self.part.decompress(given, max_length=len(buffer)):
                buffer[: len(content)] = content
                return len(content)

    def close(self) -> None:
        self.stream.close()
        super().close()


MAX_LINE_BYTES = 4 << 20
"""Bytes of a line that are held in memory. A longer one comes cut, a byte longer than this, and is never taken for whole."""


BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def split_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines of a stream, cut at \\n only, without their ends."""
    while line := stream.readline(MAX_LINE_BYTES + 1):
        if line.endswith(b"\n") or len(line) <= MAX_LINE_BYTES:
            yield line.removesuffix(b"\n").removesuffix(b"\r")
            continue
        yield line
        while (rest := stream.readline(1 << 16)) and not rest.endswith(b"\n"):
            pass


def raw_lines(path: str | Path) -> Iterator[bytes]:
    """The lines of a file, without their ends and without a byte-order mark."""
    number = 0
    with open_bytes(path) as stream:
        try:
            for line in strip_bom(split_lines(stream)):
                number += 1
                yield line
        except _unpacking_errors() as error:
            raise InputError(f"{path}: damaged after line {number}: {error}") from None


def read_lines(path: str | Path) -> list[str]:
    """The lines of a text file, or a clear error that names the line."""
    lines = []
    for number, line in enumerate(raw_lines(path), 1):
        if len(line) > MAX_LINE_BYTES:
            raise InputError(f"{path}, line {number}: longer than {MAX_LINE_BYTES:,} bytes")
        try:
            lines.append(line.decode("utf-8"))
        except UnicodeDecodeError:
            raise InputError(f"{path}, line {number}: not valid UTF-8") from None
    return lines


def strip_bom(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without the mark that some programs put before UTF-8 text."""
    return (line.removeprefix(BYTE_ORDER_MARK) if number == 0 else line for number, line in enumerate(lines))


def _unpacking_errors() -> tuple[type[Exception], ...]:
    """What the decompressors raise on a damaged file."""
    import lzma
    import zlib

    return (EOFError, OSError, zlib.error, lzma.LZMAError, zstd_module().ZstdError)


def zstd_module() -> Any:
    """Python's zstd module, or before Python 3.14 its backport."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd
    return zstd


def raw_pairs(files: CorpusFiles) -> Iterator[tuple[bytes, bytes | None]]:
    """The raw lines of both sides; a target of None marks a TSV line without exactly two columns."""
    if not files.target:
        for line in raw_lines(files.source):
            columns = line.split(b"\t") if len(line) <= MAX_LINE_BYTES else [line, b""]
            yield (columns[0], columns[1]) if len(columns) == 2 else (line, None)
        return
    lines = 0
    for source, target in zip_longest(raw_lines(files.source), raw_lines(files.target)):
        if source is None or target is None:
            longer, shorter = (files.target, files.source) if source is None else (files.source, files.target)
            total = sum(1 for _ in raw_lines(longer))
            raise InputError(
                f"{shorter} ends after {plural(lines, 'line')}, but {longer} has {total:,}: "
                "line n of one belongs to line n of the other; find where they part and mend it"
            )
        lines += 1
        yield source, target


def read_pairs(files: CorpusFiles, config: DataConfig, findings: CorpusReport) -> Iterator[Pair]:
    """The good pairs of a corpus; every fault is added to the findings."""
    for number, (raw_source, raw_target) in enumerate(raw_pairs(files), 1):
        fault, pair = _examine(number, raw_source, raw_target, config.max_chars)
        if _kept(number, fault, config, findings):
            yield pair


def read_texts(files: CorpusFiles, config: DataConfig, findings: CorpusReport) -> Iterator[str]:
    """The good lines of a file of text that has nothing beside it; every fault is added to the findings."""
    for number, raw in enumerate(raw_lines(files.source), 1):
        fault, pair = _examine(number, raw, b"-", config.max_chars)
        fault = "" if fault == "equal" else fault
        if _kept(number, fault, config, findings):
            yield pair.source


def _kept(number: int, fault: str, config: DataConfig, findings: CorpusReport) -> bool:
    """Count a line and its fault; whether it is to be learned from."""
    findings.lines = number
    if fault:
        findings.add(fault, number)
    if not fault or fault in KEPT:
        return True
    if config.on_bad_line == "error":
        raise InputError(f"{findings.name}, line {number}: {FAULTS[fault]}; mend it, or use --on-bad-line=skip")
    return False


def _examine(number: int, raw_source: bytes, raw_target: bytes | None, max_chars: int) -> tuple[str, Pair]:
    longest = max(len(raw_source), len(raw_target or b""))
    if raw_target is None or longest > MAX_LINE_BYTES:
        return ("too_long" if longest > MAX_LINE_BYTES else "columns"), Pair(number, "", "")
    try:
        pair = Pair(number, raw_source.decode("utf-8"), raw_target.decode("utf-8"))
    except UnicodeDecodeError:
        return "not_utf8", Pair(number, "", "")
    if "\0" in pair.source or "\0" in pair.target:
        return "nul", pair
    if not pair.source.strip() or not pair.target.strip():
        return "empty", pair
    if len(pair.source) > max_chars or len(pair.target) > max_chars:
        return "too_long", pair
    return ("equal" if pair.source == pair.target else ""), pair


def corpus_name(files: CorpusFiles) -> str:
    """How a corpus is called in messages."""
    return f"{files.source} | {files.target}" if files.target else files.source


def check_corpora(corpora: Iterable[CorpusFiles], config: DataConfig) -> list[CorpusReport]:
    """Read corpora once and say what is in them; an error if nothing is left to learn from."""
    report = []
    for files in corpora:
        findings = CorpusReport(corpus_name(files))
        for _ in (read_texts if files.is_unpaired else read_pairs)(files, config, findings):
            pass
        if not findings.lines:
            raise InputError(f"{findings.name}: empty, there is nothing to learn from")
        if not findings.kept:
            raise InputError(f"no line can be used.\n{findings.summary()}")
        report.append(findings)
    return report


def corpus_digests(corpora: Iterable[CorpusFiles]) -> dict[str, str]:
    """sha256 of every file of some corpora, by path."""
    return {path: sha256_of(path) for files in corpora for path in (files.source, files.target) if path}
