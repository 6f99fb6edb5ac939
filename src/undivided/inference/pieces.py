"""Text → pieces like the lines that training saw; joined again with the spaces between them, nothing is lost."""

from __future__ import annotations

import re
from typing import NamedTuple

from undivided.artifact import Artifact
from undivided.data.sentences import split_sentences

CLAUSE_END = re.compile(r"((?<=[,;:])\s+|(?<=[，；：、])\s*)")
SENTENCE_END = re.compile(r"((?<=[.!?])\s+|(?<=[。！？])\s*)")
SPACE = re.compile(r"(\s+)")


class Piece(NamedTuple):
    """A part of a text that is translated by itself."""

    text: str
    space: str
    """The white space after it."""


class Limits(NamedTuple):
    """What lines a model knows from its training."""

    usual: int
    """Subwords of most of them."""
    longest: int
    """Subwords of the longest."""
    sentences: int = 0
    """Sentences of most of them; 0 is unknown, as with models trained before it was measured."""
    language: str = ""
    """That of the text, such as `en`."""


def split_line(text: str, tokens: int, limits: Limits) -> list[Piece]:
    """Split a text of so many tokens: sentence by sentence where it has more of them than training lines had, or is longer."""
    if not limits.sentences:
        return split_text(text, tokens, limits.usual, limits.longest)
    found = split_sentences(text, limits.language)
    if len(found) > limits.sentences or (len(found) > 1 and tokens > limits.usual):
        return [Piece(*each) for each in found]
    return split_text(text, tokens, limits.longest, limits.longest)


def split_again(piece: Piece, language: str) -> list[Piece]:
    """A piece whose translation was much too short, in smaller ones: its sentences, else its clauses, a few of them."""
    found = [Piece(*each) for each in split_sentences(piece.text, language)]
    if len(found) == 1:
        found = join_blank(_pack(CLAUSE_END.split(piece.text), len(piece.text) // 3))
    return _end_with(found, piece.space)


def split_text(text: str, tokens: int, usual: int, longest: int) -> list[Piece]:
    """Split a text of so many tokens: between sentences where it has more than `usual`, anywhere where more than `longest`.

    Beyond the usual length of training, a model translates the first sentences and forgets the others.
    """
    if tokens <= usual:
        return [Piece(text, "")]
    # A short piece that ends with a full stop may be an abbreviation; it stays with what follows it.
    wanted, limit = (max(1, len(text) * share // tokens) for share in (usual // 4, (longest - 2) // 2))
    return join_blank(split_at_sentences(text, wanted, limit if tokens > longest else len(text)))


def split_dense(piece: Piece, tokens: int, longest: int) -> list[Piece]:
    """Split a piece that has more tokens than its length let expect, into shorter ones; one character stays as it is."""
    if tokens <= longest or len(piece.text) < 2:
        return [piece]
    limit = max(1, min(len(piece.text) // 2, len(piece.text) * ((longest - 2) // 2) // tokens))
    return _end_with(split_at_sentences(piece.text, limit, limit), piece.space)


def split_at_sentences(text: str, wanted: int, limit: int) -> list[Piece]:
    """Split a text between sentences into pieces of about `wanted` characters; those with more than `limit` at spaces, else
    anywhere."""
    result: list[Piece] = []
    for sentence, space in _pack(SENTENCE_END.split(text), wanted):
        parts = _end_with(_pack(SPACE.split(sentence), limit), space) if len(sentence) > limit else [Piece(sentence, space)]
        for part, after in parts:
            cuts = [part[start : start + limit] for start in range(0, len(part), limit)] or [part]
            result += [Piece(cut, "") for cut in cuts[:-1]] + [Piece(cuts[-1], after)]
    return result


def _pack(parts: list[str], size: int) -> list[Piece]:
    """Texts and the spaces between them, in turn → pieces as full as `size` allows."""
    pieces: list[Piece] = []
    for text, space in zip(parts[::2], [*parts[1::2], ""], strict=True):
        fits = pieces and len("".join(pieces[-1])) + len(text) <= size
        # A piece that is nothing but space would be translated into something.
        if pieces and not text:
            pieces[-1] = Piece(pieces[-1].text, pieces[-1].space + space)
        elif pieces and (fits or not pieces[-1].text):
            pieces[-1] = Piece("".join(pieces[-1]) + text, space)
        else:
            pieces.append(Piece(text, space))
    return pieces


def join_blank(pieces: list[Piece]) -> list[Piece]:
    """Pieces of nothing but space would be translated into something: after words, they become the space after those."""
    result: list[Piece] = []
    for piece, space in pieces:
        if result and result[-1].text.strip() and not piece.strip():
            result[-1] = Piece(result[-1].text, result[-1].space + piece + space)
        else:
            result.append(Piece(piece, space))
    return result


def _end_with(pieces: list[Piece], space: str) -> list[Piece]:
    return [*pieces[:-1], Piece(pieces[-1].text, pieces[-1].space + space)]


def line_limits(artifact: Artifact) -> Limits:
    """What lines a model knows from its training, as its folder says."""
    data = artifact.recipe.data
    longest = min(data.max_length, artifact.recipe.model.position_limit or data.max_length)
    usual, sentences = (artifact.facts.get(name) for name in ("usual_length", "usual_sentences"))
    return Limits(
        min(usual, longest) if isinstance(usual, int) and usual > 0 else longest,
        longest,
        sentences if isinstance(sentences, int) and sentences > 0 else 0,
        data.source_lang,
    )
