"""Gettext's MO, the compiled form of PO: to train from only."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

from undivided.core.errors import InputError

MAGIC = 0x950412DE


class Catalogue(NamedTuple):
    """What a compiled catalogue holds."""

    target_lang: str
    pairs: list[tuple[str, str]]


def read_mo(data: bytes, name: str) -> Catalogue:
    """The messages of an MO file; of plural forms those that are sure, the first and the last."""
    order = "<" if data[:4] == struct.pack("<I", MAGIC) else ">"
    if len(data) < 20 or struct.unpack_from(f"{order}I", data)[0] != MAGIC:
        raise InputError(f"{name}: not an MO file")
    _, _, count, sources, targets = struct.unpack_from(f"{order}5I", data)
    if count * 8 > len(data):
        raise InputError(f"{name}: damaged: it announces {count:,} messages, more than fit in it")
    raw = []
    for number in range(count):
        sides = [_string(data, f"{order}2I", table + 8 * number, name) for table in (sources, targets)]
        raw.append((sides[0], sides[1]))
    header = next((target for source, target in raw if not source), b"").decode("latin-1")
    found = re.search(r"charset=([A-Za-z][\w.:-]*)", header)
    codec = found[1] if found else "utf-8"
    language = re.search(r"^Language:[ \t]*(\S+)", header, re.MULTILINE)
    pairs: list[tuple[str, str]] = []
    try:
        for source, target in raw:
            if source:
                forms = source.rpartition(b"\x04")[2].decode(codec).split("\0"), target.decode(codec).split("\0")
                pairs += {(forms[0][0], forms[1][0]): None, (forms[0][-1], forms[1][-1]): None}
    except (UnicodeDecodeError, LookupError):
        raise InputError(f"{name}: damaged: not text in {codec}") from None
    return Catalogue(language[1] if language else "", pairs)


def _string(data: bytes, layout: str, place: int, name: str) -> bytes:
    if place + 8 > len(data):
        raise InputError(f"{name}: damaged: it ends too early")
    length, start = struct.unpack_from(layout, data, place)
    if start + length > len(data):
        raise InputError(f"{name}: damaged: it ends too early")
    return data[start : start + length]
