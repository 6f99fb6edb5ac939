"""A subword model for a page: its pieces, and the rules by which sentencepiece normalises and splits text."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from undivided.data.subword_proto import Parts, read_fields, read_parts, read_pieces
from undivided.data.subwords import Subwords

DENORMALIZER = 5
MODEL_TYPE, SUFFIX_SPACE, UNKNOWN_TEXT = 3, 24, 44
CHARSMAP, DUMMY_PREFIX, REMOVE_EXTRA, ESCAPE = 2, 3, 4, 5
KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
"""Numbers of fields and of kinds in sentencepiece's protocol buffer."""


def find_subword_faults(subwords: Subwords) -> list[str]:
    """Why a page cannot split text like this model; empty if it can."""
    rules = read_parts(subwords.model)
    faults = []
    if (kind := _kind(rules)) not in ("unigram", "bpe"):
        faults.append(f"its subwords are of the kind {kind}, and a page splits bpe and unigram alone")
    if rules.trainer.get(SUFFIX_SPACE, 0):
        faults.append("its subwords write spaces behind words")
    if not rules.normalizer.get(ESCAPE, 1):
        faults.append("its subwords keep spaces as they are")
    denormalizer = [value for number, value in read_fields(subwords.model) if number == DENORMALIZER]
    if denormalizer and dict(read_fields(bytes(denormalizer[-1]))).get(CHARSMAP):
        faults.append("its subwords change text when they decode it")
    return faults


def describe_subwords(subwords: Subwords) -> dict[str, Any]:
    """What a page needs to split text and to join it again."""
    rules, pieces = read_parts(subwords.model), read_pieces(subwords.model)
    return {
        "kind": _kind(rules),
        "pieces": [piece.text for piece in pieces],
        "types": "".join(str(piece.type) for piece in pieces),
        "scores": _base64(np.array([piece.score for piece in pieces], "<f4").tobytes()),
        "byteFallback": rules.spells_bytes,
        "rules": {
            "charsmap": _base64(bytes(rules.normalizer.get(CHARSMAP, b""))),
            "dummyPrefix": bool(rules.normalizer.get(DUMMY_PREFIX, 1)),
            "removeExtra": bool(rules.normalizer.get(REMOVE_EXTRA, 1)),
        },
    }


def _kind(rules: Parts) -> str:
    return KINDS[int(rules.trainer.get(MODEL_TYPE, 1))]


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
