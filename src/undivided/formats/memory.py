"""Translation memories: what was translated before, word for word or nearly so."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from difflib import SequenceMatcher
from pathlib import Path
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.formats.contract import DocumentOptions
from undivided.formats.pairs import read_document_pairs

LEAST_SIMILAR = 0.7
"""The least similarity of a source that is shown as a fuzzy match."""
CANDIDATES, MOST_OF_A_WORD = 20, 2000
"""Sources that are compared in full, by the words that they share; words of more sources are not looked up."""


class Match(NamedTuple):
    """A source of the memory, its translation, and how similar it is: 1 is equal."""

    source: str
    target: str
    similarity: float


class Memory:
    """Sources and their translations; of equal sources, the last translation counts."""

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self.pairs = {_squeeze(source): (source, target) for source, target in pairs if source.strip() and target.strip()}
        self._known = list(self.pairs.values())
        self._postings: dict[str, list[int]] = {}
        for number, (source, _) in enumerate(self._known):
            for word in set(source.casefold().split()):
                self._postings.setdefault(word, []).append(number)

    def __len__(self) -> int:
        return len(self.pairs)

    def find_exact(self, text: str) -> str | None:
        """The translation of this very text, white space aside."""
        found = self.pairs.get(_squeeze(text))
        return found[1].strip() if found else None

    def find_fuzzy(self, text: str) -> Match | None:
        """The most similar source, if it is similar enough."""
        words = text.casefold().split()
        counts = Counter[int]()
        for word in set(words):
            numbers = self._postings.get(word, ())
            if len(numbers) <= MOST_OF_A_WORD:
                counts.update(numbers)
        best: Match | None = None
        for number, _ in counts.most_common(CANDIDATES):
            source, target = self._known[number]
            similarity = SequenceMatcher(None, words, source.casefold().split(), autojunk=False).ratio()
            if similarity >= LEAST_SIMILAR and (best is None or similarity > best.similarity):
                best = Match(source, target, similarity)
        return best


def _squeeze(text: str) -> str:
    return " ".join(text.split())


def read_memory(path: str | Path, source_lang: str = "", target_lang: str = "") -> Memory:
    """The pairs of a TMX, or of any other document with both languages."""
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    found = Memory(read_document_pairs(str(path), options=DocumentOptions(source_lang, target_lang)).pairs)
    if not found.pairs:
        raise InputError(f"{path}: holds no pair of source and translation")
    return found
