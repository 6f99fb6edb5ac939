"""A corpus for the check: pairs of raw lines that can be read again, also where its two files differ in length."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Protocol

from undivided.config import CorpusFiles
from undivided.core.console import plural
from undivided.data.corpus import corpus_name, raw_pairs
from undivided.data.text_files import COMPRESSED, raw_lines

RawPair = tuple[bytes, bytes | None]


class PairSource(Protocol):
    """What is checked."""

    name: str
    source_lang: str
    target_lang: str
    uneven: str
    """What is wrong with the number of lines; known when all pairs were read."""

    def pairs(self) -> Iterator[RawPair]:
        """All pairs, from the start; a target of None is a line without exactly two columns."""

    def output_names(self) -> tuple[str, str]:
        """Names for the files of what is left of it; the second is empty where both sides go into one file."""


class TextCorpus:
    """Two text files, or one of two columns."""

    def __init__(self, files: CorpusFiles, encoding: str, source_lang: str, target_lang: str) -> None:
        self.files, self.encoding, self.uneven = files, encoding, ""
        self.name = corpus_name(files)
        self.source_lang = source_lang or language_of_name(files.source)
        self.target_lang = target_lang or language_of_name(files.target)

    def pairs(self) -> Iterator[RawPair]:
        """All pairs; where one file ends before the other, up to there."""
        if not self.files.target:
            yield from raw_pairs(self.files, self.encoding)
            return
        source, target = (raw_lines(path, self.encoding) for path in (self.files.source, self.files.target))
        count = 0
        for ours, theirs in zip_longest(source, target):
            if ours is None or theirs is None:
                longer, rest = (self.files.target, target) if ours is None else (self.files.source, source)
                shorter = self.files.source if ours is None else self.files.target
                total = count + 1 + sum(1 for _ in rest)
                self.uneven = f"{shorter} has {plural(count, 'line')}, but {longer} has {total:,}"
                return
            count += 1
            yield ours, theirs

    def output_names(self) -> tuple[str, str]:
        """The names of its files, without the ending of a compressed one."""
        source, target = (_plain_name(path) for path in (self.files.source, self.files.target))
        return source, f"{target}.target" if target == source else target


def _plain_name(path: str) -> str:
    name = Path(path).name
    return name.removesuffix(Path(name).suffix) if Path(name).suffix in COMPRESSED else name


def language_of_name(path: str) -> str:
    """The language that the end of a file's name tells: `train.en`, `train.pt-BR.gz`; empty where it tells none."""
    found = re.search(r"\.([a-z]{2}(?:[-_][A-Za-z]{2,4})?)(?:\.txt)?\Z", _plain_name(path))
    return found[1] if found else ""
