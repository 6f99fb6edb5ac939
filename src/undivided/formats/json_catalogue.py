"""JSON catalogues, flat or nested, and JSON lines."""

from __future__ import annotations

from collections.abc import Sequence

from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, Unit, Write
from undivided.formats.json_scan import JsonObject, JsonString, quote_json, scan_json
from undivided.formats.plain import LINE
from undivided.formats.table import choose_columns
from undivided.formats.text_file import TextFile


def parse_json_catalogue(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each string value; keys that begin with `@` hold notes for translators (ARB)."""
    segments, units = SegmentList(file.text), list[Unit]()
    for found in scan_json(file.text, file.name):
        if isinstance(found, JsonString) and found.text.strip() and not any(str(key).startswith("@") for key in found.path):
            segment = segments.add(found.start, found.text, path := ".".join(map(str, found.path)), key=path)
            units.append(Unit([segment], _write_over(found.start, found.end, file.text[found.start : found.end])))
    return SplicedText(units)


def _write_over(start: int, end: int, old: str) -> Write:
    return lambda given, approve: [Edit(start, end, quote_json(each.text, old)) for each in given if each is not None]


def parse_jsonl(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each line, an object with a source and perhaps a target, or both within `translation`."""
    segments, units = SegmentList(file.text), list[Unit]()
    for number, found in enumerate(LINE.finditer(file.text), 1):
        if not found[0].strip():
            continue
        entries = list(scan_json(found[0], file.name, number))
        inside = ("translation",) if any(each.path[:1] == ("translation",) and len(each.path) == 2 for each in entries) else ()
        values = {
            str(each.path[-1]): each
            for each in entries
            if isinstance(each, JsonString) and each.path[:-1] == inside and len(each.path) == len(inside) + 1
        }
        unit = _line_unit(file, options, segments, found.start(), values, [e for e in entries if isinstance(e, JsonObject)], inside)
        if unit:
            units.append(unit)
    return SplicedText(units)


def _line_unit(
    file: TextFile,
    options: DocumentOptions,
    segments: SegmentList,
    shift: int,
    values: dict[str, JsonString],
    objects: Sequence[JsonObject],
    inside: tuple[str, ...],
) -> Unit | None:
    names = list(values)
    columns = choose_columns(names, options, f"{file.name}, line {file.text.count(chr(10), 0, shift) + 1:,}")
    outer = next((each for each in objects if each.path == inside), None)
    if not columns.has_header or outer is None or not values[names[columns.source]].text.strip():
        return None
    source = values[names[columns.source]]
    old = None if columns.target is None else values[names[columns.target]]
    state = "done" if old and old.text.strip() else "new"
    segment = segments.add(shift + source.start, source.text, "", old.text if old else "", state)  # type: ignore[arg-type]
    like = file.text[shift + source.start : shift + source.end]

    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        text = quote_json(given[0].text, like) if given[0] else ""
        if old:
            return [Edit(shift + old.start, shift + old.end, text)]
        # Spaces before the brace stay behind what is added.
        end = shift + outer.end
        end -= len(file.text[shift:end]) - len(file.text[shift:end].rstrip())
        return [Edit(end, end, f", {quote_json(columns.target_name, '')}: {text}")]

    return Unit([segment], write)
