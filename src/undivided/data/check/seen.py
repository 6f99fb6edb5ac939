"""What is kept of every pair, on disk: the bits of its rules, and two hashes that find duplicates."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np

from undivided.data.check.block import Block, Numbers, mix
from undivided.data.check.rules import BITS

SORTED_AT_ONCE = 1 << 20
"""Hashes that are sorted in memory; more are sorted in parts."""
_RECORD = np.dtype([("exact", np.uint64), ("near", np.uint64)])


class PairStore:
    """Bits and hashes of all pairs of a corpus, in two temporary files without a name."""

    def __init__(self) -> None:
        self.count = 0
        self._open = ExitStack()
        files = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115  (closed by `__exit__`)
        self._bits, self._hashes = map(self._open.enter_context, files)

    def add(self, bits: Numbers, source: Block, target: Block) -> None:
        """The next pairs."""
        records = np.zeros(len(source), _RECORD)
        records["exact"] = exact_hashes(source, target)
        near = mix(source.line_hash) ^ target.line_hash
        has_words = (source.word_count >= 2) & (target.word_count >= 1)
        records["near"] = np.where(has_words, near, records["exact"])
        self._hashes.write(records.tobytes())
        self._bits.write(bits.astype(np.uint32).tobytes())
        self.count += len(source)

    def __enter__(self) -> PairStore:
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def blocks(self, size: int = 1 << 16) -> Iterator[Numbers]:
        """The bits of all pairs, in order."""
        self._bits.seek(0)
        while data := self._bits.read(4 * size):
            yield np.frombuffer(data, np.uint32)

    def mark_lines(self, start: int, end: int, name: str) -> None:
        """Add a rule to the pairs from `start` to before `end`, from 0."""
        for place in range(start, end, 1 << 16):
            self._bits.seek(4 * place)
            found = np.frombuffer(self._bits.read(4 * min(1 << 16, end - place)), np.uint32) | np.uint32(BITS[name])
            self._bits.seek(4 * place)
            self._bits.write(found.astype(np.uint32).tobytes())

    def mark_duplicates(self) -> None:
        """Add `duplicate` and `near-duplicate` to all but the first of equal pairs."""
        self._hashes.flush()
        self._bits.flush()
        if not self.count:
            return
        parts = -(-self.count // SORTED_AT_ONCE)
        bits = np.memmap(self._bits, np.uint32, "r+", shape=(self.count,))
        for part in range(parts):
            exact = self._later("exact", part, parts)
            bits[exact] |= np.uint32(BITS["duplicate"])
            near = self._later("near", part, parts)
            bits[near] |= np.where(bits[near] & np.uint32(BITS["duplicate"]), 0, BITS["near-duplicate"]).astype(np.uint32)
        bits.flush()
        # What is an exact duplicate in a later part is no near one.
        both = np.uint32(BITS["duplicate"] | BITS["near-duplicate"])
        for place in range(0, self.count, 1 << 20):
            part_bits = bits[place : place + (1 << 20)]
            part_bits[(part_bits & both) == both] &= ~np.uint32(BITS["near-duplicate"])
        bits.flush()
        del bits

    def _later(self, kind: str, part: int, parts: int) -> Numbers:
        """The lines whose hash has occurred before, of those hashes that belong to a part."""
        hashes, lines = [], []
        self._hashes.seek(0)
        place = 0
        while data := self._hashes.read(_RECORD.itemsize * (1 << 18)):
            found = np.frombuffer(data, _RECORD)[kind]
            here = np.flatnonzero(found % np.uint64(parts) == part) if parts > 1 else np.arange(len(found))
            hashes.append(found[here])
            lines.append(here + place)
            place += len(found)
        values, numbers = np.concatenate(hashes), np.concatenate(lines)
        order = np.argsort(values, kind="stable")
        repeated = np.flatnonzero(values[order][1:] == values[order][:-1]) + 1
        return numbers[order][repeated]


def exact_hashes(source: Block, target: Block) -> Numbers:
    """A hash of each pair as it is. Python's hash of text differs from process to process, so nobody can prepare a collision."""
    return np.fromiter(map(hash, zip(source.lines, target.lines, strict=True)), np.int64, len(source)).view(np.uint64)


class HeldOut:
    """The texts of --valid and --test, by hashes of their words."""

    def __init__(self) -> None:
        self._sides: tuple[list[Numbers], list[Numbers]] = ([], [])
        self._sorted: tuple[Numbers, Numbers] | None = None

    def add(self, source: Block, target: Block) -> None:
        """More pairs."""
        for known, block in zip(self._sides, (source, target), strict=True):
            known.append(_text_hashes(block))
        self._sorted = None

    def find(self, source: Block, target: Block) -> Numbers:
        """Which pairs have a side that is held out."""
        if not self._sides[0]:
            return np.zeros(len(source), bool)
        if self._sorted is None:
            ours, theirs = (np.unique(np.concatenate(known)) for known in self._sides)
            self._sorted = ours, theirs
        return np.isin(_text_hashes(source), self._sorted[0]) | np.isin(_text_hashes(target), self._sorted[1])


def _text_hashes(block: Block) -> Numbers:
    """Of lines with three words or more, of the words; of shorter ones, of the text as it is."""
    as_it_is = np.fromiter(map(hash, block.lines), np.int64, len(block)).view(np.uint64)
    return np.where(block.word_count >= 3, block.line_hash, as_it_is)
