"""A foreign vocabulary under our ids: `<pad> <unk> <s> </s>` first, then everything else in its own order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, MASKED, PAD, UNK
from undivided.data.subword_proto import BYTE, NORMAL, USER_DEFINED, read_pieces, reorder_pieces
from undivided.data.subwords import Subwords

SPECIAL = ("<pad>", "<unk>", "<s>", "</s>")
NO_ROW = -1
"""Where the foreign model has no such token: a row of zeros."""


class SpecialIds(NamedTuple):
    """The special tokens of a foreign vocabulary; `NO_ROW` where it has none."""

    pad: int
    unk: int
    start: int
    eos: int


class Vocabulary(NamedTuple):
    """What our ids are in a foreign model."""

    pieces: list[str]
    rows: list[int]
    """For each of our ids, the foreign one."""
    masked: list[bool]
    """Which of our tokens the foreign model cannot write."""

    def pick(self, weight: Tensor) -> Tensor:
        """The rows of a foreign matrix or bias, in our order."""
        rows = torch.tensor(self.rows)
        if int(rows.max()) >= len(weight):
            raise InputError(f"the vocabulary has {int(rows.max()) + 1:,} tokens, but there are weights for {len(weight):,}")
        picked = weight[rows.clamp(min=0)].clone()
        picked[rows == NO_ROW] = 0.0
        return picked

    def bias(self, bias: Tensor) -> Tensor:
        """The logit bias in our order; masked tokens are never written."""
        return self.pick(bias).masked_fill(torch.tensor(self.masked), MASKED)


def order_vocabulary(pieces: Sequence[str], special: SpecialIds, extra: Iterable[str] = ()) -> Vocabulary:
    """Our order of a foreign vocabulary; `extra` are pieces that it does not have, which mean `<unk>`."""
    own = {special.unk, special.eos, special.pad} | ({special.start} if special.start != special.pad else set())
    rows = [special.pad, special.unk, special.start, special.eos]
    rows += [token for token in range(len(pieces)) if token not in own]
    names, taken = list(SPECIAL), set(SPECIAL)
    for token in rows[EOS + 1 :]:
        # sentencepiece accepts no empty piece and none twice; such a token never occurs in text.
        name = pieces[token] or "<empty>"
        while name in taken:
            name += ".1"
        names.append(name)
        taken.add(name)
    more = [piece for piece in dict.fromkeys(extra) if piece not in taken]
    masked = [row == NO_ROW for row in rows]
    masked[BOS] = masked[BOS] or special.start in (special.pad, special.eos)
    return Vocabulary(names + more, rows + [special.unk] * len(more), masked + [True] * len(more))


def spellable_pieces(model: bytes) -> list[str]:
    """The pieces that a sentencepiece model may split text into."""
    return [piece.text for piece in read_pieces(model) if piece.type in (NORMAL, USER_DEFINED, BYTE)]


def make_subwords(model: bytes, vocabulary: Vocabulary, reads: bool = True) -> Subwords:
    """A sentencepiece model whose ids are those of a vocabulary.

    Text to read is split as the foreign tokenizer does. Text to write or to learn from has no pieces that the model cannot write.
    """
    return Subwords(reorder_pieces(model, vocabulary.pieces, without=() if reads else unwritable_pieces(vocabulary)))


def unwritable_pieces(vocabulary: Vocabulary) -> list[str]:
    """The pieces that a foreign model reads as `<unk>` and never writes."""
    return [piece for piece, masked in zip(vocabulary.pieces, vocabulary.masked, strict=True) if masked]


__all__ = [
    "BOS", "EOS", "MASKED", "NO_ROW", "PAD", "SPECIAL", "UNK", "SpecialIds", "Vocabulary", "make_subwords", "order_vocabulary",
    "spellable_pieces", "unwritable_pieces",
]  # fmt: skip
