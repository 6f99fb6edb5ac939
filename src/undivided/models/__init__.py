"""The models, all behind one contract."""

from __future__ import annotations

from undivided.config import ModelConfig
from undivided.models.contract import DecoderState, Memory, Seq2Seq
from undivided.models.convolutional import Convolutional
from undivided.models.recurrent import Recurrent
from undivided.models.transformer import Transformer

__all__ = ["Convolutional", "DecoderState", "Memory", "Recurrent", "Seq2Seq", "Transformer", "make_model"]


def make_model(config: ModelConfig, src_vocab: int, tgt_vocab: int) -> Seq2Seq:
    """The model that a config describes, with fresh weights."""
    match config.kind:
        case "transformer":
            return Transformer(config, src_vocab, tgt_vocab)
        case "recurrent":
            return Recurrent(config, src_vocab, tgt_vocab)
        case "convolutional":
            return Convolutional(config, src_vocab, tgt_vocab)
