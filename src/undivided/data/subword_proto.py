"""The bytes of a sentencepiece model: read its pieces, and write them in another order under other ids.

Only what is needed of protobuf is here: a model is a list of fields, each a number, a wire type and bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD, UNK

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Types of pieces."""

PIECES, TRAINER, NORMALIZER = 1, 2, 3
BYTE_FALLBACK, UNK_ID, BOS_ID, EOS_ID, PAD_ID = 35, 40, 41, 42, 43
NORMALIZER_NAME = 1
"""Numbers of fields: of a model, of its trainer, of its normalizer."""

SPECIAL_IDS = {UNK_ID: UNK, BOS_ID: BOS, EOS_ID: EOS, PAD_ID: PAD}
"""The fields of a trainer that say which id is special, and our ids."""

LEAST_SCORE = -1e9
"""Of a piece that text is never split into: merges try it last."""
BARRED_SCORE = -2e9
"""Of a piece that must not come of a text by name either."""


class Piece(NamedTuple):
    """One subword of a sentencepiece model."""

    text: str
    score: float
    type: int


class Field(NamedTuple):
    """A field of a message: its number, and a whole number or bytes."""

    number: int
    value: int | bytes


def read_fields(message: bytes) -> Iterator[Field]:
    """The fields of a message; ValueError or IndexError where it is none."""
    place = 0
    while place < len(message):
        key, place = _read_varint(message, place)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, place = _read_varint(message, place)
            yield Field(number, value)
            continue
        size = {1: 8, 5: 4}.get(wire, 0)
        if wire == 2:
            size, place = _read_varint(message, place)
        elif not size:
            raise ValueError(f"a field of the unknown wire type {wire}")
        if place + size > len(message):
            raise ValueError("it ends in the middle of a field")
        yield Field(number, message[place : place + size])
        place += size


def _read_varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 64:
        byte = message[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
    raise ValueError("a number of more than 64 bits")


def _varint(value: int) -> bytes:
    result = bytearray()
    while value >= 0x80:
        result.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*result, value])


def number_field(number: int, value: int) -> bytes:
    """A field with a whole number, as it is written."""
    return _varint(number << 3) + _varint(value)


def bytes_field(number: int, content: bytes) -> bytes:
    """A field with bytes, as it is written."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _piece(message: bytes) -> Piece:
    found = dict(read_fields(message))
    text, score = found.get(1, b""), found.get(2, b"\0\0\0\0")
    if not isinstance(text, bytes) or not isinstance(score, bytes):
        raise ValueError("a piece without text or score")
    return Piece(text.decode("utf-8"), struct.unpack("<f", score)[0], int(found.get(3, NORMAL)))


def read_pieces(model: bytes) -> list[Piece]:
    """The pieces of a sentencepiece model, in the order of their ids."""
    try:
        return [_piece(value) for number, value in read_fields(model) if number == PIECES and isinstance(value, bytes)]
    except (ValueError, IndexError, struct.error, TypeError) as error:
        raise _damaged(error) from None


def _damaged(error: Exception) -> InputError:
    return InputError(f"the subword model is damaged: it is no sentencepiece model: {error}")


class Parts(NamedTuple):
    """A sentencepiece model apart from its pieces: how it was trained, and how it normalises text."""

    trainer: dict[int, int | bytes]
    normalizer: dict[int, int | bytes]

    @property
    def spells_bytes(self) -> bool:
        """Whether characters that no piece has become bytes."""
        return bool(self.trainer.get(BYTE_FALLBACK))

    @property
    def keeps_text(self) -> bool:
        """Whether text is split as it is, as by the subwords that we learn."""
        return self.normalizer.get(NORMALIZER_NAME) == b"identity"


def read_parts(model: bytes) -> Parts:
    """How a model was trained and normalises; of a field that is there twice, the last one counts."""
    try:
        sections = {number: value for number, value in read_fields(model) if number in (TRAINER, NORMALIZER)}
        return Parts(*(dict(read_fields(bytes(sections.get(part, b"")))) for part in (TRAINER, NORMALIZER)))
    except (ValueError, IndexError, TypeError) as error:
        raise _damaged(error) from None


def write_model(model: bytes, pieces: Sequence[Piece], trainer: bytes = b"") -> bytes:
    """A model with other pieces, whose first four are ours, and fields added to how it was trained."""
    written = [bytes_field(PIECES, _render(piece)) for piece in pieces]
    ids = b"".join(number_field(number, value) for number, value in SPECIAL_IDS.items())
    for number, value in read_fields(model):
        if number != PIECES and isinstance(value, bytes):
            written.append(bytes_field(number, value + ids + trainer if number == TRAINER else value))
    return b"".join(written)


def reorder_pieces(
    model: bytes, vocabulary: Sequence[str], scores: Sequence[float] | None = None, without: Collection[str] = ()
) -> bytes:
    """The same sentencepiece model with the ids of a vocabulary, whose first four are `<pad> <unk> <s> </s>`.

    Every piece of the model that text can be split into must be in the vocabulary. What the vocabulary has beside them, text is
    never split into, unless `scores` say how likely each piece of the vocabulary is; nor into the pieces `without`.
    """
    barred = frozenset(without)
    found = [piece for piece in read_pieces(model) if piece.type in (NORMAL, USER_DEFINED, BYTE, UNUSED)]
    known = {piece.text: piece for piece in found if piece.text not in barred}
    pieces = []
    for token, text in enumerate(vocabulary):
        if token <= EOS:
            pieces.append(Piece(text, 0.0, UNKNOWN if token == UNK else CONTROL))
        elif scores is not None and text not in barred and not (text in known and known[text].type == BYTE):
            pieces.append(Piece(text, scores[token], NORMAL))
        else:
            pieces.append(known.get(text, Piece(text, BARRED_SCORE if text in barred else LEAST_SCORE, UNUSED)))
    return write_model(model, pieces)


def _render(piece: Piece) -> bytes:
    text, score = bytes_field(1, piece.text.encode("utf-8")), _varint(2 << 3 | 5) + struct.pack("<f", piece.score)
    return text + score + _varint(3 << 3) + _varint(piece.type)
