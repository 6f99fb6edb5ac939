"""The account of a translated file: a row for every segment, as JSON lines, CSV or a page for reviewers; and its summary."""

from __future__ import annotations

import csv
import html
import io
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from undivided.core.console import Console, plural
from undivided.core.errors import InputError, UndividedError
from undivided.core.files import open_atomic
from undivided.formats.memory import Memory
from undivided.inference.translation import Translation
from undivided.inference.verdicts import Verdict

FIELDS = ("segment", "verdict", "reason", "score", "confidence", "source", "translation", "memory")
KINDS = (".jsonl", ".csv", ".html")


class Tally:
    """How many segments got which verdict."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.unsound = 0

    def add(self, verdict: Verdict) -> None:
        """Count one."""
        self.counts[verdict.name] += 1
        self.unsound += not verdict.is_sound

    def summary(self) -> str:
        """`1,000 segments: 990 ok, 7 copied, 3 looped`."""
        parts = ", ".join(f"{count:,} {name}" for name, count in self.counts.most_common())
        return f"{plural(self.counts.total(), 'segment')}: {parts or 'nothing to translate'}"


_Writer = Callable[[dict[str, object]], object]


class Account:
    """Counts verdicts and, where a file is named, writes a row for each."""

    def __init__(self, write: _Writer | None = None) -> None:
        self.tally, self._write = Tally(), write

    def add(
        self,
        number: int,
        source: str,
        text: str,
        verdict: Verdict,
        result: Translation | None = None,
        memory: Memory | None = None,
    ) -> None:
        """One segment, with what the engine found where it was asked, and the most similar source of a memory."""
        self.tally.add(verdict)
        if self._write is not None:
            numbers = (0.0, 0.0) if result is None else (round(result.score, 4), round(result.confidence, 4))
            match = None if memory is None or verdict.name in ("reused", "kept", "empty") else memory.find_fuzzy(source)
            shown = "" if match is None else f"{match.similarity:.0%}: {match.source} → {match.target}"
            self._write(dict(zip(FIELDS, (number, *verdict, *numbers, source, text, shown), strict=True)))

    def close(self, console: Console, is_strict: bool, is_asked: bool) -> None:
        """Say what was found, where it was asked for or is not sound; with `is_strict`, that is a failure."""
        if is_asked or is_strict or self.tally.unsound:
            console.say(self.tally.summary())
        if is_strict and self.tally.unsound:
            raise NotSound(f"--strict: {plural(self.tally.unsound, 'segment')} to look at: {self.tally.summary()}")


class NotSound(UndividedError):
    """Everything was translated, but not everything can be trusted. Exit code 3."""

    exit_code = 3


@contextmanager
def open_account(path: str | None) -> Iterator[Account]:
    """An account that is written to a file, whole or not at all; its ending says in which form."""
    if path is None:
        yield Account()
        return
    kind = Path(path).suffix.lower()
    if kind not in KINDS:
        raise InputError(f"--report {path}: name a file that ends with {', '.join(KINDS[:-1])} or {KINDS[-1]}")
    with open_atomic(Path(path)) as raw:
        stream = io.TextIOWrapper(raw, encoding="utf-8", newline="", write_through=True)
        begin, row, end = _forms(kind, stream)
        begin()
        yield Account(row)
        end()
        stream.detach()


def _forms(kind: str, stream: IO[str]) -> tuple[Callable[[], object], _Writer, Callable[[], object]]:
    if kind == ".jsonl":
        return _nothing, lambda row: stream.write(json.dumps(row, ensure_ascii=False) + "\n"), _nothing
    if kind == ".csv":
        table = csv.DictWriter(stream, FIELDS)
        return table.writeheader, table.writerow, _nothing
    page = Path(__file__).with_name("report.html").read_text(encoding="utf-8")
    before, after = page.split("<!-- rows -->")
    return lambda: stream.write(before), lambda row: stream.write(_page_row(row)), lambda: stream.write(after)


def _nothing() -> None:
    """Such a file needs no frame."""


def _page_row(row: dict[str, object]) -> str:
    cells = "".join(f'<td class="{name}">{html.escape(str(row[name]))}</td>' for name in FIELDS)
    return f'<tr data-verdict="{html.escape(str(row["verdict"]))}">{cells}</tr>\n'
