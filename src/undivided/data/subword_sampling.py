"""Other segmentations of words, for subword sampling in training."""

from __future__ import annotations

import random
from itertools import pairwise

import sentencepiece

from undivided.config import TokensConfig
from undivided.core.ids import EOS

SPACE_MARK = "\u2581"
"""How sentencepiece writes a space; a `▁` in the text itself needs special treatment."""


class WordVariants:
    """Segmentations of words to choose from in training; they depend on the word only."""

    COUNT = 32
    MOST_WORDS = 200_000

    def __init__(self, processor: sentencepiece.SentencePieceProcessor, config: TokensConfig) -> None:
        self.processor, self.config = processor, config
        whole = (token for token in range(len(processor)) if token > EOS and not processor.is_byte(token))
        self.ids = {processor.id_to_piece(token): token for token in whole}
        self.scores = {piece: processor.get_score(token) for piece, token in self.ids.items()}
        self._cache: dict[tuple[int, ...], list[tuple[int, ...]]] = {}

    def choose(self, word: tuple[int, ...], chance: int) -> tuple[int, ...]:
        """One of the segmentations of a word."""
        variants = self._cache.get(word)
        if variants is None:
            if len(self._cache) >= self.MOST_WORDS:
                self._cache.clear()
            variants = self._cache[word] = self._segmentations(word)
        return variants[chance % len(variants)]

    def _segmentations(self, word: tuple[int, ...]) -> list[tuple[int, ...]]:
        text = "".join(self.processor.id_to_piece(token) for token in word)
        if len(text) < 2 or not all(symbol in self.ids for symbol in text):
            return [word]
        chance = random.Random(text)
        if self.config.kind == "bpe":
            return [self.segment(text, chance) for _ in range(self.COUNT)]
        others = self.processor.nbest_encode_as_ids(text.removeprefix(SPACE_MARK), nbest_size=8)
        others = [tuple(other) for other in others if self.processor.decode(other) == self.processor.decode(list(word))]
        return [chance.choice(others) if others and chance.random() < self.config.dropout else word for _ in range(self.COUNT)]

    def segment(self, text: str, chance: random.Random) -> tuple[int, ...]:
        """BPE of one word, with merges skipped at random (BPE-dropout, Provilkov et al., 2020)."""
        symbols = list(text)
        while True:
            merges = [
                (self.scores[pair], -place)
                for place, pair in enumerate(map("".join, pairwise(symbols)))
                if pair in self.scores and chance.random() >= self.config.dropout
            ]
            if not merges:
                return tuple(self.ids[symbol] for symbol in symbols)
            place = -max(merges)[1]
            symbols[place : place + 2] = [symbols[place] + symbols[place + 1]]
