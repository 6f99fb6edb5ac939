"""A training that was stopped before it wrote a model is usable: its last checkpoint serves."""

import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from samples import sentences, write_lines
from undivided import InputError, Translator
from undivided.artifact import find_unfinished, load_artifact
from undivided.core import manifest

LINE = sentences(1, seed=9)[0][0]


@pytest.fixture
def stopped(model, tmp_path):
    """What Ctrl-C or a kill leaves of a training without validation data."""
    shutil.copytree(model / "training", tmp_path / "run" / "training")
    return tmp_path / "run"


def test_translate_uses_the_last_checkpoint_and_says_so(run, stopped):
    ran = run("translate", stopped, LINE, "--engine", "torch", "--threads", "1")
    assert ran.code == 0
    assert len(ran.out.split()) > 2
    step = find_unfinished(stopped).step
    assert f"{stopped}: this training has not written a model yet; its last checkpoint, step {step:,}, is used" in ran.err


def test_a_damaged_checkpoint_is_passed_over(stopped):
    last = find_unfinished(stopped).checkpoint
    (last / "model.safetensors").write_bytes(b"half")
    assert find_unfinished(stopped).checkpoint < last
    assert Translator(stopped, engine="torch").translate(LINE)


def test_of_a_running_average_that_is_what_serves(stopped):
    """As in validation and at the end: mid-way it is far better than the weights themselves."""
    last = find_unfinished(stopped).checkpoint
    mean = {name: tensor / 2 for name, tensor in load_file(last / "model.safetensors").items()}
    save_file(mean, last / "ema.safetensors")
    manifest.write(last, [path.name for path in last.iterdir() if path.name != manifest.NAME])
    found = dict(load_artifact(stopped).model.named_parameters())
    assert found.keys() == mean.keys()
    assert all(torch.equal(found[name], mean[name]) for name in mean)


def test_average_takes_what_is_there(run, stopped, tmp_path):
    *old, _, _, _ = sorted((stopped / "training" / "checkpoints").iterdir())
    for path in old:
        shutil.rmtree(path)
    ran = run("average", stopped, "-o", tmp_path / "mean")
    assert ran.code == 0, ran.err
    found = Translator(tmp_path / "mean", engine="torch")
    assert found.artifact.facts["weights"] == "average of the last 3 checkpoints"
    ran = run("translate", tmp_path / "mean", LINE, "--engine", "torch")
    assert ran.code == 0
    assert "not written a model" not in ran.err
    assert run("average", stopped, "--last", "9", "-o", tmp_path / "other").code == 2


def test_other_verbs_use_it_too_or_say_what_does(run, stopped, tmp_path):
    files = [write_lines(tmp_path / side, [each]) for side, each in zip("st", sentences(1, seed=9)[0])]
    assert run("score", "--model", stopped, *files).code == 0
    assert run("look", stopped, LINE, "--fast").code == 0
    ran = run("translate", stopped, files[0], "-o", tmp_path / "out", "--workers", "1")
    assert ran.code == 2
    assert "undivided average" in ran.err


def test_a_run_without_a_checkpoint_is_no_model(stopped):
    shutil.rmtree(stopped / "training" / "checkpoints")
    with pytest.raises(InputError, match="Training has not written a model yet"):
        Translator(stopped)


@pytest.mark.parametrize("left", ["config.json", "model.safetensors"])
def test_a_model_that_lost_its_manifest_is_damaged_and_not_unfinished(model, stopped, left):
    shutil.copy(model / left, stopped / left)
    assert find_unfinished(stopped) is None
    with pytest.raises(InputError, match=r"manifest\.json is missing"):
        Translator(stopped)
