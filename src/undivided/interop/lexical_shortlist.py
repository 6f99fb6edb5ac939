"""A shortlist as Marian's relatives read it in binary: for each source word the target words that it may become."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from undivided.core.ids import EOS, PAD
from undivided.data.shortlist import Shortlist

MAGIC = 0xF11A48D5013417F5
ALWAYS = 2
"""The first words of every vocabulary, `</s>` and `<unk>`, are always considered."""


def word_lists(shortlist: Shortlist | None, source: Sequence[int], target: Sequence[int], twins: dict[int, int]) -> list[list[int]]:
    """For each foreign source id its foreign target ids, from ours: `source` and `target` are our ids in the foreign order.

    Every sentence ends with `</s>`, so what is always considered stands there: all words where there is no shortlist. `twins` are
    our source ids that are the same text as a target id.
    """
    places = {token: place for place, token in enumerate(target) if token >= 0}
    lists = []
    for token in source:
        if shortlist is None or token < 0:
            found: list[int] = list(places.values()) if token == EOS else []
        else:
            likely = [int(each) for each in shortlist.likely[token] if each != PAD]
            own = [twins[token]] if token in twins else []
            common = [int(each) for each in shortlist.common] if token == EOS else []
            found = [places[each] for each in (*likely, *own, *common) if each in places]
        # The readers take a list that begins at the end of the file for damage.
        lists.append(sorted(set(found)) or [0])
    return lists


def write_shortlist(lists: Sequence[Sequence[int]]) -> bytes:
    """The content of a file."""
    offsets = np.cumsum([0, *map(len, lists)]).astype("<u8")
    words = np.concatenate([np.asarray(each, dtype="<u4") for each in lists])
    longest = max(map(len, lists))
    body = struct.pack("<4Q", ALWAYS, longest, len(offsets), len(words)) + offsets.tobytes() + words.astype("<u4").tobytes()
    return struct.pack("<QQ", MAGIC, checksum(body)) + body


def checksum(body: bytes) -> int:
    """Of all whole 64-bit numbers, as boost combines hashes."""
    seed = 0
    for number in np.frombuffer(body[: len(body) // 8 * 8], dtype="<u8").tolist():
        seed = (seed ^ (number + 0x9E3779B9 + (seed << 6) + (seed >> 2))) & 0xFFFFFFFFFFFFFFFF
    return seed
