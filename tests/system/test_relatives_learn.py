"""Each relative must learn something real, through files, the real training, and the model folder it leaves."""

import math
import random

import numpy as np
import pytest
import torch

from samples import sentences, write_lines, write_pairs
from undivided.artifact import load_single_stack
from undivided.core.console import Console
from undivided.data.images import write_idx
from undivided.inference.classify import Classifier
from undivided.inference.generate import Generator, token_scores
from undivided.training.loop import train

MODEL = {"d_model": 32, "d_ff": 64, "n_heads": 4, "dropout": 0.0, "norm": "pre", "activation": "gelu"}


def recipe(out, model, steps, **data):
    return {
        "data": data,
        "tokens": {"vocab_size": 320},
        "batches": {"tokens": 800},
        "model": {**MODEL, **model},
        "train": {
            "out": str(out), "max_steps": steps, "schedule": "cosine", "rate": 0.005, "warmup_steps": 30, "threads": 1,
            "save_every": steps, "average": 1, "label_smoothing": 0.0, "clip": 1.0,
        },
    }  # fmt: skip


def test_a_language_model_knows_how_much_there_is_to_guess(tmp_path):
    """Each of four parts of a made-up sentence is one of four, by chance: 4 log 4 nats, no more and no less."""
    text = write_lines(tmp_path / "text", [source for source, _ in sentences(2000)])
    values = recipe(tmp_path / "m", {"kind": "decoder_only", "decoder_layers": 2}, 500, train=[[str(text)]], max_length=32)
    out = train(values, Console(quiet=True))
    found = load_single_stack(out)
    rows = found.text.source.encode([source for source, _ in sentences(100, seed=7)])
    with torch.no_grad():
        nats = [-float(token_scores(found.model, torch.tensor(row)).sum()) for row in rows]
    assert np.mean(nats) == pytest.approx(4 * math.log(4), rel=0.2)
    written = [each.text for each in Generator(out).text(["The dog"], sample=True, n_best=20, seed=3)[0]]
    known = {source for source, _ in sentences(20_000, seed=5)}
    assert sum(text in known for text in written) >= 12


def test_word_order_is_learned_which_no_bag_of_words_holds(tmp_path):
    """Who sees whom: the words are the same, only their order tells. Hidden words first, then classes."""
    chance, things = random.Random(1), ["dog", "cat", "bird", "horse", "fox", "cow"]
    pairs = []
    while len(pairs) < 1500:
        first, second = chance.sample(things, 2)
        pairs.append((f"the {first} sees the {second}", "up" if things.index(first) < things.index(second) else "down"))
    text = write_lines(tmp_path / "text", [pair[0] for pair in pairs])
    common = {"kind": "encoder_only", "encoder_layers": 2}
    first = train(recipe(tmp_path / "first", common, 100, train=[[str(text)]]), Console(quiet=True))
    values = recipe(tmp_path / "second", {"kind": "encoder_only"}, 150, train=[write_pairs(tmp_path, "labelled", pairs)])
    values["model"] = {"kind": "encoder_only"}
    values["train"]["start"] = str(first)
    found = Classifier(train(values, Console(quiet=True))).texts([text for text, _ in pairs[:200]])
    assert np.mean([each.name == label for each, (_, label) in zip(found, pairs)]) >= 0.97


def test_digits_are_seen(tmp_path):
    digits = pytest.importorskip("sklearn.datasets").load_digits()
    order = np.random.RandomState(0).permutation(len(digits.target))
    train_part, test = order[:1400], order[1400:]
    images = np.round(digits.images * 255 / 16).astype(np.uint8)
    write_idx(tmp_path / "images.idx", images[train_part])
    write_idx(tmp_path / "labels.idx", digits.target[train_part].astype(np.uint8))
    files = [str(tmp_path / "images.idx"), str(tmp_path / "labels.idx")]
    model = {"kind": "vision", "encoder_layers": 2, "patch": 2, "positions": "learned", "max_positions": 17}
    out = train(recipe(tmp_path / "m", model, 250, train=[files]), Console(quiet=True))
    found = Classifier(out).images(images[test][:, None])
    assert np.mean([int(each.name) == digit for each, digit in zip(found, digits.target[test])]) >= 0.85


def test_what_is_drawn_is_what_was_asked_for(tmp_path):
    """Bright bars at the left, at the right, above or below, each a little otherwise."""
    chance = np.random.RandomState(1)
    names = ["left", "right", "above", "below"]
    numbers = chance.randint(0, 4, 600)
    images = chance.randint(0, 60, (600, 8, 8))
    bars = [np.s_[:, :4], np.s_[:, 4:], np.s_[:4, :], np.s_[4:, :]]
    for image, number in zip(images, numbers):
        image[bars[number]] += 140
    write_idx(tmp_path / "images.idx", images)
    write_lines(tmp_path / "labels", [names[number] for number in numbers])
    files = [str(tmp_path / "images.idx"), str(tmp_path / "labels")]
    model = {"kind": "drawing", "decoder_layers": 2, "patch": 2, "codes": 16}
    out = train(recipe(tmp_path / "m", model, 400, train=[files], max_length=8), Console(quiet=True))
    drawn = Generator(out).images(names, n_best=25, seed=1, temperature=0.5)[:, 0].astype(float)
    brightest = [int(np.argmax([image[bar].mean() for bar in bars])) for image in drawn]
    assert np.mean([found == number // 25 for number, found in enumerate(brightest)]) >= 0.9
