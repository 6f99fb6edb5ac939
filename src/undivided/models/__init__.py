"""The models: sequence-to-sequence, all behind one contract, and single-stack models made of the same layers."""

from __future__ import annotations

from typing import TypeAlias

from undivided.config import ModelConfig
from undivided.models.contract import DecoderState, Memory, Seq2Seq
from undivided.models.convolutional import Convolutional
from undivided.models.decoder_only import DecoderOnly
from undivided.models.draft import DraftDecoder
from undivided.models.drawing import Drawing
from undivided.models.encoder_only import EncoderOnly
from undivided.models.recurrent import Recurrent
from undivided.models.transformer import Transformer
from undivided.models.vision import Vision

__all__ = [
    "Convolutional",
    "DecoderOnly",
    "DecoderState",
    "DraftDecoder",
    "Drawing",
    "EncoderOnly",
    "Memory",
    "Recurrent",
    "Seq2Seq",
    "SingleStack",
    "Transformer",
    "Vision",
    "make_model",
    "make_single_stack",
]

SingleStack: TypeAlias = DecoderOnly | EncoderOnly | Vision | Drawing


def make_model(config: ModelConfig, src_vocab: int, tgt_vocab: int) -> Seq2Seq:
    """The sequence-to-sequence model that a config describes, with fresh weights."""
    match config.kind:
        case "transformer":
            return Transformer(config, src_vocab, tgt_vocab)
        case "recurrent":
            return Recurrent(config, src_vocab, tgt_vocab)
        case "convolutional":
            return Convolutional(config, src_vocab, tgt_vocab)
        case _:
            raise ValueError(f"{config.kind} models do not go from sequence to sequence")


def make_single_stack(config: ModelConfig, vocabulary: int, classes: int) -> SingleStack:
    """The single-stack model that a config describes, with fresh weights; a vocabulary or classes of 0 where it has none."""
    match config.kind:
        case "decoder_only":
            return DecoderOnly(config, vocabulary)
        case "encoder_only":
            return EncoderOnly(config, vocabulary, classes)
        case "vision":
            return Vision(config, classes)
        case "drawing":
            return Drawing(config, vocabulary)
        case _:
            raise ValueError(f"{config.kind} models go from sequence to sequence")
