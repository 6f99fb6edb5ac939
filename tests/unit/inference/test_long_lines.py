"""Over-long lines are cut into pieces that a model can take, however unevenly their tokens are spread."""

import random

import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided import Translator
from undivided.config import ModelConfig
from undivided.core.console import Console
from undivided.inference.pieces import Limits, Piece, split_dense
from undivided.inference.translation import encode_texts

EASY = " ".join(source for source, _ in sentences(60, seed=3))
DENSE = "".join(chr(0x1F300 + number % 500) for number in range(900))
"""No character of it was learned: each is four bytes, and so four tokens."""


def uneven_texts():
    rng = random.Random(1)
    yield EASY * 20 + DENSE
    yield DENSE + EASY * 5
    yield " ".join(DENSE[:300]) + ". " + EASY * 9
    for _ in range(10):
        parts = [EASY * rng.randrange(4), DENSE[: rng.randrange(900)], " " * rng.randrange(400), "x" * rng.randrange(500), "\u3000"]
        yield "".join(rng.sample(parts, 5))


def rejoin(pieces):
    return "".join(piece.text + piece.space for piece in pieces)


@pytest.mark.parametrize("sentences", [0, 1])
@pytest.mark.parametrize("longest", [12, 40, 256])
def test_no_piece_is_above_the_limit_and_nothing_is_lost(translator, longest, sentences):
    subwords = translator.artifact.tokenizer.source
    for text in uneven_texts():
        (found,) = encode_texts([text], subwords, Limits(min(30, longest), longest, sentences))
        assert max(map(len, found.ids)) <= longest
        assert rejoin(found.pieces) == text
        assert found.ids == subwords.encode([piece.text for piece in found.pieces])


def test_one_character_is_never_split():
    assert split_dense(Piece("x", " "), 9, 4) == [Piece("x", " ")]
    assert split_dense(Piece("xyz", " "), 9, 9) == [Piece("xyz", " ")]


def test_learned_positions_limit_sequences():
    assert ModelConfig(positions="learned", max_positions=77).position_limit == 77
    assert ModelConfig().position_limit is None
    assert ModelConfig(kind="recurrent").position_limit is None


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """The folder of a model with as many learned positions as its training text needs."""
    from undivided.training.loop import train

    home = tmp_path_factory.mktemp("learned")
    pairs = [write_pairs(home, name, sentences(count, seed=count)) for name, count in (("train", 100), ("valid", 5))]
    recipe = tiny_recipe(home / "m", *pairs)
    recipe["model"] |= {"positions": "learned", "max_positions": 60}
    recipe["train"]["max_steps"] = 2
    return train(recipe, Console(quiet=True))


def test_one_long_line_does_not_refuse_the_file(learned):
    lines, translator = ["a dog", (EASY * 30 + DENSE)[:51_000], "a cat", DENSE], Translator(learned, threads=1, engine="torch")
    found = list(translator.stream(lines, max_extra=50, beam_size=1))
    assert [each.source for each in found] == lines
    assert found[0].text == translator.translate("a dog", max_extra=50, beam_size=1)
