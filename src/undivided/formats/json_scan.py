"""Where the strings of a JSON text are, so that they can be replaced and everything else stays."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.core.files import parse_json

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


class JsonString(NamedTuple):
    """A value that is a string."""

    path: tuple[str | int, ...]
    """Keys and indices that lead to it."""
    start: int
    end: int
    text: str


class JsonObject(NamedTuple):
    """Where an object ends, before its brace."""

    path: tuple[str | int, ...]
    end: int
    is_empty: bool


def scan_json(text: str, name: str, line: int = 0) -> Iterator[JsonString | JsonObject]:
    """All string values, and the ends of objects, in the order of the text."""
    _check(text, name, line)
    path: list[str | int] = []
    kinds: list[str] = []
    key_next = False
    empty = True
    for found in TOKEN.finditer(text):
        token = found[0]
        if token in "{[":
            kinds.append(token)
            path.append("" if token == "{" else 0)
            key_next, empty = token == "{", True
        elif token in "}]":
            kinds.pop()
            path.pop()
            if token == "}":
                yield JsonObject(tuple(path), found.start(), empty)
            key_next, empty = False, False
        elif token == ",":
            key_next = kinds[-1] == "{"
            if kinds[-1] == "[":
                path[-1] = int(path[-1]) + 1
        elif token == ":":
            key_next = False
        else:
            empty = False
            if token[0] != '"':
                continue
            value = json.loads(token)
            if key_next:
                path[-1] = value
            else:
                yield JsonString(tuple(path), found.start(), found.end(), value)


def _check(text: str, name: str, line: int) -> None:
    try:
        parse_json(text.encode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise InputError(f"{name}, line {line or error.lineno:,}: not valid JSON: {error.msg}") from None
    except ValueError as error:
        raise InputError(f"{name}{f', line {line:,}' if line else ''}: cannot be read as JSON: {error}") from None


def quote_json(text: str, like: str) -> str:
    """A string as JSON, escaped beyond ASCII where `like`, the text that it replaces, is."""
    is_escaped = ("\\u" in like and like.isascii()) or bool(re.search("[\ud800-\udbff]", text))
    quoted = json.dumps(text, ensure_ascii=is_escaped)
    return quoted.replace("/", "\\/") if "\\/" in like else quoted
