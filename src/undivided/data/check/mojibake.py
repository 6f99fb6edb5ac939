"""UTF-8 that somebody read as Windows-1252 or Latin-1 and saved: found in a block, then tried on each suspect line."""

from __future__ import annotations

import re
from contextlib import suppress
from functools import cache

import numpy as np

from undivided.data.check.block import Block, Numbers

_LEADS, _FOLLOWERS = range(0xC2, 0xF5), range(0x80, 0xC0)
SURE = re.compile("Ã[\x80-\xbf‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]|â[\x80€][\x80-\xbf“”™˜œžšŸ¢¦]|[ÐÑ][\x80-\xbf°±²³´µ¶·¸¹º»¼½¾¿]")
"""What hardly any language writes, and UTF-8 of European languages always becomes."""


def _as_text(byte: int) -> set[int]:
    """The characters that a byte is read as, in Latin-1 and Windows-1252."""
    found = {byte}
    with suppress(UnicodeDecodeError):
        found.add(ord(bytes([byte]).decode("cp1252")))
    return found


@cache
def _tables() -> tuple[Numbers, Numbers, dict[int, int]]:
    lead, follower = np.zeros(0x110000, bool), np.zeros(0x110000, bool)
    lead[list(_LEADS)] = True
    follower[[code for byte in _FOLLOWERS for code in _as_text(byte)]] = True
    back = {code: byte for byte in range(0x80, 0x100) for code in _as_text(byte)}
    return lead, follower, back


def repair(text: str) -> str:
    """The text as it was before it was read in the wrong encoding; the same text where it was not."""
    back = _tables()[2]
    try:
        return bytes(back[code] if code >= 0x80 else code for code in map(ord, text)).decode("utf-8")
    except (KeyError, UnicodeDecodeError):
        return text


def is_mojibake(text: str) -> bool:
    """Whether a line is, for certain or nearly: it becomes UTF-8 as a whole, or has what only mojibake has, twice."""
    repaired = repair(text)
    if repaired != text:
        return bool(SURE.search(text)) or len(text) - len(repaired) >= 2
    return len(SURE.findall(text)) >= 2 or "â€" in text


def find_mojibake(block: Block) -> Numbers:
    """Which lines of a block are mojibake."""
    lead, follower, _ = _tables()
    wide = np.flatnonzero(block.codes[:-1] >= 0xC2)
    suspects = block.count(wide[lead[block.codes[wide]] & follower[block.codes[wide + 1]]]) > 0
    for number in np.flatnonzero(suspects).tolist():
        suspects[number] = is_mojibake(block.lines[number])
    return suspects
