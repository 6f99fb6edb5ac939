"""Subwords of GPT-2 (byte-level BPE) and BERT (WordPiece) folders, which sentencepiece cannot express: lists in a JSON file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from undivided.config import TokensConfig
from undivided.core.errors import InputError
from undivided.core.files import parse_json
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.byte_bpe import ByteBpe
from undivided.data.subwords import Subwords
from undivided.data.wordpiece import WordPiece

SPECIAL = ["<pad>", "<unk>", "<s>", "</s>"]
BYTE_BPE, WORDPIECE = "byte-level BPE", "WordPiece"
FLAGS = {BYTE_BPE: ("prefix_space",), WORDPIECE: ("lower_case", "strip_accents", "split_chinese")}


def write_subwords(kind: str, pieces: Sequence[str], settings: Mapping[str, Any]) -> bytes:
    """The file of such subwords. `pieces` are in the order of their ids, the four special ones first."""
    return json.dumps({"kind": kind, "pieces": list(pieces), **settings}, ensure_ascii=False, indent=0).encode()


class ListedSubwords(Subwords):
    """The contract of `Subwords` without sentencepiece. Names of special tokens in a text are text, but for that of the mask."""

    suffix = ".json"

    def __init__(self, model: bytes) -> None:
        self.model = model
        try:
            found = parse_json(model)
            self._pieces, self._splitter = _check_pieces(found), _make_splitter(found)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise InputError(f"the subwords are damaged: {type(error).__name__}: {error}") from None
        self.unknown, self.symbols = frozenset({UNK}), {}
        self._language_codes, self._language = {}, None
        if isinstance(self._splitter, WordPiece) and self._splitter.mask:
            self.mask = self._splitter.ids[self._splitter.mask]

    def __len__(self) -> int:
        return len(self._pieces)

    def encode(self, texts: Sequence[str], threads: int = 1) -> list[list[int]]:
        """Ids of each text, ending with `</s>`."""
        try:
            for text in texts:
                text.encode()
        except UnicodeEncodeError:
            raise InputError("the text holds a lone surrogate (half a character) and is not valid Unicode") from None
        return [[*self._splitter.encode(text), EOS] for text in texts]

    def encode_corpus(self, texts: Sequence[str], dtype: np.dtype, threads: int = 1) -> list[bytes]:
        """The same as `encode`, as bytes of numbers of type `dtype`."""
        return [np.array(row, dtype).tobytes() for row in self.encode(texts)]

    def sample(self, rows: Sequence[Sequence[int]], config: TokensConfig, seeds: np.ndarray) -> list[list[int]]:
        """Such subwords have one segmentation only."""
        raise InputError("tokens.dropout: subwords that were imported without a sentencepiece model cannot be sampled")

    def decode(self, rows: Sequence[Sequence[int]]) -> list[str]:
        """The text of each row of ids, without special ids."""
        return [self._splitter.decode([self._pieces[token] for token in row if token > EOS]) for row in rows]

    def encode_places(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Which characters a piece stands for is known to translators only, and these subwords are of none."""
        raise InputError("subwords that were imported without a sentencepiece model do not know their places in a text")

    def pieces(self, row: Sequence[int]) -> list[str]:
        """The subwords of a row of ids as text."""
        return [self._pieces[int(token)] for token in row]


def _check_pieces(found: Any) -> list[str]:
    pieces = found["pieces"]
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise ValueError("its pieces are no list of texts")
    if [pieces[token] for token in (PAD, UNK, BOS, EOS) if token < len(pieces)] != SPECIAL:
        raise ValueError(f"its first pieces are {pieces[:4]}, expected {SPECIAL}")
    if len(set(pieces[EOS + 1 :])) != len(pieces) - EOS - 1:
        raise ValueError("a piece is there twice")
    "".join(pieces).encode()
    return pieces


def _make_splitter(found: Any) -> ByteBpe | WordPiece:
    kind, flags = found["kind"], FLAGS.get(str(found["kind"]))
    if flags is None:
        raise ValueError(f"they are of the unknown kind {kind!r}")
    if any(type(found[name]) is not bool for name in flags):
        raise ValueError(f"{', '.join(flags)} must be true or false")
    ids = {piece: token for token, piece in enumerate(found["pieces"]) if token > EOS}
    if kind == BYTE_BPE:
        merges = [(str(left), str(right)) for left, right in found["merges"]]
        return ByteBpe(ids, merges, found["prefix_space"])
    mask = str(found["mask"])
    if mask and mask not in ids:
        raise ValueError(f"its mask {mask!r} is not among its pieces")
    return WordPiece(ids, found["lower_case"], found["strip_accents"], found["split_chinese"], mask)
