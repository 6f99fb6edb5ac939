import torch

from undivided.config import ModelConfig, SearchConfig
from undivided.core.ids import EOS
from undivided.inference.search import search

WORD, LENGTH = 5, 6


class Confident:
    """Writes six words and ends, each with probability 0.99; to end is always the second choice."""

    config = ModelConfig()

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


class Slow(Confident):
    """To end at once is a little likelier than the first word, but after it all is certain: in the end the long one is better."""

    def step(self, state, tokens):
        chances = torch.full((12,), 0.0001)
        if state.place == 0:
            chances[EOS], chances[WORD] = 0.40, 0.38
        else:
            chances[EOS if state.place == LENGTH else WORD] = 0.99
        state.place += 1
        return (chances / chances.sum()).log().expand(*tokens.shape, 12).clone()


def test_one_hypothesis_that_has_ended_does_not_end_the_search():
    """What is behind as it stands may still win by its length: only a whole beam that has ended is enough."""
    config = SearchConfig(beam_size=4, length_penalty=1.0)
    best = search(Slow(), [[7, EOS]], config, torch.device("cpu"))[0][0]
    assert best.tokens == [WORD] * LENGTH
