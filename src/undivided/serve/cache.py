"""Translations that were made before, the least recently used dropped first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

from undivided.inference.translation import Translation

OVERHEAD = 400
"""What an entry costs beside its characters."""


class TranslationCache:
    """Bounded by characters, so that long texts do not make it large."""

    def __init__(self, characters: int) -> None:
        self.room, self.used = characters, 0
        self.hits = self.misses = 0
        self._entries: OrderedDict[Hashable, Translation] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: Hashable) -> Translation | None:
        """What was kept, if it was."""
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
            self._entries.move_to_end(key)
        return found

    def put(self, key: Hashable, value: Translation) -> None:
        """Keep a translation, if there is any room for it."""
        size = _size(value)
        if size > self.room // 8 or key in self._entries:
            return
        self._entries[key] = value
        self.used += size
        while self.used > self.room:
            _, dropped = self._entries.popitem(last=False)
            self.used -= _size(dropped)


def _size(value: Translation) -> int:
    return OVERHEAD + len(value.source) + len(value.text) + sum(len(text) for text, _ in value.alternatives)
