"""Where two files stop being line by line translations of each other: long lines should stand beside long ones.

For windows of lines the agreement of both sides (lengths, digits, how they end) is compared with that at other offsets. Where
another offset agrees much better, lines were lost or added; the line where that began is where both halves together agree best.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from undivided.data.check.block import Block, Numbers
from undivided.data.check.judge import Usual

WINDOW = 64
NEAR = 12
"""Offsets that are always tried."""
FAR = 2000
"""Offsets that are tried where no near one agrees, though it did before."""
HOLD = 8192
"""Lines that are kept to compare with."""
SEARCHES = 20
"""Long searches in a corpus."""
SURE = 0.35
"""How much better, on average of a window, another offset must agree, in logarithms."""


class Drift(NamedTuple):
    """Lines that are not beside their translation."""

    start: int
    """The first, from 1."""
    end: int
    """The line behind the last."""
    offset: int
    """How many lines further down (negative: up) in the target file the translation of a source line stands."""


class Side(NamedTuple):
    """What is compared of each line."""

    length: Numbers
    digits: Numbers
    ending: Numbers


def describe(block: Block, usual_log_length: float = 0.0) -> Side:
    """What is compared of the lines of a block."""
    last = np.zeros(len(block), np.int64)
    filled = np.flatnonzero(block.length)
    last[filled] = block.codes[(block.start + block.length - 1)[filled]]
    ending = sum(number * np.isin(last, _codes(marks)) for number, marks in enumerate(("", ".。।", "?？؟", "!！", ":：")))
    return Side(np.log(block.length + 3.0) - usual_log_length, block.digit_hash, np.asarray(ending))


def _codes(marks: str) -> list[int]:
    return [ord(mark) for mark in marks]


def agreement(source: Side, target: Side, spread: float) -> Numbers:
    """How well each line of one side fits the line of the other side beside it, as a logarithm."""
    far = np.minimum(np.abs(source.length - target.length) / spread, 4.0)
    has = (source.digits != 0).astype(int) + (target.digits != 0)
    digits = np.where(has == 0, 0.0, np.where(source.digits == target.digits, 2.0, -1.5))
    return -0.5 * far**2 * 0.5 + digits + np.where(source.ending == target.ending, 0.15, -0.6)


@dataclass
class AlignmentTracker:
    """Follows the offset between two files, block by block, with bounded memory."""

    drifts: list[Drift] = field(default_factory=list)
    offset: int = 0
    line: int = 0
    """How many lines came before those that are held."""
    _source: list[Side] = field(default_factory=list)
    _target: list[Side] = field(default_factory=list)
    _done: int = 0
    _searches: int = 0
    _usual: float = -9.0
    """The agreement of windows in which nothing changed, as a running mean."""
    _spread: float = 0.0
    _shift: float = 0.0

    def add(self, source: Block, target: Block, usual: Usual) -> None:
        """The next lines of both files."""
        self._spread, self._shift = max(0.25, usual.spread), usual.middle
        self._source.append(describe(source))
        self._target.append(describe(target, self._shift))
        if sum(len(each.length) for each in self._source) >= HOLD:
            self._advance(last=False)

    def finish(self) -> list[Drift]:
        """All drifts, when there are no more lines."""
        if self._source:
            self._advance(last=True)
        if self.drifts and self.drifts[-1].end == 0:
            self.drifts[-1] = self.drifts[-1]._replace(end=self.line + self._done + 1)
        return self.drifts

    def _advance(self, last: bool) -> None:
        """Judge all windows of the lines that are held, but for those whose neighbours are still to come."""
        source, target = _join(self._source), _join(self._target)
        count = len(source.length)
        windows = max(0, (count - (0 if last else HOLD // 4)) - self._done) // WINDOW
        if windows:
            near = self._near(source, target, self._done, windows)
            for number in range(windows):
                self._judge_window(source, target, self._done + number * WINDOW, near[:, number : number + 2].mean(axis=1))
        self._done = count if last else self._done + windows * WINDOW
        keep = max(0, self._done - HOLD // 4)
        self._source, self._target = [_cut(source, keep, count)], [_cut(target, keep, count)]
        self.line, self._done = self.line + keep, self._done - keep

    def _near(self, source: Side, target: Side, start: int, windows: int) -> Numbers:
        """The mean agreement of each window at each near offset: offsets × windows."""
        end = start + windows * WINDOW
        found = [_all_at(source, target, start, end, offset, self._spread) for offset in range(-NEAR, NEAR + 1)]
        return np.stack(found).reshape(2 * NEAR + 1, windows, WINDOW).mean(axis=2)

    def _judge_window(self, source: Side, target: Side, start: int, near: Numbers) -> None:
        """Note a change of the offset; `near` is the agreement of this window and the next at each near offset."""
        end = min(start + 2 * WINDOW, len(source.length))
        is_near = abs(self.offset) <= NEAR
        now = near[NEAR + self.offset] if is_near else _all_at(source, target, start, end, self.offset, self._spread).mean()
        best = int(near.argmax()) - NEAR
        if near[NEAR + best] - now < SURE and self._is_lost(source, target, start, end, now):
            self._searches += 1
            best = self._search_far(source, target, start, end)
            gain = _all_at(source, target, start, end, best, self._spread).mean() - now
        else:
            gain = near[NEAR + best] - now
        if best != self.offset and gain >= SURE:
            self._change(source, target, start, best)
        elif not self._is_lost(source, target, start, end, now):
            self._usual = float(now) if self._usual < -8 else 0.9 * self._usual + 0.1 * float(now)

    def _is_lost(self, source: Side, target: Side, start: int, end: int, now: float) -> bool:
        """Whether lines agree no better with what is beside them than with what is not, which is worth a long search."""
        if self._searches >= SEARCHES:
            return False
        ours, theirs = _cut(source, start, end), _cut(target, start, end)
        turned = Side(*(part[::-1] for part in theirs))
        chance = float(agreement(ours, turned, self._spread).mean())
        return now < (chance + max(self._usual, chance)) / 2

    def _search_far(self, source: Side, target: Side, start: int, end: int) -> int:
        """The offset at which lines agree best, far around."""
        offsets = [offset for offset in range(-FAR, FAR + 1) if start + offset >= 0 and end + offset <= len(target.length)]
        values = [_all_at(source, target, start, end, offset, self._spread).mean() for offset in offsets]
        return offsets[int(np.argmax(values))] if values else self.offset

    def _change(self, source: Side, target: Side, start: int, offset: int) -> None:
        """Note that the offset changes somewhere from the window before this one on."""
        first, end = max(0, start - WINDOW), min(start + 2 * WINDOW, len(source.length))
        old = _all_at(source, target, first, end, self.offset, self._spread)
        new = _all_at(source, target, first, end, offset, self._spread)
        gain = np.concatenate([[0.0], np.cumsum(old)]) + (new.sum() - np.concatenate([[0.0], np.cumsum(new)]))
        line = self.line + first + int(gain.argmax()) + 1
        if self.drifts and self.drifts[-1].end == 0:
            self.drifts[-1] = self.drifts[-1]._replace(end=line)
        if offset:
            self.drifts.append(Drift(line, 0, offset))
        self.offset = offset


def _join(sides: list[Side]) -> Side:
    return Side(*(np.concatenate(parts) for parts in zip(*sides, strict=True)))


def _cut(side: Side, start: int, end: int) -> Side:
    return Side(*(part[start:end] for part in side))


def _all_at(source: Side, target: Side, start: int, end: int, offset: int, spread: float) -> Numbers:
    """The agreement of lines of the source with the lines at an offset; what has none there agrees badly."""
    found = np.full(end - start, -1.0)
    low, high = max(start, -offset), min(end, len(target.length) - offset)
    if low < high:
        found[low - start : high - start] = agreement(_cut(source, low, high), _cut(target, low + offset, high + offset), spread)
    return found
