"""Check a corpus from its first line to its last with bounded memory, and write what is left of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from undivided.core.files import open_atomic
from undivided.data.check.alignment import AlignmentTracker, Drift
from undivided.data.check.block import Block, Numbers
from undivided.data.check.corpus import PairSource, RawPair
from undivided.data.check.judge import Expected, Usual, judge
from undivided.data.check.languages import detect
from undivided.data.check.rules import BITS, RULES
from undivided.data.check.seen import HeldOut, PairStore
from undivided.data.text_files import MAX_LINE_BYTES

BLOCK_PAIRS, BLOCK_BYTES = 8192, 4 << 20
PARTS = 60
"""Parts of a corpus whose faults are counted apart, to show where they are."""
SIZES = 24
"""Steps of the picture of lengths, each a factor of √2."""


class Example(NamedTuple):
    """A pair that a rule found."""

    line: int
    source: str
    target: str
    source_lang: str = ""
    target_lang: str = ""


@dataclass
class Found:
    """What a rule found in a corpus."""

    count: int = 0
    lines: list[int] = field(default_factory=list)
    """The first, from 1."""
    along: list[int] = field(default_factory=list)
    """How many in each of `PARTS` equal parts of the corpus."""
    examples: list[Example] = field(default_factory=list)
    removed: int = 0
    """Pairs that `clean` removed by this rule and no earlier one."""


@dataclass
class CheckReport:
    """What is wrong with one corpus."""

    name: str
    source_lang: str
    target_lang: str
    pairs: int = 0
    faulty: int = 0
    """Pairs that break a rule by which `clean` would remove them."""
    uneven: str = ""
    drifts: list[Drift] = field(default_factory=list)
    found: dict[str, Found] = field(default_factory=dict)
    lengths: Numbers = field(default_factory=lambda: np.zeros((SIZES, SIZES), np.int64))
    """Pairs by length of source and target."""
    usual_ratio: float = 1.0
    languages: tuple[Counter[str], Counter[str]] = field(default_factory=lambda: (Counter(), Counter()))

    @property
    def is_clean(self) -> bool:
        """Whether nothing was found that `clean` would remove, and both files have as many lines."""
        return not self.faulty and not self.uneven


@dataclass(frozen=True)
class CheckOptions:
    """What the check of a corpus needs to know."""

    max_chars: int = 5000
    remove: int = 0
    """The bits of the rules by which `clean` removes pairs."""
    placeholders: Callable[[str], Sequence[str]] | None = None
    advance: Callable[[int], None] = lambda count: None


class Lines(NamedTuple):
    """A block of pairs as text, with the bits of what was wrong with their bytes."""

    source: Block
    target: Block
    bits: Numbers


def read_blocks(pairs: Iterator[RawPair], max_chars: int) -> Iterator[Lines]:
    """Pairs as text, many at a time, within bounds of memory."""
    while batch := list(islice(pairs, 256)):
        size = sum(len(each[0]) for each in batch)
        while len(batch) < BLOCK_PAIRS and size < BLOCK_BYTES and (more := list(islice(pairs, 256))):
            size += sum(len(each[0]) + len(each[1] or b"") for each in more)
            batch += more
        bits = np.zeros(len(batch), np.uint32)
        for number, each in enumerate(batch):
            if each[1] is None:
                bits[number] |= BITS["columns"]
                batch[number] = (each[0], b"")
        source = _decode([each[0] for each in batch], bits, max_chars)
        target = _decode([each[1] or b"" for each in batch], bits, max_chars)
        yield Lines(Block(source), Block(target), bits)


def _decode(lines: list[bytes], bits: Numbers, max_chars: int) -> list[str]:
    """Lines as text: what is broken is marked and replaced, and of what is too long only the beginning is kept."""
    if sum(map(len, lines)) > BLOCK_BYTES // 2:
        for number, line in enumerate(lines):
            if len(line) > 4 * max_chars + 4:
                bits[number] |= BITS["too-long"]
                lines[number] = line[: max_chars + 1].decode("utf-8", "ignore").encode() if len(line) <= MAX_LINE_BYTES else b""
    try:
        return b"\n".join(lines).decode("utf-8").split("\n")
    except UnicodeDecodeError:
        texts = []
        for number, line in enumerate(lines):
            try:
                texts.append(line.decode("utf-8"))
            except UnicodeDecodeError:
                bits[number] |= BITS["not-utf8"]
                texts.append(line.decode("utf-8", "replace"))
        return texts


def hold_out(corpora: Sequence[PairSource], max_chars: int) -> HeldOut:
    """The texts of corpora that must not occur in the training data."""
    known = HeldOut()
    for corpus in corpora:
        for lines in read_blocks(corpus.pairs(), max_chars):
            known.add(lines.source, lines.target)
    return known


def check_corpus(corpus: PairSource, options: CheckOptions, known: HeldOut, store: PairStore) -> CheckReport:
    """Read a corpus once and say what is wrong with it; the bits of every pair are in the store afterwards."""
    report = CheckReport(corpus.name, corpus.source_lang, corpus.target_lang)
    tracker, expected = AlignmentTracker(), None
    for lines in read_blocks(corpus.pairs(), options.max_chars):
        if expected is None:
            expected = _expect(lines, report, options)
        bits, languages = judge(lines.source, lines.target, expected)
        bits |= lines.bits
        bits[known.find(lines.source, lines.target)] |= np.uint32(BITS["leak"])
        store.add(bits, lines.source, lines.target)
        tracker.add(lines.source, lines.target, expected.usual)
        report.lengths += _lengths(lines)
        for counter, found in zip(report.languages, languages, strict=True):
            counter.update(dict(zip(found.names, np.bincount(found.best, minlength=len(found.names)).tolist(), strict=True)))
        options.advance(len(lines.bits))
    report.pairs, report.uneven = store.count, corpus.uneven
    report.drifts = tracker.finish()
    for drift in report.drifts:
        store.mark_lines(drift.start - 1, min(drift.end - 1, store.count), "misaligned")
    store.mark_duplicates()
    _count(store, report, options.remove)
    _add_examples(corpus, report)
    return report


def _expect(lines: Lines, report: CheckReport, options: CheckOptions) -> Expected:
    """What pairs should be like, from the first block: its languages where nobody said them, its usual lengths."""
    for side, block in (("source_lang", lines.source), ("target_lang", lines.target)):
        if not getattr(report, side):
            found = detect(block)
            counts = np.bincount(found.best[found.sure > 1.0], minlength=len(found.names))
            counts[0] = 0
            if counts.sum():
                setattr(report, side, found.names[int(counts.argmax())])
    usual = Usual.of(lines.source, lines.target)
    report.usual_ratio = float(np.exp(usual.middle))
    return Expected(report.source_lang, report.target_lang, usual, options.max_chars, options.placeholders)


def _lengths(lines: Lines) -> Numbers:
    steps = [np.minimum((2 * np.log2(np.maximum(side.length, 1))).astype(int), SIZES - 1) for side in (lines.source, lines.target)]
    return np.bincount(steps[0] * SIZES + steps[1], minlength=SIZES * SIZES).reshape(SIZES, SIZES)


def _count(store: PairStore, report: CheckReport, remove: int) -> None:
    """Counts, first lines and places of what each rule found."""
    found = {name: Found(along=[0] * PARTS) for name in RULES}
    place, width = 0, max(1, -(-store.count // PARTS))
    for bits in store.blocks():
        report.faulty += int(np.count_nonzero(bits & np.uint32(remove)))
        anything = int(np.bitwise_or.reduce(bits))
        for name, each in found.items():
            if anything & BITS[name]:
                here = np.flatnonzero(bits & np.uint32(BITS[name])) + place
                each.count += len(here)
                each.lines += [int(line) + 1 for line in here[: max(0, 10 - len(each.lines))]]
                for part, count in zip(*np.unique(here // width, return_counts=True), strict=True):
                    each.along[int(part)] += int(count)
        place += len(bits)
    report.found = {name: each for name, each in found.items() if each.count}


def _add_examples(corpus: PairSource, report: CheckReport, most: int = 3, longest: int = 300) -> None:
    """The text of the first lines that each rule found."""
    wanted = sorted({line for each in report.found.values() for line in each.lines[:most]})
    texts: dict[int, Example] = {}
    place = iter(wanted)
    following = next(place, 0)
    for number, (source, target) in enumerate(corpus.pairs(), 1):
        if number == following:
            ours, theirs = (text[: 4 * longest].decode("utf-8", "replace")[:longest] for text in (source, target or b""))
            languages = [found.names[int(found.best[0])] for found in (detect(Block([ours])), detect(Block([theirs])))]
            texts[number] = Example(number, ours, theirs, *languages)
            following = next(place, 0)
            if not following:
                break
    for each in report.found.values():
        each.examples = [texts[line] for line in each.lines[:most] if line in texts]


def clean_corpus(corpus: PairSource, store: PairStore, report: CheckReport, remove: int, folder: Path) -> tuple[list[Path], int]:
    """Write the pairs that break none of some rules; the files, and how many pairs are in them. Line n stays before line n + 1."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [name for name in corpus.output_names() if name]
    paths, kept, pairs = [folder / name for name in names], 0, corpus.pairs()
    with ExitStack() as stack:
        streams = [stack.enter_context(open_atomic(path)) for path in paths]
        for bits in store.blocks(1 << 12):
            batch = list(islice(pairs, len(bits)))
            good = [batch[number] for number in np.flatnonzero((bits & np.uint32(remove)) == 0)]
            kept += len(good)
            if len(streams) == 2:
                for side, stream in enumerate(streams):
                    stream.write(b"".join([(pair[side] or b"") + b"\n" for pair in good]))
            else:
                streams[0].write(b"".join([pair[0] + b"\t" + (pair[1] or b"") + b"\n" for pair in good]))
            _attribute(bits, remove, report)
    return paths, kept


def _attribute(bits: Numbers, remove: int, report: CheckReport) -> None:
    """Count each removed pair once, for the first rule that it breaks."""
    left = bits & np.uint32(remove)
    for name, found in report.found.items():
        if remove & BITS[name]:
            here = (left & np.uint32(BITS[name])) != 0
            found.removed += int(np.count_nonzero(here))
            left[here] = 0
