"""The steps of translation, each a function: text → pieces → ids → hypotheses → text. Importing this must not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from undivided.config import SearchConfig
from undivided.data.subwords import Subwords, to_one_line
from undivided.inference.engines.contract import Engine
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.pieces import Piece, join_blank, split_dense, split_text


@dataclass(frozen=True)
class Translation:
    """The translation of one text."""

    source: str
    text: str
    score: float
    """Log-probability divided by the length penalty; higher is more certain."""
    finished: bool
    """Whether the model ended it; if not, it was cut at the length limit."""
    alternatives: tuple[tuple[str, float], ...] = ()
    """The n best as (text, score), this one first."""
    pieces: int = 1
    """The number of pieces in which an over-long text was translated."""


class EncodedText(NamedTuple):
    """A text in pieces, with the ids of each piece."""

    pieces: list[Piece]
    ids: list[list[int]]


def encode_texts(texts: Sequence[str], subwords: Subwords, usual: int, longest: int) -> list[EncodedText]:
    """Text → pieces → ids: texts with more than `usual` tokens are split, see `split_text`."""
    result = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        pieces = split_text(text, len(ids), usual, longest)
        result.append(EncodedText(pieces, [ids]) if len(pieces) == 1 else _encode_pieces(pieces, subwords, longest))
    return result


def _encode_pieces(pieces: list[Piece], subwords: Subwords, longest: int) -> EncodedText:
    """The ids of each piece. One with more than `longest` is split again: where text is dense, fewer characters fit."""
    while True:
        rows = subwords.encode([piece.text for piece in pieces])
        parts = [split_dense(piece, len(row), longest) for piece, row in zip(pieces, rows, strict=True)]
        if parts == [[piece] for piece in pieces]:
            return EncodedText(pieces, rows)
        pieces = join_blank([part for each in parts for part in each])


def search_texts(
    engine: Engine,
    texts: Sequence[EncodedText],
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]],
    keys: Sequence[int],
) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
    """Ids → hypotheses: for each text its index and the hypotheses of each of its pieces, as soon as all are found.

    `prefixes` are the ids that the first piece of each translation begins with; samples depend on `keys`.
    """
    owners = [index for index, text in enumerate(texts) for _ in text.ids]
    sources = [ids for text in texts for ids in text.ids]
    begins = [
        prefix if number == 0 else [] for text, prefix in zip(texts, prefixes, strict=True) for number in range(len(text.ids))
    ]
    found: list[dict[int, list[Hypothesis]]] = [{} for _ in texts]
    for place, hypotheses in engine.search(sources, config, begins, [keys[index] for index in owners]):
        index = owners[place]
        found[index][place] = hypotheses
        if len(found[index]) == len(texts[index].ids):
            yield index, [each for _, each in sorted(found[index].items())]


def decode_translation(
    source: str, pieces: Sequence[Piece], hypotheses: Sequence[Sequence[Hypothesis]], subwords: Subwords
) -> Translation:
    """Hypotheses → text: the n best of a text in one piece; of several pieces the best of each, joined."""
    if len(pieces) == 1:
        ranked = hypotheses[0]
        texts = [to_one_line(text) for text in subwords.decode([each.tokens for each in ranked])]
        alternatives = tuple((text, each.score) for text, each in zip(texts, ranked, strict=True))
        return Translation(source, texts[0], ranked[0].score, ranked[0].finished, alternatives)
    best = [ranked[0] for ranked in hypotheses]
    texts = subwords.decode([each.tokens for each in best])
    joined = to_one_line("".join(text + piece.space for text, piece in zip(texts, pieces, strict=True)))
    score = sum(each.score for each in best)
    return Translation(source, joined, score, all(each.finished for each in best), ((joined, score),), len(pieces))
