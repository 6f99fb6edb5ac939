"""YAML catalogues, flat or nested: string values are replaced in place, in the style that each is written in."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import yaml

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions, Edit, Marked, SegmentList, SplicedText, Unit, Write
from undivided.formats.languages import is_language, matches_language
from undivided.formats.text_file import TextFile

PROPERTIES = re.compile(r"(?:&[0-9A-Za-z_-]{1,200}\s{0,200}|!\S{0,200}\s{1,200}){1,2}")
STRING = "tag:yaml.org,2002:str"


def parse_yaml(file: TextFile, options: DocumentOptions) -> SplicedText:
    """A segment for each value that is a string; a single first key that names the language becomes the target's."""
    resolver = yaml.SafeLoader("")
    segments, units, top = SegmentList(file.text), list[Unit](), list[Any]()
    for path, event, is_key in _scalars(file):
        if is_key:
            if len(path) == 1:
                top.append(event)
            continue
        tag = event.tag or resolver.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag in (STRING, "!") and event.value.strip() and event.start_mark.index < event.end_mark.index:
            segment = segments.add(
                event.start_mark.index, event.value, ".".join(path), key=".".join(path[is_language(path[0]) :]) if path else ""
            )
            units.append(Unit([segment], _writer(file.text, event)))
    language = top[0].value if len(top) == 1 and is_language(top[0].value) else ""

    def finish() -> list[Edit]:
        wanted = options.target_lang
        if not language or not wanted or not matches_language(language, options.source_lang or language):
            return []
        return [Edit(top[0].start_mark.index, top[0].end_mark.index, wanted)]

    return SplicedText(units, language, finish=finish)


def _scalars(file: TextFile) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    """Each scalar with the keys that lead to it, and whether it is a key itself."""
    stack: list[list[Any]] = []
    try:
        for event in yaml.parse(file.text, Loader=yaml.SafeLoader):
            if isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                _advance(stack)
                stack.append(["map", "", False] if isinstance(event, yaml.MappingStartEvent) else ["list", -1, False])
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                stack.pop()
            elif isinstance(event, yaml.ScalarEvent | yaml.AliasEvent):
                is_key = _advance(stack)
                if isinstance(event, yaml.ScalarEvent):
                    if is_key:
                        stack[-1][1] = event.value
                    yield tuple(str(each[1]) for each in stack), event, is_key
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1:,}" if mark else ""
        problem = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        raise InputError(f"{file.name}{where}: not valid YAML: {problem}") from None
    except (RecursionError, ValueError, AttributeError, TypeError):
        raise InputError(f"{file.name}: cannot be read as YAML") from None


def _advance(stack: list[list[Any]]) -> bool:
    """Step to the next key, value or item; whether it is a key."""
    if not stack:
        return False
    if stack[-1][0] == "list":
        stack[-1][1] += 1
        return False
    stack[-1][2] = not stack[-1][2]
    return bool(stack[-1][2])


def _writer(text: str, event: Any) -> Write:
    start, end = event.start_mark.index, event.end_mark.index
    if found := PROPERTIES.match(text, start, end):
        start = found.end()
    # Behind an anchor a text may begin without a space; a quoted one may not.
    space = "" if text[start - 1 : start].isspace() or not found else " "

    def write(given: Sequence[Marked | None], approve: bool) -> list[Edit]:
        return [Edit(start, end, space + _write(each.text, text[start:end], event)) for each in given if each is not None]

    return write


def _write(new: str, old: str, event: Any) -> str:
    if event.style in ("|", ">"):
        written = _write_block(new, old, event.style)
        if written:
            return written
        tail = old[len(old.rstrip()) :]
        return _quote(new.rstrip("\n") + "\n" * event.value.endswith("\n")) + (tail if "\n" in tail else "\n")
    if event.style == "'" and new.isprintable():
        return "'" + new.replace("'", "''") + "'"
    if event.style is None and _is_plain(new):
        return new
    return _quote(new)


def _quote(text: str) -> str:
    """Double quotes; JSON's escapes are YAML's too, but for pairs of surrogates."""
    return "".join(each if each.isprintable() else _escape(each) for each in json.dumps(text, ensure_ascii=False))


def _escape(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) <= 0xFFFF else f"\\U{ord(char):08x}"


def _is_plain(text: str) -> bool:
    """Whether YAML reads these very characters as this string, in a block and in a list."""
    if not text.isprintable() or text != text.strip() or len(text) > 1000:
        return False
    try:
        return bool(yaml.safe_load(f"a: [{text}]\nb: {text}") == {"a": [text], "b": text})
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def _write_block(new: str, old: str, style: str) -> str:
    """A block scalar with the header and indentation of the old one; empty where its text cannot be one."""
    header, _, body = old.partition("\n")
    lines = body.splitlines()
    first = next((line for line in lines if line.strip()), "")
    indent = first[: len(first) - len(first.lstrip(" "))]
    rows = new.rstrip("\n").split("\n")
    if not indent or not re.fullmatch(r"[|>][+-]?\s*", header) or any(row != row.strip() or not row.isprintable() for row in rows):
        return ""
    if style == ">":
        rows = [row for row in rows for row in (row, "")][:-1]
    tail = body[len(body.rstrip()) :] or ("\n" if body.endswith("\n") else "")
    end = "\r\n" if header.endswith("\r") else "\n"
    return f"{header}\n" + end.join(indent + row if row else "" for row in rows) + (tail or "")
