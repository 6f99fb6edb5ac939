"""Training as a pipeline of values: what is prepared once, and handed on without reading it again from files."""

import hashlib
import io
import json
import logging
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from samples import sentences, tiny_recipe, write_lines, write_pairs
from undivided.core.console import Console
from undivided.core.errors import InputError, UndividedError
from undivided.data.batches import ImageBatch, TextBatch, make_batch
from undivided.data.images import write_idx
from undivided.inference.score import Score
from undivided.training import shortlists
from undivided.training.loop import Trainer, train
from undivided.training.prepare import prepare
from undivided.training.tasks import Validation
from undivided.training.tasks.classes import ImageClassTask
from undivided.training.tasks.translation import TranslationTask

QUIET = Console(quiet=True, stream=io.StringIO())


@pytest.fixture
def recipe(tmp_path):
    files = [write_pairs(tmp_path, name, sentences(count)) for name, count in (("train", 40), ("valid", 5))]
    values = tiny_recipe(tmp_path / "run", *files)
    values["train"] |= {"max_steps": 4, "save_every": 2, "validate_every": 1, "average": 1, "validate_lines": 2}
    return values


def longer(recipe):
    return recipe | {"train": recipe["train"] | {"max_steps": recipe["train"]["max_steps"] + 2}}


def test_corpora_are_hashed_once_per_start(recipe, monkeypatch):
    hashed: Counter[str] = Counter()
    file_digest = hashlib.file_digest

    def counting(stream, name):
        hashed[stream.name] += 1
        return file_digest(stream, name)

    monkeypatch.setattr(hashlib, "file_digest", counting)
    corpora = [path for part in ("train", "valid") for files in recipe["data"][part] for path in files]
    for values in (recipe, longer(recipe)):
        hashed.clear()
        train(values, QUIET)
        assert [hashed[Path(path)] + hashed[path] for path in corpora] == [1, 1, 1, 1]


def test_the_shortlist_is_learned_once(recipe, monkeypatch):
    learn, learned, scores = shortlists.learn_shortlist, [], iter(range(1, 100))

    def learning(*arguments):
        learned.append(learn(*arguments))
        return learned[-1]

    monkeypatch.setattr(shortlists, "learn_shortlist", learning)
    monkeypatch.setattr(TranslationTask, "measure", lambda self: Validation(Score("BLEU", next(scores), "made up"), {}))
    run = train(recipe, QUIET)
    assert len(learned) == 1
    (kept,) = (run / "training").glob("store-*/shortlist-*.safetensors")
    before = (run / "shortlist.safetensors").read_bytes()
    train(longer(recipe), QUIET)
    assert len(learned) == 1
    assert (run / "shortlist.safetensors").read_bytes() == before
    kept.write_bytes(b"damaged")
    train(longer(longer(recipe)), QUIET)
    assert len(learned) == 2
    assert (run / "shortlist.safetensors").read_bytes() == before


def test_what_is_prepared_is_handed_on_without_files(recipe):
    with prepare(recipe, QUIET) as prepared:
        saved = json.loads((prepared.folder / "recipe.json").read_text())
        assert (saved["digests"], saved["pairs"]) == (prepared.digests, prepared.examples)
        (prepared.folder / "recipe.json").unlink()
        shutil.rmtree(prepared.folder / "subwords")
        trainer = Trainer(prepared, QUIET)
        trainer.advance(trainer.task.stream.plans())
    assert trainer.state.target_tokens > 0
    assert not prepared.resumes
    assert sorted(prepared.data_digests()["train"]) == sorted(recipe["data"]["train"][0])


def test_a_run_that_was_started_resumes(recipe):
    for resumes in (False, True):
        with prepare(recipe, QUIET) as prepared:
            assert prepared.resumes is resumes


def test_checkpoints_of_another_version_are_refused_with_what_to_do(recipe):
    with prepare(recipe, QUIET) as prepared:
        run = Trainer(prepared, QUIET).run
    found = run.to_checkpoint()
    found.state["moons"] = 3
    with pytest.raises(InputError, match=r"moons.*resume with that version, or start over with another --out"):
        run.restore(found)


def test_without_a_console_messages_go_to_the_logger(recipe, caplog, capsys):
    with caplog.at_level(logging.INFO, logger="undivided"):
        train(recipe)
    assert any("the model is in" in message for message in caplog.messages)
    assert capsys.readouterr().err == ""


# What one example is called where not even it fits into memory.


@pytest.fixture
def images(tmp_path):
    pixels = np.random.default_rng(1).integers(0, 255, (12, 8, 6, 1), dtype=np.uint8)
    write_idx(tmp_path / "images.idx", pixels[..., 0])
    labels = write_lines(tmp_path / "labels", ["cat", "dog"] * 6)
    return {
        "data": {"train": [[str(tmp_path / "images.idx"), str(labels)]]},
        "model": {"kind": "vision", "d_model": 16, "d_ff": 16, "n_heads": 2, "encoder_layers": 1, "patch": 2},
        "train": {"out": str(tmp_path / "vit"), "max_steps": 2, "threads": 1},
    }


@pytest.mark.parametrize(("most", "said"), [
    (0, "out of memory for one image of 8 × 6 pixels: train a smaller model, or start over with smaller images"),
    (100, "from now on batches of more than 96 pixel values are split"),
])  # fmt: skip
def test_a_vision_model_out_of_memory_is_told_of_images(images, monkeypatch, most, said):
    loss = ImageClassTask.loss

    def losing(self, batch):
        if batch.size > most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return loss(self, batch)

    monkeypatch.setattr(ImageClassTask, "loss", losing)
    told = io.StringIO()
    try:
        train(images, Console(stream=told))
    except UndividedError as error:
        told.write(str(error))
    assert said in told.getvalue()
    assert "subwords" not in told.getvalue()


BATCHES = [
    (make_batch([[5, 6, 2], [7, 2], [8, 2]], [[5, 2], [6, 7, 8, 2], [9, 2]]), 12, "one pair of 3 and 4 subwords"),
    (TextBatch(torch.ones(3, 5), torch.zeros(3)), 15, "one text of 5 subwords"),
    (ImageBatch(torch.ones(3, 1, 4, 2), torch.zeros(3, 5)), 24, "one image of 4 × 2 pixels"),
]


@pytest.mark.parametrize(("batch", "size", "example"), BATCHES)
def test_batches_split_without_loss_and_name_an_example(batch, size, example):
    assert (len(batch), batch.size, batch.describe_example()) == (3, size, example)
    first, second = batch.split()
    assert (type(first), len(first), len(second)) == (type(batch), 1, 2)
    for name, tensor in vars(batch).items():
        assert torch.equal(torch.cat([getattr(first, name), getattr(second, name)]), tensor)
    assert batch.to(torch.device("cpu")) is batch
