"""Encodings of text files other than UTF-8: named, read where asked for, and recognised in what is not UTF-8."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from pathlib import Path

from undivided.config.data import NO_ENCODING, is_encoding
from undivided.core.errors import InputError

UTF_16_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
"""What a file begins with that is UTF-16 for certain. Nothing in UTF-8 begins so."""

SAMPLE = 1 << 20
"""Bytes of a file that are looked at to guess its encoding."""

WIDE = ("cp949", "shift_jis", "gb18030", "big5", "cp1251", "cp1253", "cp1255", "cp1256", "cp874")
"""Encodings of languages that hardly use ASCII letters, by what is likely."""

NAMES = {"cp1252": "Windows-1252, often called Latin-1", "utf-16-le": "UTF-16 without a byte-order mark"}
NAMES["utf-16-be"] = NAMES["utf-16-le"]


def check_encoding(name: str) -> None:
    """Refuse a name that is no encoding of text; an empty one means UTF-8."""
    if not is_encoding(name):
        raise InputError(f"encoding: {name!r} {NO_ENCODING}")


def is_wide(name: str) -> bool:
    """Whether an encoding takes several bytes for a line end, so that lines cannot be found before it is decoded."""
    return name != "" and len("\n".encode(name)) > 1


def guess_encoding(sample: bytes) -> str:
    """What the beginning of a file that is not UTF-8 is likely written in; empty where nothing fits. Never certain."""
    sample = sample[: len(sample) // 2 * 2]
    if sample and sample.count(0) > len(sample) // 8:
        even = sample[::2].count(0)
        return "utf-16-be" if even > sample.count(0) // 2 else "utf-16-le"
    body = sample.rpartition(b"\n")[0] or sample
    high = sum(byte >= 0x80 for byte in body)
    fitting = [name for name in (WIDE if high > len(body) // 4 else ("cp1252",)) if _fits(body, name)]
    return fitting[0] if fitting else ""


def _fits(body: bytes, name: str) -> bool:
    try:
        body.decode(name)
    except UnicodeDecodeError:
        return False
    return True


def advise(paths: Sequence[str | Path]) -> str:
    """What the first of some files that is not UTF-8 is likely written in, and what to do; empty where all are UTF-8."""
    from undivided.data.text_files import open_bytes

    for path in paths:
        with open_bytes(path) as stream:
            sample = stream.read(SAMPLE)
        if b"\0" not in sample and _fits(sample.rpartition(b"\n")[0] or sample, "utf-8"):
            continue
        found = guess_encoding(sample)
        if found:
            known = f" ({NAMES[found]})" if found in NAMES else ""
            return f"{path} looks like {found}{known}: if it is, add --encoding {found}"
        return f"{path} is in no encoding that is recognised: convert it to UTF-8, or name its encoding with --encoding"
    return ""
