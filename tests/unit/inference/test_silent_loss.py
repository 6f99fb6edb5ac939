"""Nothing is lost in silence: lines of several sentences, and translations that are much too short."""

import numpy as np
import pytest

from samples import sentences
from undivided.core.ids import EOS
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.lines import describe_problems
from undivided.inference.pieces import Limits, split_again, split_line
from undivided.training.lines import measure_lines

LINES = [source for source, _ in sentences(12, seed=9)]


def test_two_short_sentences_are_translated_one_by_one(translator):
    """Although they are no longer than usual lines: training saw no line with two."""
    assert translator.limits.sentences == 1
    assert translator.artifact.facts["several_sentences"] == 0
    text = "A cat sees. My bird hears."
    assert len(translator.artifact.tokenizer.source.encode([text])[0]) <= translator.limits.usual
    found = next(translator.stream([text]))
    assert (found.pieces, found.split) == (2, "sentences")
    assert found.text == " ".join(translator.translate(["A cat sees.", "My bird hears."]))
    assert not list(describe_problems(1, found)), "what is usual is not reported for every line"
    assert next(translator.stream([text], sentences=False)).pieces == 1


def test_models_trained_on_several_sentences_get_them_together():
    text = "One here. Two here."
    assert len(split_line(text, 8, Limits(50, 99, 1))) == 2
    assert len(split_line(text, 8, Limits(50, 99, 2))) == 1
    assert len(split_line(f"{text} Three.", 12, Limits(50, 99, 2))) == 3, "more than training had"
    assert len(split_line(text, 60, Limits(50, 99, 2))) == 2, "longer than usual"
    assert len(split_line(text, 8, Limits(50, 99, 0))) == 1, "older folders: as before"
    assert len(split_line("He met Dr. Who", 60, Limits(50, 99, 1))) == 1, "one sentence stays whole while it fits"


class Lines:
    """A store of texts."""

    def __init__(self, texts, subwords):
        self.ids = [np.array(row) for row in subwords.encode(texts)]

    def __len__(self):
        return len(self.ids)

    def lengths(self, places):
        found = np.array([len(self.ids[place]) for place in places])
        return found, 2 * found

    def rows(self, side, places):
        return [self.ids[place] for place in places]


@pytest.mark.parametrize(("every", "usual"), [(30, 1), (5, 2), (1, 2)])
def test_what_training_lines_are_like_is_measured(translator, every, usual):
    texts = [f"{LINES[0]} {LINES[1]}" if number % every == 0 else LINES[0] for number in range(60)]
    subwords = translator.artifact.tokenizer.source
    facts = measure_lines(Lines(texts, subwords), subwords, "en")
    assert (facts["usual_sentences"], facts["length_ratio"]) == (usual, 2.0)
    assert facts["several_sentences"] == pytest.approx(1 / every, abs=1e-3)


class Lazy:
    """An engine that gives up on long texts: two tokens, whatever the text, above a limit."""

    is_parallel = False

    def __init__(self, limit):
        self.limit = limit

    def search(self, sources, config, prefixes, keys):
        for place, ids in enumerate(sources):
            tokens = [token for token in ids if token != EOS]
            yield place, [Hypothesis(tokens if len(ids) <= self.limit else tokens[:2], -1.0, -1.0, True)]


@pytest.fixture
def lazy(translator, monkeypatch):
    def use(limit):
        monkeypatch.setattr(translator, "engine", Lazy(limit))
        return translator

    monkeypatch.setattr(translator, "ratio", 1.0)
    return use


LONG = "The dog sees a tree today, a cat likes the house again; my bird hears the river at night"


def test_a_translation_that_is_too_short_is_tried_again_in_pieces(lazy, run):
    translator = lazy(40)
    assert len(translator.artifact.tokenizer.source.encode([LONG])[0]) > 40
    found = next(translator.stream([LONG]))
    assert (found.split, found.short, found.text) == ("short", False, LONG)
    assert list(describe_problems(7, found)) == [
        f"line 7: its translation as a whole was much too short, so it was translated in {found.pieces} pieces"
    ]


class Babbling(Lazy):
    """An engine that gives up on long texts, and repeats a word of shorter ones."""

    def search(self, sources, config, prefixes, keys):
        for place, ids in enumerate(sources):
            tokens = [token for token in ids if token != EOS]
            yield place, [Hypothesis(tokens[:1] * len(tokens) if len(ids) <= self.limit else tokens[:2], -1.0, -1.0, True)]


def test_pieces_that_loop_are_flagged(lazy, monkeypatch):
    translator = lazy(40)
    monkeypatch.setattr(translator, "engine", Babbling(40))
    found = next(translator.stream([LONG], no_repeat_ngram=3))
    assert (found.split, found.looped, translator.judge(found).name) == ("short", True, "looped")


def test_and_flagged_where_that_does_not_help(lazy):
    translator = lazy(2)
    found = next(translator.stream([LONG]))
    assert found.short
    assert found.pieces == 1
    (said,) = describe_problems(7, found)
    assert said == "line 7: the translation is much shorter than its source; something may be missing"
    assert not next(translator.stream(["Dog."])).short, "short lines are not judged"
    assert next(translator.stream([LONG], sentences=False)).short


def test_pieces_of_a_second_try():
    from undivided.inference.pieces import Piece

    assert split_again(Piece("One here. Two here.", "  "), "en") == [("One here.", " "), ("Two here.", "  ")]
    assert "".join(piece + space for piece, space in split_again(Piece(LONG, "\n"), "en")) == LONG + "\n"
    assert split_again(Piece("nothing to split at", ""), "en") == [("nothing to split at", "")]


def test_n_best_of_several_pieces(translator):
    """All combinations, best first, not one translation alone."""
    text = f"{LINES[0]} {LINES[1]}"
    found = next(translator.stream([text], n_best=3, beam_size=4))
    assert found.pieces == 2
    assert len(found.alternatives) == 3
    assert len(set(found.alternatives)) == 3
    scores = [score for _, score in found.alternatives]
    assert scores == sorted(scores, reverse=True)
    parts = [next(translator.stream([line], n_best=3, beam_size=4)).alternatives for line in LINES[:2]]
    every = sorted((a[1] + b[1] for a in parts[0] for b in parts[1]), reverse=True)[:3]
    assert scores == pytest.approx(every)


def test_facts_of_strangers_are_checked(translator):
    from undivided.inference.translator import line_limits

    artifact = translator.artifact
    for wrong in ("x", -1, None, 1.5, [1]):
        facts = artifact.facts | {"usual_sentences": wrong, "usual_length": wrong}
        other = type("A", (), {"recipe": artifact.recipe, "facts": facts})
        limits = line_limits(other)
        assert limits.sentences == 0
        assert limits.usual == limits.longest
