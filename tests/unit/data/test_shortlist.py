"""The lexical shortlist: learned from a corpus, carried by the model folder, obeyed by CTranslate2."""

import dataclasses

import numpy as np
import pytest

from samples import sentences
from undivided.artifact import SHORTLIST, load_artifact, save_artifact
from undivided.core.errors import InputError
from undivided.core.ids import EOS, PAD
from undivided.data.shortlist import MAX_LIKELY, Shortlist, learn_shortlist
from undivided.inference.translator import Translator

WORDS = 300


class Corpus:
    """Word for word by a dictionary, in another order, with a particle that means nothing before every third word."""

    def __init__(self, count):
        chance = np.random.default_rng(1)
        self.dictionary = np.concatenate([np.arange(10), 10 + chance.permutation(WORDS)])
        self.source = [np.append(chance.integers(10, 10 + WORDS, chance.integers(2, 9)), EOS) for _ in range(count)]
        self.target = [
            np.append(np.insert(chance.permutation(self.dictionary[row[:-1]]), slice(0, None, 3), 5), EOS) for row in self.source
        ]

    def __len__(self):
        return len(self.source)

    def lengths(self, places):
        return tuple(np.array([len(side[place]) for place in places]) for side in (self.source, self.target))

    def rows(self, side, places):
        return [(self.source, self.target)[side][place] for place in places]


def test_every_word_finds_its_meaning():
    corpus = Corpus(4000)
    found = learn_shortlist(corpus, 10 + WORDS, 10 + WORDS)
    assert found.fits(10 + WORDS, 10 + WORDS)
    for word in range(10, 10 + WORDS):
        meant = [token for token in found.likely[word] if token not in (5, EOS)]
        assert meant[0] == corpus.dictionary[word]
    assert {5, EOS} <= set(found.common.tolist())


def test_what_one_word_explains_no_other_need():
    """`c` is C wherever it stands, so that beside it `a` and `b` mean what else is there, however often they meet C."""
    a, b, c, capital_c, capital_a, capital_b = range(10, 16)

    class Pairs:
        source = [np.array(row) for row in ([a, c], [b, c], [c])] * 4
        target = [np.array(row) for row in ([capital_a, capital_c], [capital_b, capital_c], [capital_c])] * 4

        def __len__(self):
            return len(self.source)

        def lengths(self, places):
            return tuple(np.array([len(side[place]) for place in places]) for side in (self.source, self.target))

        def rows(self, side, places):
            return [(self.source, self.target)[side][place] for place in places]

    found = learn_shortlist(Pairs(), 20, 20)
    assert [found.likely[word][0] for word in (a, b, c)] == [capital_a, capital_b, capital_c]


def test_a_corpus_of_any_size_is_counted_within_bounds(monkeypatch):
    monkeypatch.setattr("undivided.data.shortlist.MAX_CELLS", 20_000)
    corpus = Corpus(4000)
    taken = []
    rows = corpus.rows
    monkeypatch.setattr(
        corpus, "rows", lambda side, places: taken.append(np.prod(corpus.lengths(places), axis=0).sum()) or rows(side, places)
    )
    learn_shortlist(corpus, 10 + WORDS, 10 + WORDS)
    assert 10_000 < taken[0] < 25_000


def test_words_of_both_sides_may_stand_for_themselves():
    nothing, target = "<pad>", ["<pad>", "x", "</s>", "Z"]
    target[0], target[PAD] = target[PAD], nothing
    x, end = target.index("x"), target.index("</s>")
    listed = Shortlist(np.array([end], dtype=np.int32), np.array([[PAD, PAD], [x, PAD], [x, end]], dtype=np.int32))
    assert listed.vocabulary_map(["a", "b", "Z"], target) == ["\t</s>", "a\t", "b\tx", "Z\tx </s> Z"]


def test_training_leaves_one_in_the_model_folder(model):
    artifact = load_artifact(model)
    source, target = artifact.tokenizer.source, artifact.tokenizer.target
    shortlist = artifact.shortlist
    assert shortlist.likely.shape == (len(source), MAX_LIKELY)
    wanted = covered = 0
    for text, translation in sentences(50, seed=9):
        allowed = set(shortlist.common.tolist()) | set(shortlist.likely[source.encode([text])[0]].ravel().tolist())
        tokens = target.encode([translation])[0]
        wanted, covered = wanted + len(tokens), covered + sum(token in allowed for token in tokens)
    assert covered / wanted > 0.99


