"""Corpus files → pairs of text, or single texts. Every bad line is counted and reported. [paper 5.1]"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from undivided.config import CorpusFiles, DataConfig
from undivided.core.console import plural
from undivided.core.errors import InputError
from undivided.core.files import sha256_of
from undivided.data.encodings import advise
from undivided.data.text_files import LINE_COST, MAX_HELD_BYTES, MAX_LINE_BYTES, raw_lines, too_much_text


class Pair(NamedTuple):
    """One line of a parallel corpus."""

    line: int
    source: str
    target: str


FAULTS = {
    "not_utf8": "not valid UTF-8",
    "nul": "with a NUL character",
    "columns": "not exactly two tab-separated columns",
    "empty": "empty on one side or both",
    "too_long": "longer than data.max_chars",  # or than MAX_LINE_BYTES
    "equal": "source equal to target",
}
MAY_DROP = 10
"""Bad lines that nobody is asked about, however small the corpus is."""
HARMLESS = {"equal"}
"""Faults that are only reported: names and numbers may be equal on both sides."""


@dataclass
class CorpusReport:
    """What was found in one corpus: lines read and, for each fault, how many lines have it and the first line numbers."""

    name: str
    lines: int = 0
    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, list[int]] = field(default_factory=dict)
    target_bytes: int = 0
    """Of the target sides that are kept, in UTF-8: how much there is to predict."""

    def add(self, fault: str, line: int) -> None:
        """Count one bad line."""
        self.counts[fault] = self.counts.get(fault, 0) + 1
        if self.counts[fault] <= 5:
            self.first.setdefault(fault, []).append(line)

    @property
    def dropped(self) -> int:
        """Lines that training does not use."""
        return sum(count for fault, count in self.counts.items() if fault not in HARMLESS)

    @property
    def kept(self) -> int:
        """Lines that training uses."""
        return self.lines - self.dropped

    def summary(self) -> str:
        """The report of one corpus, a line for each fault."""
        rows = [f"{self.name}: {plural(self.lines, 'line')} read, {self.kept:,} kept, {self.dropped:,} dropped"]
        for fault, count in self.counts.items():
            where = ", ".join(map(str, self.first[fault])) + (", …" if count > len(self.first[fault]) else "")
            fate = "kept" if fault in HARMLESS else "dropped"
            rows.append(f"  {fate}: {plural(count, 'line')} {FAULTS[fault]} (line {where})")
        return "\n".join(rows)


def raw_pairs(files: CorpusFiles, encoding: str = "") -> Iterator[tuple[bytes, bytes | None]]:
    """The raw lines of both sides; a target of None marks a TSV line without exactly two columns."""
    if not files.target:
        for line in raw_lines(files.source, encoding):
            columns = line.split(b"\t") if len(line) <= MAX_LINE_BYTES else [line, b""]
            yield (columns[0], columns[1]) if len(columns) == 2 else (line, None)
        return
    lines = 0
    for source, target in zip_longest(raw_lines(files.source, encoding), raw_lines(files.target, encoding)):
        if source is None or target is None:
            longer, shorter = (files.target, files.source) if source is None else (files.source, files.target)
            total = sum(1 for _ in raw_lines(longer, encoding))
            raise InputError(
                f"{shorter} ends after {plural(lines, 'line')}, but {longer} has {total:,}: "
                "line n of one file must translate line n of the other; find where they diverge and fix it"
            )
        lines += 1
        yield source, target


def read_pairs(files: CorpusFiles, config: DataConfig, report: CorpusReport, without: Set[int] = frozenset()) -> Iterator[Pair]:
    """The good pairs of a corpus, without those of some lines; every fault is added to the report."""
    for number, (raw_source, raw_target) in enumerate(raw_pairs(files, config.encoding), 1):
        fault, pair = _check_line(number, raw_source, raw_target, config.max_chars)
        if _is_usable(number, fault, config, report) and number not in without:
            report.target_bytes += len(raw_target or b"")
            yield pair


def hold_pairs(files: CorpusFiles, config: DataConfig) -> list[Pair]:
    """The good pairs of a corpus that is held in memory; one that is too large for that is refused."""
    pairs, held = [], 0
    for pair in read_pairs(files, config, CorpusReport(corpus_name(files))):
        held += len(pair.source) + len(pair.target) + 2 * LINE_COST
        if held > MAX_HELD_BYTES:
            raise too_much_text(corpus_name(files), pair.line)
        pairs.append(pair)
    return pairs


def read_texts(files: CorpusFiles, config: DataConfig, report: CorpusReport) -> Iterator[str]:
    """The good lines of a file without targets or labels; every fault is added to the report."""
    for number, raw in enumerate(raw_lines(files.source, config.encoding), 1):
        fault, pair = _check_line(number, raw, b"-", config.max_chars)
        fault = "" if fault == "equal" else fault
        if _is_usable(number, fault, config, report):
            yield pair.source


def _is_usable(number: int, fault: str, config: DataConfig, report: CorpusReport) -> bool:
    """Whether training uses a line; its fault is counted, or raised with `on_bad_line=error`."""
    report.lines = number
    if fault:
        report.add(fault, number)
    if not fault or fault in HARMLESS:
        return True
    if config.on_bad_line == "error":
        raise InputError(f"{report.name}, line {number}: {FAULTS[fault]}; fix it, or use --on-bad-line=skip")
    return False


def _check_line(number: int, raw_source: bytes, raw_target: bytes | None, max_chars: int) -> tuple[str, Pair]:
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
    """The name of a corpus in messages."""
    return f"{files.source} | {files.target}" if files.target else files.source


def check_corpora(corpora: Iterable[CorpusFiles], config: DataConfig) -> list[CorpusReport]:
    """A report of each corpus; an error if one has no usable line."""
    reports = []
    for files in corpora:
        report = CorpusReport(corpus_name(files))
        for _ in (read_texts if files.is_unpaired else read_pairs)(files, config, report):
            pass
        if not report.lines:
            raise InputError(f"{report.name}: the file is empty")
        if not report.kept:
            raise InputError(f"no line can be used.\n{report.summary()}{_advice(files, report, config)}")
        if report.dropped > max(MAY_DROP, config.max_bad * report.lines):
            raise InputError(
                f"{report.dropped / report.lines:.0%} of the lines of a corpus cannot be used; is that right?\n{report.summary()}"
                f"{_advice(files, report, config)}\nTo train without them: --data.max_bad 1"
            )
        reports.append(report)
    return reports


def _advice(files: CorpusFiles, report: CorpusReport, config: DataConfig) -> str:
    """What to do where lines are in another encoding than UTF-8."""
    if config.encoding or not report.counts.keys() & {"not_utf8", "nul"}:
        return ""
    found = advise([path for path in (files.source, files.target) if path])
    return f"\n{found}" if found else ""


def corpus_digests(corpora: Iterable[CorpusFiles]) -> dict[str, str]:
    """sha256 of every file of some corpora, by path."""
    return {path: sha256_of(path) for files in corpora for path in (files.source, files.target) if path}
