"""TSV and CSV: a segment for each row; columns by name, or the first and the second."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, Unit
from undivided.formats.text_file import TextFile

END = re.compile(r"\r\n|\n|\r")


class Cell(NamedTuple):
    """A field of a row."""

    start: int
    end: int
    text: str
    quoted: bool


class Columns(NamedTuple):
    """Which columns hold what; a target of None is added behind the last column."""

    source: int
    target: int | None
    has_header: bool
    target_name: str = "target"


def parse_tsv(file: TextFile, options: DocumentOptions) -> SplicedText:
    """Tab-separated values, without quoting."""
    return _parse(file, options, list(_tsv_rows(file.text)), "\t")


def parse_csv(file: TextFile, options: DocumentOptions) -> SplicedText:
    """Comma- or semicolon-separated values, quoted as RFC 4180 says."""
    first = file.text[: match.start()] if (match := END.search(file.text)) else file.text
    first = re.sub(r'(?:^|(?<=[,;\t]))"(?:[^"]|"")*"', "", first)
    separator = max(",;\t", key=first.count)
    return _parse(file, options, list(_csv_rows(file, separator)), separator, quotes=True)


def _tsv_rows(text: str) -> Iterator[list[Cell]]:
    for found in re.finditer(r"[^\r\n]+", text):
        row, place = [], found.start()
        for value in found[0].split("\t"):
            row.append(Cell(place, place + len(value), value, False))
            place += len(value) + 1
        yield row


def _csv_rows(file: TextFile, separator: str) -> Iterator[list[Cell]]:
    text, place, row = file.text, 0, list[Cell]()
    plain = re.compile(rf"[^{re.escape(separator)}\r\n]*")
    quoted = re.compile(r'"((?:[^"]|"")*)"')
    while place < len(text):
        found = quoted.match(text, place)
        if found is None and text[place] == '"':
            raise InputError(f"{file.name}, line {text.count(chr(10), 0, place) + 1:,}: a quoted field does not end")
        if found is None:
            found = plain.match(text, place)
            assert found is not None
            row.append(Cell(place, found.end(), found[0], False))
        else:
            row.append(Cell(place, found.end(), found[1].replace('""', '"'), True))
        place = found.end()
        if place < len(text) and text[place] == separator:
            place += 1
            if place == len(text):
                row.append(Cell(place, place, "", False))
            continue
        end = END.match(text, place)
        if end is None and place < len(text):
            raise InputError(f"{file.name}, line {text.count(chr(10), 0, place) + 1:,}: text after a quoted field")
        place = end.end() if end else place
        yield row
        row = []
    if row:
        yield row


def choose_columns(names: Sequence[str], options: DocumentOptions, name: str) -> Columns:
    """The columns of source and target by their names; without known names the first two, with no header."""
    lower = [each.strip().lower() for each in names]

    def find(wanted: str, known: Sequence[str]) -> int | None:
        if wanted and wanted.lower() not in lower:
            return None
        return next((lower.index(each.lower()) for each in ([wanted] if wanted else known) if each and each.lower() in lower), None)

    source = find(options.source_column, ("source", options.source_lang, "src"))
    target = find(options.target_column, ("target", options.target_lang, "tgt", "translation"))
    if source is None and options.source_column:
        raise InputError(f"{name}: no column is named {options.source_column!r}; there are: {', '.join(names)}")
    if source is None:
        return Columns(0, 1, has_header=False)
    added = options.target_column or options.target_lang or "target"
    return Columns(source, target if target != source else None, True, added)


def _parse(file: TextFile, options: DocumentOptions, rows: list[list[Cell]], separator: str, quotes: bool = False) -> SplicedText:
    if not rows:
        return SplicedText([])
    columns = choose_columns([cell.text for cell in rows[0]], options, file.name)
    segments, units = SegmentList(file.text), list[Unit]()
    width = len(rows[0])
    for row in rows[columns.has_header :]:
        if len(row) <= columns.source or not row[columns.source].text.strip():
            continue
        if columns.target is None and len(row) > width:
            line = file.text.count("\n", 0, row[0].start) + 1
            raise InputError(f"{file.name}, line {line:,}: {len(row)} columns, but the header has {width}")
        source = row[columns.source]
        target = row[columns.target] if columns.target is not None and columns.target < len(row) else None
        old = target.text if target else ""
        segment = segments.add(source.start, source.text, target=old, state="done" if old.strip() else "new")
        missing = max(1, (width if columns.target is None else columns.target) - len(row) + 1)
        place = target or Cell(row[-1].end, row[-1].end, "", False)
        units.append(Unit([segment], _writer(place, "" if target else separator * missing, quotes)))
    header = rows[0][-1].end

    def finish() -> list[Edit]:
        adds = columns.has_header and columns.target is None
        return [Edit(header, header, separator + columns.target_name)] if adds else []

    return SplicedText(units, finish=finish)


def _writer(cell: Cell, before: str, quotes: bool):  # type: ignore[no-untyped-def]
    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        return [Edit(cell.start, cell.end, before + _quote(each.text, quotes, cell.quoted)) for each in given if each]

    return write


def _quote(text: str, quotes: bool, quoted: bool) -> str:
    """Text as a field; what could be a separator is quoted, so that the file is read as before."""
    if not quotes:
        return re.sub(r"[\t\r\n]+", " ", text)
    needs = quoted or any(mark in text for mark in ',;\t"\r\n')
    return '"' + text.replace('"', '""') + '"' if needs else text
