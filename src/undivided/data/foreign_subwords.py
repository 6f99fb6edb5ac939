"""Subword models that other programs trained with sentencepiece, made ours: special ids in their places, and a byte for
whatever a vocabulary lacks, so that no character is lost.

A model is a protocol buffer: pieces in the order of their ids (field 1), and how it was trained (field 2) and normalises (3).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD, UNK

NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6
"""Types of pieces."""

SPECIAL = {PAD: ("<pad>", CONTROL), UNK: ("<unk>", UNKNOWN), BOS: ("<s>", CONTROL), EOS: ("</s>", CONTROL)}
"""The pieces of our special ids."""

PIECES, TRAINER, NORMALIZER = 1, 2, 3
SPLIT_BY_SPACE, SUFFIX_SPACE, BYTE_FALLBACK, IDS, NAMES = 22, 24, 35, {UNK: 40, BOS: 41, EOS: 42, PAD: 43}, (45, 46, 47, 48)
DUMMY_PREFIX = 3
"""Numbers of the fields in question."""

Field = tuple[int, int, int | bytes]
"""Number, wire type and value of a field."""


class ForeignPiece(NamedTuple):
    """One entry of a vocabulary."""

    text: str
    score: float
    kind: int


def adopt_model(model: bytes) -> bytes:
    """The same subwords with our special ids and all bytes; a model that has them already as it is."""
    try:
        fields = list(_fields(model))
        pieces = [_read_piece(value) for number, _, value in fields if number == PIECES and isinstance(value, bytes)]
        trainer = list(_fields(_part(fields, TRAINER)))
        normalizer = {number: value for number, _, value in _fields(_part(fields, NORMALIZER))}
    except (ValueError, IndexError, struct.error, UnicodeDecodeError) as error:
        raise InputError(f"not a model of sentencepiece: {error}") from None
    if not pieces:
        raise InputError("not a model of sentencepiece: it has no pieces")
    _check_settings({number: value for number, _, value in trainer}, normalizer)
    ordered = _in_our_order(pieces, {number: value for number, _, value in trainer})
    if ordered == pieces:
        return model
    kept = [field for field in trainer if field[0] not in (BYTE_FALLBACK, *IDS.values(), *NAMES)]
    kept += [(BYTE_FALLBACK, 0, 1), *((number, 0, place) for place, number in IDS.items())]
    others = [field for field in fields if field[0] not in (PIECES, TRAINER)]
    body = [(PIECES, 2, _write([(1, 2, p.text.encode()), (2, 5, struct.pack("<f", p.score)), (3, 0, p.kind)])) for p in ordered]
    return _write([*body, (TRAINER, 2, _write(kept)), *others])


def _check_settings(trainer: dict[int, int | bytes], normalizer: dict[int, int | bytes]) -> None:
    """Refuse what cannot be made ours, with the flags of spm_train that would."""
    faults = []
    if trainer.get(SPLIT_BY_SPACE, 1) == 0:
        faults.append("its subwords span spaces (train it with --split_by_whitespace=true)")
    if trainer.get(SUFFIX_SPACE, 0):
        faults.append("it writes spaces behind words (train it with --treat_whitespace_as_suffix=false)")
    if normalizer.get(DUMMY_PREFIX, 1) == 0:
        faults.append("it marks no space before the first word (train it with --add_dummy_prefix=true)")
    if faults:
        raise InputError(f"this subword model cannot be used: {'; '.join(faults)}")


def _in_our_order(pieces: list[ForeignPiece], trainer: dict[int, int | bytes]) -> list[ForeignPiece]:
    """Our special pieces, then the others in their order, then the bytes that are missing."""
    known = {}
    for place, number in zip((UNK, BOS, EOS, PAD), NAMES, strict=True):
        name = trainer.get(number, SPECIAL[place][0].encode())
        known[place] = name.decode() if isinstance(name, bytes) else SPECIAL[place][0]
    first = [ForeignPiece(SPECIAL[place][0], 0.0, SPECIAL[place][1]) for place in sorted(SPECIAL)]
    special = {*known.values(), *(piece.text for piece in first)}
    rest = [piece for piece in pieces if not (piece.text in special and piece.kind in (CONTROL, UNKNOWN))]
    low = min((piece.score for piece in pieces), default=0.0)
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    bytes_there = {piece.text for piece in rest if piece.kind == BYTE}
    clash = sorted({*names, *(piece.text for piece in first)} & {piece.text for piece in rest if piece.kind != BYTE})
    if clash:
        raise InputError(
            f"this subword model cannot be used: {clash[0]} is a word of its vocabulary (train it without that symbol)"
        )
    return [*first, *rest, *(ForeignPiece(name, low - 1, BYTE) for name in names if name not in bytes_there)]


def _read_piece(content: bytes) -> ForeignPiece:
    values = {number: value for number, _, value in _fields(content)}
    text, score, kind = values.get(1, b""), values.get(2, b"\0\0\0\0"), values.get(3, NORMAL)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError("a piece has values of other types")
    return ForeignPiece(text.decode("utf-8"), struct.unpack("<f", score)[0], kind)


def _part(fields: list[Field], number: int) -> bytes:
    found = [value for each, _, value in fields if each == number and isinstance(value, bytes)]
    return found[-1] if found else b""


def _fields(content: bytes) -> Iterator[Field]:
    """The fields of a message, in order."""
    place = 0
    while place < len(content):
        tag, place = _read_number(content, place)
        wire = tag & 7
        if wire == 0:
            value, place = _read_number(content, place)
            yield tag >> 3, wire, value
            continue
        if wire not in (1, 2, 5):
            raise ValueError(f"a field of wire type {wire}")
        size, place = _read_number(content, place) if wire == 2 else ({1: 8, 5: 4}[wire], place)
        if place + size > len(content):
            raise ValueError("it ends too early")
        yield tag >> 3, wire, content[place : place + size]
        place += size


def _read_number(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place
        if shift > 63:
            raise ValueError("a number is too long")


def _write(fields: list[Field]) -> bytes:
    parts = []
    for number, wire, value in fields:
        parts.append(_write_number(number << 3 | wire))
        if isinstance(value, int):
            parts.append(_write_number(value))
        else:
            parts += [_write_number(len(value)), value] if wire == 2 else [value]
    return b"".join(parts)


def _write_number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*found, value])
