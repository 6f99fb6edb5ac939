"""Learn subword models from text with sentencepiece. [paper 5.1]"""

from __future__ import annotations

import io
import random
import re
from collections.abc import Iterable, Sequence

import sentencepiece

from undivided.config import TokensConfig
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD, UNK

MIN_VOCAB_SIZE = 4 + 256
"""Special ids, and the 256 byte pieces that spell unknown characters."""

LEAST_PROTECTED = 1000
"""The smallest vocabulary in which symbols are reserved for protected text: in a smaller one every subword counts."""


def vocab_size_for(pairs: int) -> int:
    """A vocabulary size for a corpus of so many pairs: the paper's 37,000 at its scale, fewer below."""
    for limit, size in (
        (5_000, 2_000),
        (15_000, 4_000),
        (50_000, 8_000),
        (300_000, 16_000),
        (2_000_000, 24_000),
        (10_000_000, 32_000),
    ):
        if pairs < limit:
            return size
    return 37_000


def learn_subwords(lines: Iterable[str], config: TokensConfig, vocab_size: int, seed: int, symbols: Sequence[str] = ()) -> bytes:
    """Learn a subword model from lines of text; the vocabulary is smaller if the text cannot fill it. `symbols` are reserved."""
    chosen = _sample_lines(lines, 2_000_000, seed)
    return _train_sentencepiece(chosen, config.kind, vocab_size, config.character_coverage, symbols)


def learn_words(lines: Iterable[str], seed: int) -> bytes:
    """A model with one token for every word of the lines, for formal languages with few words, e.g. trees."""
    lines = _sample_lines(lines, 2_000_000, seed)
    return _train_sentencepiece(lines, "word", MIN_VOCAB_SIZE + len({word for line in lines for word in line.split(" ")}), 1.0)


def _train_sentencepiece(
    lines: list[str], kind: str, vocab_size: int, character_coverage: float, symbols: Sequence[str] = ()
) -> bytes:
    while True:
        model = io.BytesIO()
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=model,
                model_type=kind,
                vocab_size=vocab_size,
                character_coverage=character_coverage,
                normalization_rule_name="identity",
                remove_extra_whitespaces=False,
                byte_fallback=True,
                user_defined_symbols=list(symbols),
                pad_id=PAD, unk_id=UNK, bos_id=BOS, eos_id=EOS,
                max_sentence_length=1 << 20,
                minloglevel=2,
            )  # fmt: skip
            return model.getvalue()
        except RuntimeError as error:
            # sentencepiece names the largest size it can fill: "… set it to a value <= 312."
            fillable = re.search(r"value <= (\d+)", str(error))
            if not fillable:
                raise InputError(f"tokens.vocab_size: {vocab_size} subwords cannot be learned from this text: {error}") from None
            vocab_size = int(fillable[1])


def _sample_lines(lines: Iterable[str], most: int, seed: int) -> list[str]:
    """All lines, or `most` of them drawn at random (reservoir sampling), so that memory is bounded."""
    chosen: list[str] = []
    chance = random.Random(seed)
    for number, line in enumerate(lines):
        if number < most:
            chosen.append(line)
        elif (place := chance.randrange(number + 1)) < most:
            chosen[place] = line
    return chosen
