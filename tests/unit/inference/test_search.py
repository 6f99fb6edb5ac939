import torch

from undivided.config import SearchConfig
from undivided.core.ids import EOS
from undivided.inference.search import search

WORD, LENGTH = 5, 6


class Confident:
    """Writes six words and ends, each with probability 0.99; to end is always the second choice."""

    class State:
        place = 0

        def select(self, sentences, parents):
            return self

    def encode(self, src, src_mask):
        return None

    def start(self, memory):
        return self.State()

    def step(self, state, tokens):
        chances = torch.full((12,), 0.0001)
        likely, second = (EOS, WORD) if state.place == LENGTH else (WORD, EOS)
        chances[likely], chances[second] = 0.99, 0.009
        state.place += 1
        return chances.log().expand(*tokens.shape, 12).clone()


def test_poor_short_translations_do_not_end_the_search():
    for beam_size in (1, 2, 4, 8):
        best = search(Confident(), [[7, EOS]], SearchConfig(beam_size=beam_size), torch.device("cpu"))[0][0]
        assert best.tokens == [WORD] * LENGTH, beam_size
