"""The models, all behind one contract."""

from __future__ import annotations

from undivided.config import ModelConfig
from undivided.models.contract import DecoderState, Memory, Seq2Seq
from undivided.models.transformer import Transformer

__all__ = ["DecoderState", "Memory", "Seq2Seq", "Transformer", "make_model"]


def make_model(config: ModelConfig, src_vocab: int, tgt_vocab: int) -> Transformer:
    """The model that a config describes, with fresh weights."""
    return Transformer(config, src_vocab, tgt_vocab)