@pytest.fixture
def narrowed(model, tmp_path):
    """A copy of the model whose shortlist lacks what the model writes most, and that subword."""
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    artifact = load_artifact(model)
    lines = [source for source, _ in sentences(20, seed=5)]
    read = {token for row in artifact.tokenizer.source.encode(lines) for token in row}
    written = artifact.tokenizer.target.encode(Translator(artifact).translate(lines))
    tokens = [token for row in written for token in row if token not in read]
    banned = max(set(tokens), key=tokens.count)
    everything = np.array([token for token in range(len(artifact.tokenizer.target)) if token != banned], dtype=np.int32)
    likely = np.full((len(artifact.tokenizer.source), 1), EOS, dtype=np.int32)
    folder = tmp_path / "m"
    save_artifact(dataclasses.replace(artifact, shortlist=Shortlist(everything, likely)), folder)
    return folder, banned


def test_ctranslate2_keeps_to_it_when_asked(narrowed, model):
    folder, banned = narrowed
    lines = [source for source, _ in sentences(20, seed=5)]
    translator = Translator(folder, engine="ctranslate2")
    assert translator.engine.has_shortlist
    target = translator.artifact.tokenizer.target

    def times(texts):
        return sum(row.count(banned) for row in target.encode(texts))

    free = translator.translate(lines)
    listed = translator.translate(lines, shortlist=True)
    assert times(free) > 3
    assert times(listed) == 0


def test_a_prefix_is_not_held_to_it(narrowed):
    folder, banned = narrowed
    translator = Translator(folder, engine="ctranslate2")
    prefix = translator.artifact.tokenizer.target.decode([[banned]])[0]
    results = list(translator.stream(["The old horse hears your garden at night."], [prefix], shortlist=True))
    assert results[0].text.startswith(prefix)


def test_the_whole_list_changes_no_translation(model, tmp_path):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    artifact = load_artifact(model)
    everything = np.arange(len(artifact.tokenizer.target), dtype=np.int32)
    save_artifact(dataclasses.replace(artifact, shortlist=Shortlist(everything, artifact.shortlist.likely)), tmp_path / "m")
    translator = Translator(tmp_path / "m", engine="ctranslate2")
    lines = [source for source, _ in sentences(40, seed=6)]
    assert translator.translate(lines, shortlist=True) == translator.translate(lines)


def test_older_folders_have_none(model, tmp_path):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    save_artifact(dataclasses.replace(load_artifact(model), shortlist=None), tmp_path / "m")
    assert not (tmp_path / "m" / SHORTLIST).exists()
    translator = Translator(tmp_path / "m", engine="ctranslate2")
    assert not translator.engine.has_shortlist
    assert translator.translate("The old horse hears.", shortlist=True) == translator.translate("The old horse hears.")


def test_saying_so_where_there_is_none(model, run, tmp_path):
    (tmp_path / "in").write_text("The old horse hears.\n")
    done = run("translate", model, tmp_path / "in", "--engine", "torch", "--shortlist")
    assert done.code == 0
    assert "--shortlist: the PyTorch engine has none" in done.err


@pytest.mark.parametrize("bad", ["past the vocabulary", "negative", "another size", "floats"])
def test_a_strangers_list_must_fit(model, tmp_path, bad):
    artifact = load_artifact(model)
    listed = artifact.shortlist
    likely = listed.likely.copy()
    if bad == "past the vocabulary":
        likely[3, 0] = len(artifact.tokenizer.target)
    elif bad == "negative":
        likely[3, 0] = -1
    elif bad == "another size":
        likely = likely[1:]
    else:
        likely = likely.astype(np.float32)
    save_artifact(dataclasses.replace(artifact, shortlist=Shortlist(listed.common, likely)), tmp_path / "m")
    with pytest.raises(InputError, match="does not fit the vocabularies"):
        load_artifact(tmp_path / "m")
