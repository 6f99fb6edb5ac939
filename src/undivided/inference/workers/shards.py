"""A shard is a byte range of a file to translate. The same file has the same shards, whoever translates them."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from undivided.config import CHUNK_LINES
from undivided.config.settings import in_words
from undivided.core.console import plural
from undivided.core.errors import InputError
from undivided.core.files import PART, read_json, sha256_of, write_atomic
from undivided.data.text_files import BYTE_ORDER_MARK, MAX_LINE_BYTES, is_no_text, line_too_long, nul_character, split_lines
from undivided.inference.search_settings import SearchChanges

MAX_SHARDS = 10_000
"""A larger file has larger shards, so that neither the plan nor the folder of shards grows with it."""

BLOCK = 1 << 20


@dataclass(frozen=True)
class Shard:
    """Consecutive lines: a byte range of the text, and of the file of prefixes if there is one."""

    number: int
    first: int
    """The number of lines before it."""
    lines: int
    ranges: list[list[int]]

    def __str__(self) -> str:
        start, end = self.ranges[0]
        return f"lines {self.first + 1:,}–{self.first + self.lines:,} (bytes {start:,}–{end:,})"

    def path(self, folder: Path) -> Path:
        """The file of its translations."""
        return folder / f"shard-{self.number:06d}.txt"

    def marker(self, folder: Path) -> Path:
        """The file that says that they are complete: written last, with their sha256."""
        return folder / f"shard-{self.number:06d}.json"


@dataclass(frozen=True)
class Job:
    """What a worker must know beside the shard; everything can be written as JSON."""

    model: str
    model_sha256: str
    """Of the manifest: a model that changes while it is in use is noticed."""
    files: list[str]
    stamps: list[list[int]]
    """Size and time of the last change of each file."""
    folder: str
    search: SearchChanges
    scores: bool
    device: str
    threads: int
    engine: str = "torch"
    trust: bool = False

    def lines(self, shard: Shard, which: int) -> Iterator[bytes]:
        """The lines of a shard in one of the files; an error if that file has changed since the plan was made."""
        path, (start, _) = self.files[which], shard.ranges[which]
        self._check_stamp(which)
        with Path(path).open("rb") as stream:
            stream.seek(start)
            for number, line in enumerate(islice(split_lines(stream), shard.lines)):
                yield line.removeprefix(BYTE_ORDER_MARK) if start == number == 0 else line
        self._check_stamp(which)

    def _check_stamp(self, which: int) -> None:
        if file_stamp(self.files[which]) != self.stamps[which]:
            raise InputError(
                f"{self.files[which]}: changed while it was being translated; run the command again and leave the file as it is"
            )


def file_stamp(path: str) -> list[int]:
    """Size and time of the last change of a file."""
    try:
        facts = Path(path).stat()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    return [facts.st_size, facts.st_mtime_ns]


class Scan(NamedTuple):
    """What one pass over a file finds."""

    sha256: str
    stamp: list[int]
    lines: int
    starts: array[int]
    """The offset of each chunk of lines, and the end of the last one."""


def scan_file(path: str, text: bool = True) -> Scan:
    """Read a file once, in constant memory: its digest and the offsets of its chunks. Text that cannot be translated is refused."""
    before, sha256 = file_stamp(path), hashlib.sha256()
    lines = offset = line_start = 0
    starts = array("q", [0])
    with Path(path).open("rb") as stream:
        while block := stream.read(BLOCK):
            sha256.update(block)
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n"))
            if text:
                _check_text(path, block, ends, lines, offset - line_start)
            for place in range((-(lines + 1)) % CHUNK_LINES, len(ends), CHUNK_LINES):
                starts.append(offset + int(ends[place]) + 1)
            lines, offset = lines + len(ends), offset + len(block)
            line_start = offset - len(block) + int(ends[-1]) + 1 if len(ends) else line_start
    if offset > line_start:
        lines += 1
    if starts[-1] != offset:
        starts.append(offset)
    if file_stamp(path) != before or offset != before[0]:
        raise InputError(f"{path}: changed while it was being read; run the command again")
    return Scan(sha256.hexdigest(), before, lines, starts)


def _check_text(path: str, block: bytes, ends: np.ndarray, lines: int, carried: int) -> None:
    """Refuse what is no text, and over-long lines; `carried` bytes of the first line came in the block before."""
    if not lines and not carried and is_no_text(block[: int(ends[0])] if len(ends) else block):
        raise nul_character(path, 1)
    edges = np.concatenate([[-1 - carried], ends, [len(block)]])
    too_long = np.flatnonzero(np.diff(edges) - 1 > MAX_LINE_BYTES)
    if len(too_long):
        raise line_too_long(path, lines + 1 + int(too_long[0]))


def cut_shards(scans: list[Scan]) -> list[Shard]:
    """The shards of a text (and of its prefixes): whole chunks, so that every line shares its batch with the same others."""
    text = scans[0]
    chunks = len(text.starts) - 1
    step = max(1, -(-chunks // MAX_SHARDS))
    shards = []
    for number, chunk in enumerate(range(0, chunks, step)):
        first = chunk * CHUNK_LINES
        last = min(chunk + step, chunks)
        ranges = [[scan.starts[chunk], scan.starts[min(last, len(scan.starts) - 1)]] for scan in scans]
        shards.append(Shard(number, first, min(last * CHUNK_LINES, text.lines) - first, ranges))
    return shards


class ShardPlan:
    """The shards of a job and the folder that records which are done."""

    def __init__(self, job: Job, scans: list[Scan], settings: dict[str, Any]) -> None:
        self.job, self.folder = job, Path(job.folder)
        self.shards, self.lines = cut_shards(scans), scans[0].lines
        names = ("text", "prefixes")
        self.settings = settings | {f"sha256 of the {name}": each.sha256 for name, each in zip(names, scans, strict=False)}

    def start(self) -> None:
        """Write the plan into the folder, or check that the one there is the same."""
        path = self.folder / "plan.json"
        for leftover in [*self.folder.glob(f"*.{PART}"), *self.folder.glob("*.building")]:
            leftover.unlink()
        if not path.exists():
            write_atomic(path, json.dumps(self.settings, indent=2).encode())
            return
        before = read_json(path)
        known = before.keys() | self.settings.keys()
        changed = [name for name in sorted(known) if before.get(name) != self.settings.get(name)]
        if changed:
            changes = [f"{name} was {in_words(before.get(name))}, now {in_words(self.settings.get(name))}" for name in changed]
            raise InputError(
                f"{self.folder} holds the shards of another translation; resume that one, or remove the folder to start over:"
                "\n  - " + "\n  - ".join(changes)
            )

    def read_marker(self, shard: Shard) -> dict[str, Any] | None:
        """What the marker of a finished shard says; None where the shard is unfinished or damaged."""
        marker = shard.marker(self.folder)
        if not marker.exists():
            return None
        try:
            facts = read_json(marker)
            whole = sha256_of(shard.path(self.folder)) == facts["sha256"] and facts["lines"] == shard.lines
        except (InputError, KeyError):
            whole = False
        return facts if whole else None


def as_json(item: Job | Shard) -> dict[str, Any]:
    """A job or a shard for another process."""
    return dataclasses.asdict(item)


def shards_done(done: int, total: int) -> str:
    """`3 of 10 shards are done`."""
    return f"{done:,} of {plural(total, 'shard')} {'is' if done == 1 else 'are'} done"
