"""Validation pairs that are held out of the training data."""

import json

import numpy as np
import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided.config import CorpusFiles, DataConfig
from undivided.core.console import Console
from undivided.data.corpus import CorpusReport, read_pairs
from undivided.data.holdout import choose_held_out, count_held_out
from undivided.training.loop import train
from undivided.training.prepare import prepare


def corpus(folder, pairs, name="c"):
    return CorpusFiles(*write_pairs(folder, name, pairs))


def texts(files, lines):
    return {(p.source, p.target) for p in read_pairs(files, DataConfig(), CorpusReport("c")) if p.line in lines}


def numbered(count):
    return [(f"source {n}", f"target {n}") for n in range(count)]


def test_the_same_pairs_whatever_their_order(tmp_path):
    pairs = numbered(500)
    forwards, backwards = corpus(tmp_path, pairs, "a"), corpus(tmp_path, pairs[::-1], "b")
    chosen = [texts(files, choose_held_out([files], DataConfig(), 25)[0]) for files in (forwards, backwards)]
    assert chosen[0] == chosen[1]
    assert len(chosen[0]) == 25


def test_most_stay_as_a_corpus_grows(tmp_path):
    before = corpus(tmp_path, numbered(1000), "a")
    after = corpus(tmp_path, numbered(1100), "b")
    first, second = (texts(files, choose_held_out([files], DataConfig(), 50)[0]) for files in (before, after))
    assert len(first & second) >= 40


def test_what_occurs_twice_on_either_side_stays_in_training(tmp_path):
    pairs = [
        *numbered(100),
        *((f"source {n}", f"other {n}") for n in range(50)),
        *((f"Third  {n}", f"TARGET {n}") for n in range(50, 80)),
    ]
    files = corpus(tmp_path, pairs)
    (lines,) = choose_held_out([files], DataConfig(), 1000)
    held_out = texts(files, lines)
    rest = texts(files, set(range(1, len(pairs) + 1)) - lines)
    assert held_out == set(numbered(100)[80:])
    assert not {source.casefold() for source, _ in held_out} & {source.casefold() for source, _ in rest}
    assert not {target.casefold() for _, target in held_out} & {target.casefold() for _, target in rest}


def test_lines_of_several_corpora(tmp_path):
    both = [corpus(tmp_path, numbered(200)[:100], "a"), corpus(tmp_path, numbered(200)[100:], "b")]
    chosen = choose_held_out(both, DataConfig(), 40)
    assert sum(map(len, chosen)) == 40
    assert all(chosen), "from both"


@pytest.mark.parametrize(("pairs", "wanted", "count"), [(30_000, 500, 500), (2000, 500, 100), (150, 500, 0), (30_000, 0, 0)])
def test_a_fair_part(pairs, wanted, count):
    assert count_held_out(pairs, wanted) == count


def test_training_never_sees_them_and_resumes_with_the_same(tmp_path):
    pairs = [(f"{source} {n}", f"{target} {n}") for n, (source, target) in enumerate(sentences(400))]
    values = tiny_recipe(tmp_path / "m", write_pairs(tmp_path, "train", pairs))
    values["train"] |= {"max_steps": 2, "save_every": 1, "average": 1}
    with prepare(values, Console(quiet=True)) as prepared:
        held_out = {(pair.source, pair.target) for pair in prepared.validation_pairs()}
        assert len(held_out) == 20
        assert len(prepared.store) == 380
        rows = prepared.store.rows(0, np.arange(len(prepared.store)))
        stored = set(prepared.tokenizer.source.decode([row.tolist() for row in rows]))
        assert len(stored) == 380
        assert not stored & {source for source, _ in held_out}
    folder = train(values, Console(quiet=True))
    with prepare(values, Console(quiet=True)) as again:
        assert again.resumes
        assert {(pair.source, pair.target) for pair in again.validation_pairs()} == held_out
    assert "validation BLEU" in json.loads((folder / "config.json").read_text())["facts"]["scores"]
