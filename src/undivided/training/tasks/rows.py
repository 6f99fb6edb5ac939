"""What single-stack models learn from, held in memory: rows of ids, or images, and what batches must know of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from undivided.config import CorpusFiles, Recipe
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.data.corpus import CorpusReport, corpus_name, hold_pairs, read_texts
from undivided.data.store import chunks
from undivided.data.subwords import Subwords
from undivided.inference.generate import to_streams

Row = np.ndarray
"""Ids of one text."""


@dataclass(frozen=True)
class SizedExamples:
    """The sizes of examples: how many each corpus has, and how often each counts.

    Its numbers are draws: the examples of epoch 0, then those of epoch 1, and so on. Whatever is random in an example is a
    function of its draw, so it differs in every epoch.
    """

    corpora: list[int]
    weights: list[float]
    sizes: np.ndarray

    def __len__(self) -> int:
        return len(self.sizes)

    def draws(self, places: np.ndarray, epoch: int) -> np.ndarray:
        """The numbers that some examples go by in an epoch."""
        return places + epoch * len(self)

    def places(self, draws: np.ndarray) -> np.ndarray:
        """Which examples some draws are of."""
        return draws % len(self)

    def lengths(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sizes of some draws, for both sides the same."""
        sizes = self.sizes[self.places(places)]
        return sizes, sizes


def measure_rows(groups: Sequence[Sequence[Row]], corpora: Sequence[CorpusFiles]) -> SizedExamples:
    """The sizes of the rows of several corpora."""
    sizes = np.array([len(row) for rows in groups for row in rows], dtype=np.int64)
    return SizedExamples([len(rows) for rows in groups], [files.weight for files in corpora], sizes)


def encode_texts(texts: Iterable[str], subwords: Subwords) -> Iterator[Row]:
    """The ids of each text, closed by `</s>`."""
    dtype = np.uint16 if len(subwords) <= 1 << 16 else np.uint32
    for chunk in chunks(texts, 20_000):
        yield from (np.array(row, dtype=dtype) for row in subwords.encode(chunk))


def read_good_texts(files: CorpusFiles, recipe: Recipe) -> Iterator[str]:
    """The good lines of a file of text."""
    return read_texts(files, recipe.data, CorpusReport(corpus_name(files)))


def read_blocks(files: CorpusFiles, recipe: Recipe, subwords: Subwords) -> list[Row]:
    """The texts of a file, cut into rows as long as the context, each with the token before it in front."""
    size, rows = recipe.data.max_length, list(encode_texts(read_good_texts(files, recipe), subwords))
    texts = (np.concatenate([np.array([EOS], dtype=text.dtype), text]) for text in to_streams(rows, recipe.data))
    return [text[at : at + size + 1] for text in texts for at in range(0, len(text) - 1, size)]


def drop_long_rows(rows: Iterable[Row], recipe: Recipe, name: str, console: Console) -> list[Row]:
    """The rows that the model's context holds; how many do not fit is reported."""
    # One place is `<s>`, which stands before every text.
    most, kept, over = recipe.data.max_length - 1, [], 0
    for row in rows:
        if len(row) <= most:
            kept.append(row)
        else:
            over += 1
    if over:
        console.say(f"{name}: dropped {plural(over, 'line')} with more than {most} subwords")
    if not kept:
        raise InputError(f"{name}: every line has more than {most} subwords; raise data.max_length or split the lines")
    return kept


def read_labelled_texts(files: CorpusFiles, recipe: Recipe, subwords: Subwords, console: Console) -> tuple[list[Row], list[int]]:
    """Texts that fit, and the places of their labels in the list of classes."""
    pairs = hold_pairs(files, recipe.data)
    rows = list(encode_texts((pair.source for pair in pairs), subwords))
    number = {name: place for place, name in enumerate(recipe.data.classes)}
    most = recipe.data.max_length - 1
    labels = [number[pair.target] for pair, row in zip(pairs, rows, strict=True) if len(row) <= most]
    return drop_long_rows(rows, recipe, corpus_name(files), console), labels
