"""Weights that are not numbers, that overflow, or that were damaged after the folder was opened: refused with a sentence."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from samples import write_lines
from undivided.core import manifest
from undivided.core.errors import InputError
from undivided.inference.translator import Translator

BAD = {"NaN": float("nan"), "infinite": float("inf"), "overflowing": 3e38}


@pytest.fixture
def folder(model, tmp_path):
    return shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("training"))


def spoil(folder, value, where="all"):
    """Change weights and sign them anew, as a stranger can."""
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if where == "all" or where in name:
            tensors[name] = torch.full_like(tensor, value) if where == "all" else tensor.index_fill(0, torch.tensor([0]), value)
    save_file(tensors, folder / "model.safetensors")
    manifest.write(folder, json.loads((folder / "manifest.json").read_text())["sha256"])


@pytest.mark.parametrize("where", ["all", "output_weight", "feed_forward"])
@pytest.mark.parametrize("value", BAD.values(), ids=BAD.keys())
def test_weights_that_are_no_numbers_are_refused(run, folder, tmp_path, value, where):
    spoil(folder, value, where)
    text = write_lines(tmp_path / "in", ["The dog sees a tree today."])
    for command in (
        ["translate", folder, text, "--threads", "1"],
        ["translate", folder, text, "--engine", "torch"],
        ["score", text, text, "--model", folder],
        ["look", folder, "The dog sees a tree."],
    ):
        done = run(*command)
        assert done.code == 2, (command, done.err)
        assert "not finite" in done.err or "overflows" in done.err
        assert "Traceback" not in done.err


def overflow(folder):
    """Weights that are finite, and overflow for what `check_computes` does not try: two layers whose values multiply."""
    tensors = load_file(folder / "model.safetensors")
    for name, tensor in tensors.items():
        if tensor.dim() == 2 and "embedding" not in name:
            tensors[name] = torch.full_like(tensor, 1e20)
    save_file(tensors, folder / "model.safetensors")
    manifest.write(folder, json.loads((folder / "manifest.json").read_text())["sha256"])


@pytest.mark.parametrize("flags", [[], ["--sample"], ["--beam-size", "1"], ["--no-repeat-ngram", "2"], ["--n-best", "2"]])
def test_a_search_that_meets_what_is_no_number_is_refused(run, folder, tmp_path, monkeypatch, flags):
    """Not only the tokens that are tried when weights are read can overflow."""
    from undivided.artifact import weights

    overflow(folder)
    monkeypatch.setattr(weights, "check_computes", lambda *_: None)
    text = write_lines(tmp_path / "in", ["The dog sees a tree today."] * 3)
    for command in (["translate", folder, text, "--engine", "torch", *flags], ["score", text, text, "--model", folder, *flags]):
        done = run(*command, "--threads", "1")
        assert done.code == 2, (command, done.err)
        assert "not finite" in done.err
        assert "nan" not in done.out


@pytest.mark.parametrize("value", [1e20, 1e30])
def test_single_stack_models_that_overflow_are_refused(run, tmp_path, value):
    text = write_lines(tmp_path / "text", ["the dog sees a tree", "a cat likes the house"] * 10)
    labels = write_lines(tmp_path / "labels", ["up", "down"] * 10)
    small = ["--model.d_model", "16", "--model.d_ff", "16", "--model.n_heads", "2", "--vocab-size", "280", "--max-steps", "1"]
    for kind, files, commands in (
        (
            "decoder_only",
            [text],
            [["generate", "m", "the dog"], ["generate", "m", "the dog", "--sample"], ["score", text, "--model", "m"]],
        ),
        ("encoder_only", [text, labels], [["classify", "m", text]]),
    ):
        out = tmp_path / kind
        assert run("train", "--model.kind", kind, "--train", *files, "--out", out, *small, "--threads", "1").code == 0
        spoil(out, value, "weight")
        overflow(out)
        for command in commands:
            done = run(*(out if each == "m" else each for each in command), "--threads", "1")
            assert done.code == 2, (command, done.out, done.err)
            assert "not finite" in done.err


def test_weights_that_were_damaged_after_opening_are_refused_when_they_are_read(folder):
    pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    translator = Translator(folder, threads=1)
    assert Translator(folder, threads=1).translate("The dog sees a tree.")
    translator = Translator(folder, threads=1)
    content = bytearray((folder / "model.safetensors").read_bytes())
    content[-3] ^= 64
    (folder / "model.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=r"model\.safetensors is damaged"):
        translator.score(["The dog sees a tree."], ["Der Hund sieht einen Baum."])
