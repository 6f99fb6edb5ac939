"""Subword models that other programs trained with sentencepiece, made ours: special ids in their places, and a byte for
whatever a vocabulary lacks, so that no character is lost.
"""

from __future__ import annotations

from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.subword_proto import (
    BYTE,
    BYTE_FALLBACK,
    CONTROL,
    UNKNOWN,
    Parts,
    Piece,
    bytes_field,
    number_field,
    read_parts,
    read_pieces,
    write_model,
)

SPECIAL = {PAD: ("<pad>", CONTROL), UNK: ("<unk>", UNKNOWN), BOS: ("<s>", CONTROL), EOS: ("</s>", CONTROL)}
"""The pieces of our special ids."""

SPLIT_BY_SPACE, SUFFIX_SPACE, DUMMY_PREFIX = 22, 24, 3
"""Numbers of fields that decide whether a model can be used."""

NAMES = {UNK: 45, BOS: 46, EOS: 47, PAD: 48}
"""Numbers of the fields that name the special pieces."""


def adopt_model(model: bytes) -> bytes:
    """The same subwords with our special ids and all bytes; a model that has them already as it is."""
    pieces, parts = read_pieces(model), read_parts(model)
    if not pieces:
        raise InputError("not a model of sentencepiece: it has no pieces")
    _check_settings(parts)
    ordered = _in_our_order(pieces, parts)
    if ordered == pieces:
        return model
    names = b"".join(bytes_field(NAMES[place], text.encode()) for place, (text, _) in SPECIAL.items())
    return write_model(model, ordered, number_field(BYTE_FALLBACK, 1) + names)


def _check_settings(parts: Parts) -> None:
    """Refuse what cannot be made ours, with the flags of spm_train that would."""
    faults = []
    if parts.trainer.get(SPLIT_BY_SPACE, 1) == 0:
        faults.append("its subwords span spaces (train it with --split_by_whitespace=true)")
    if parts.trainer.get(SUFFIX_SPACE, 0):
        faults.append("it writes spaces behind words (train it with --treat_whitespace_as_suffix=false)")
    if parts.normalizer.get(DUMMY_PREFIX, 1) == 0:
        faults.append("it marks no space before the first word (train it with --add_dummy_prefix=true)")
    if faults:
        raise InputError(f"this subword model cannot be used: {'; '.join(faults)}")


def _in_our_order(pieces: list[Piece], parts: Parts) -> list[Piece]:
    """Our special pieces, then the others in their order, then the bytes that are missing."""
    known = {}
    for place, number in NAMES.items():
        name = parts.trainer.get(number, SPECIAL[place][0].encode())
        known[place] = name.decode() if isinstance(name, bytes) else SPECIAL[place][0]
    first = [Piece(SPECIAL[place][0], 0.0, SPECIAL[place][1]) for place in sorted(SPECIAL)]
    special = {*known.values(), *(piece.text for piece in first)}
    rest = [piece for piece in pieces if not (piece.text in special and piece.type in (CONTROL, UNKNOWN))]
    low = min((piece.score for piece in pieces), default=0.0)
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    bytes_there = {piece.text for piece in rest if piece.type == BYTE}
    clash = sorted({*names, *(piece.text for piece in first)} & {piece.text for piece in rest if piece.type != BYTE})
    if clash:
        raise InputError(
            f"this subword model cannot be used: {clash[0]} is a word of its vocabulary (train it without that symbol)"
        )
    return [*first, *rest, *(Piece(name, low - 1, BYTE) for name in names if name not in bytes_there)]
