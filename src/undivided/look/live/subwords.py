"""A subword model for a page: its pieces, and the rules by which sentencepiece normalises and splits text."""

from __future__ import annotations

import base64
from typing import Any, Literal, NamedTuple

import numpy as np

from undivided.data.subword_proto import BYTE_FALLBACK, NORMALIZER, TRAINER, read_fields, read_pieces, spells_bytes
from undivided.data.subwords import Subwords

DENORMALIZER = 5
MODEL_TYPE, SUFFIX_SPACE, UNKNOWN_TEXT = 3, 24, 44
CHARSMAP, DUMMY_PREFIX, REMOVE_EXTRA, ESCAPE = 2, 3, 4, 5
KINDS: dict[int, Literal["unigram", "bpe", "word", "char"]] = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
"""Numbers of fields and of kinds in sentencepiece's protocol buffer."""


class SplittingRules(NamedTuple):
    """How a sentencepiece model normalises and splits."""

    trainer: dict[int, int | bytes]
    normalizer: dict[int, int | bytes]
    denormalizer: dict[int, int | bytes]

    @classmethod
    def read(cls, model: bytes) -> SplittingRules:
        """Of a field that is there twice, the last one counts."""
        sections = dict(field for field in read_fields(model) if field.number in (TRAINER, NORMALIZER, DENORMALIZER))
        return cls(*(dict(read_fields(bytes(sections.get(part, b"")))) for part in (TRAINER, NORMALIZER, DENORMALIZER)))

    @property
    def kind(self) -> Literal["unigram", "bpe", "word", "char"]:
        """How text is split."""
        return KINDS[int(self.trainer.get(MODEL_TYPE, 1))]


def find_subword_faults(subwords: Subwords) -> list[str]:
    """Why a page cannot split text like this model; empty if it can."""
    rules = SplittingRules.read(subwords.model)
    faults = []
    if rules.kind not in ("unigram", "bpe"):
        faults.append(f"its subwords are of the kind {rules.kind}, and a page splits bpe and unigram alone")
    if rules.trainer.get(SUFFIX_SPACE, 0):
        faults.append("its subwords write spaces behind words")
    if not rules.normalizer.get(ESCAPE, 1):
        faults.append("its subwords keep spaces as they are")
    if rules.denormalizer.get(CHARSMAP):
        faults.append("its subwords change text when they decode it")
    return faults


def describe_subwords(subwords: Subwords) -> dict[str, Any]:
    """What a page needs to split text and to join it again."""
    rules, pieces = SplittingRules.read(subwords.model), read_pieces(subwords.model)
    return {
        "kind": rules.kind,
        "pieces": [piece.text for piece in pieces],
        "types": "".join(str(piece.type) for piece in pieces),
        "scores": _base64(np.array([piece.score for piece in pieces], "<f4").tobytes()),
        "byteFallback": bool(rules.trainer.get(BYTE_FALLBACK, 0)),
        "plain": spells_bytes(subwords.model),
        "rules": {
            "charsmap": _base64(bytes(rules.normalizer.get(CHARSMAP, b""))),
            "dummyPrefix": bool(rules.normalizer.get(DUMMY_PREFIX, 1)),
            "removeExtra": bool(rules.normalizer.get(REMOVE_EXTRA, 1)),
        },
    }


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()
