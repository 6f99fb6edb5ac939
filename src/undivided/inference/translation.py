"""The steps of translation, each a function: text → pieces → ids → hypotheses → text. Importing this must not import torch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal, NamedTuple

from undivided.config import SearchConfig
from undivided.data.subwords import Subwords, to_one_line
from undivided.inference.engines.contract import Engine
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.loops import is_looped, is_looped_text
from undivided.inference.pieces import Limits, Piece, join_blank, split_again, split_dense, split_line

Why = Literal["", "sentences", "long", "short"]
"""Why a text was translated in pieces: it has several sentences, it is longer than what training saw, or its translation as a
whole was much too short."""

SHORT, LEAST_TOKENS = 0.4, 12
"""A translation is suspiciously short below this share of its expected length; sources of fewer tokens are not judged."""


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
    """The number of pieces in which it was translated."""
    split: Why = ""
    """Why it was translated in more than one."""
    short: bool = False
    """Whether it is much shorter than translations of such texts are: something may be missing."""
    looped: bool = False
    """Whether it repeats itself, also when it was decoded again with repetition blocked."""
    confidence: float = 0.0
    """Mean log-probability of a token, that of the end included."""
    reused: bool = False
    """Whether it was taken from a translation memory."""
    missed: tuple[str, ...] = ()
    """Terms of the glossary that it does not have, as `source → target`."""
    unknown: float = 0.0
    """The share of the source, in bytes, that is spelled in bytes or unknown to the subwords: the model never saw such letters."""


class EncodedText(NamedTuple):
    """A text in pieces, with the ids of each piece."""

    pieces: list[Piece]
    ids: list[list[int]]
    split: Why = ""
    """Why there is more than one piece."""


def encode_texts(texts: Sequence[str], subwords: Subwords, limits: Limits) -> list[EncodedText]:
    """Text → pieces → ids: texts unlike the lines of training are split, see `split_line`."""
    result = []
    for text, ids in zip(texts, subwords.encode(texts), strict=True):
        pieces = split_line(text, len(ids), limits)
        if len(pieces) == 1:
            result.append(EncodedText(pieces, [ids]))
            continue
        is_long = len(ids) > (limits.longest if limits.sentences else limits.usual)
        result.append(_encode_pieces(pieces, subwords, limits.longest, "long" if is_long else "sentences"))
    return result


def encode_again(text: EncodedText, short: Sequence[bool], subwords: Subwords, limits: Limits) -> EncodedText:
    """A text whose pieces, where they are `short`, are split further; the same pieces where they cannot be."""
    parts = [split_again(piece, limits.language) if bad else [piece] for piece, bad in zip(text.pieces, short, strict=True)]
    return _encode_pieces([piece for each in parts for piece in each], subwords, limits.longest, "short")


def _encode_pieces(pieces: list[Piece], subwords: Subwords, longest: int, why: Why) -> EncodedText:
    """The ids of each piece. One with more than `longest` is split again: where text is dense, fewer characters fit."""
    while True:
        rows = subwords.encode([piece.text for piece in pieces])
        parts = [split_dense(piece, len(row), longest) for piece, row in zip(pieces, rows, strict=True)]
        if parts == [[piece] for piece in pieces]:
            return EncodedText(pieces, rows, why)
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


def is_short(source: Sequence[int], found: Hypothesis, ratio: float) -> bool:
    """Whether a translation is much shorter than the source lets expect: `ratio` is target to source tokens of training."""
    return len(source) >= LEAST_TOKENS and len(found.tokens) + 1 < SHORT * ratio * len(source)


def find_looped(text: EncodedText, hypotheses: Sequence[Sequence[Hypothesis]], found: Translation) -> bool:
    """Whether a translation, or that of a piece, repeats itself, and not because its source does."""
    return is_looped_text(found.source, found.text) or any(
        is_looped(ids, best[0].tokens) for ids, best in zip(text.ids, hypotheses, strict=True) if best
    )


def share_unknown(text: str, rows: Sequence[Sequence[int]], subwords: Subwords) -> float:
    """The share of a text, in bytes, that no subword has letters for."""
    unknown = sum(token in subwords.unknown for row in rows for token in row)
    return min(1.0, unknown / max(1, len(text.encode("utf-8", errors="replace"))))


def decode_translation(
    source: str, text: EncodedText, hypotheses: Sequence[Sequence[Hypothesis]], subwords: Subwords
) -> Translation:
    """Hypotheses → text: the n best of a text, those of its pieces joined; a score is the sum over pieces."""
    ranked = hypotheses[0] if len(text.pieces) == 1 else ()
    if ranked:
        texts = [to_one_line(each) for each in subwords.decode([each.tokens for each in ranked])]
        alternatives = tuple((each, found.score) for each, found in zip(texts, ranked, strict=True))
        return Translation(source, texts[0], ranked[0].score, ranked[0].finished, alternatives, confidence=_confidence(hypotheses))
    joined = [("", 0.0)]
    most = max(map(len, hypotheses))
    for piece, found in zip(text.pieces, hypotheses, strict=True):
        texts = [each + piece.space for each in subwords.decode([each.tokens for each in found])]
        scored = zip(texts, (each.score for each in found), strict=True)
        together = [(begin + each, sum_ + score) for (begin, sum_), (each, score) in product(joined, scored)]
        joined = sorted(together, key=lambda each: -each[1])[:most]
    alternatives = tuple((to_one_line(each), score) for each, score in joined)
    finished = all(each[0].finished for each in hypotheses)
    return Translation(
        source, *alternatives[0], finished, alternatives, len(text.pieces), text.split, confidence=_confidence(hypotheses)
    )


def _confidence(hypotheses: Sequence[Sequence[Hypothesis]]) -> float:
    best = [each[0] for each in hypotheses if each]
    tokens = sum(len(each.tokens) + each.finished for each in best)
    return sum(each.log_probability for each in best) / max(1, tokens)
