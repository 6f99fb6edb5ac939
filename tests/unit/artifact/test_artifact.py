import json
import shutil

import pytest
import torch

from undivided import Translator
from undivided.artifact import FORMAT_VERSION, Artifact, load_artifact, open_artifact, save_artifact
from undivided.artifact import save as saving
from undivided.artifact.weights import fill_weights, weights
from undivided.config import build_recipe
from undivided.core import manifest
from undivided.core.errors import InputError
from undivided.core.manifest import INCOMING
from undivided.models import make_model

PARTS = ("config.json", "model.safetensors", "subwords.model", "shortlist.safetensors", "README.md", "manifest.json")


@pytest.fixture
def folder(model, tmp_path):
    """A copy of the model folder, free to be harmed."""
    home = tmp_path / "model"
    home.mkdir()
    for part in PARTS:
        shutil.copy(model / part, home / part)
    return home


def resign(folder):
    """Make the manifest agree with changed parts."""
    manifest.write(folder, json.loads((folder / "manifest.json").read_text())["sha256"])


def change_config(folder, **facts):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | facts))
    resign(folder)


def test_training_leaves_exactly_the_model_folder(model):
    there = {path.name for path in model.iterdir()}
    assert there == {*PARTS, "training"}


def test_saved_and_loaded_is_equal(folder, tmp_path, translator):
    first = load_artifact(folder)
    save_artifact(first, tmp_path / "again")
    second = load_artifact(tmp_path / "again")
    assert second.recipe == first.recipe
    assert second.facts == first.facts
    ours, theirs = weights(first.model), weights(second.model)
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    lines = ["The dog sees a tree today.", "A cat likes the river again.", "never seen 東京"]
    assert Translator(tmp_path / "again", threads=1, engine="torch").translate(lines) == translator.translate(lines)


def test_weights_that_are_read_later_are_those_of_the_model_that_was_opened(folder):
    first, second = open_artifact(folder), open_artifact(folder)
    found, wanted = weights(first.model).values(), weights(load_artifact(folder).model).values()
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    other = load_artifact(folder)
    with torch.no_grad():
        next(other.model.parameters()).add_(1.0)
    save_artifact(other, folder)
    with pytest.raises(InputError, match="model: the model changed while it was in use"):
        second.model  # noqa: B018
    assert weights(first.model)


def test_tied_weights_are_stored_once(folder):
    names = weights(load_artifact(folder).model)
    assert sum("embedding" in name or name == "output_weight" for name in names) == 1


def test_saving_over_a_model_replaces_it(folder):
    old = load_artifact(folder)
    with torch.no_grad():
        old.model.output_weight += 1
    save_artifact(old, folder)
    assert torch.equal(load_artifact(folder).model.output_weight, old.model.output_weight)
    assert not [path.name for path in folder.iterdir() if path.name not in PARTS]


@pytest.mark.parametrize("part", ["config.json", "model.safetensors", "subwords.model", "shortlist.safetensors", "manifest.json"])
def test_a_missing_part_is_named(folder, part):
    (folder / part).unlink()
    with pytest.raises(InputError, match=f"{part} is missing"):
        load_artifact(folder)


@pytest.mark.parametrize("part", ["config.json", "model.safetensors", "subwords.model", "shortlist.safetensors", "manifest.json"])
@pytest.mark.parametrize("harm", ["flipped", "truncated", "emptied"])
def test_a_damaged_part_is_named(folder, part, harm):
    content = bytearray((folder / part).read_bytes())
    content[len(content) // 2] ^= 0x10
    changed = {"flipped": content, "truncated": content[: len(content) // 2], "emptied": b""}[harm]
    (folder / part).write_bytes(changed)
    with pytest.raises(InputError, match=str(folder)) as caught:
        load_artifact(folder)
    assert f"{part} is damaged" in str(caught.value)


@pytest.mark.parametrize("text", ["[]", "{}", '{"sha256": []}', '{"sha256": {}}', "null", '{"sha256": {"config.json": ""}}'])
def test_odd_manifests(folder, text):
    (folder / "manifest.json").write_text(text)
    with pytest.raises(InputError, match=r"manifest\.json is damaged"):
        load_artifact(folder)


def test_not_a_model_folder(tmp_path):
    with pytest.raises(InputError, match="no such model folder"):
        load_artifact(tmp_path / "none")
    with pytest.raises(InputError, match="not a model folder"):
        load_artifact(tmp_path)
    (tmp_path / "training").mkdir()
    with pytest.raises(InputError, match="has not written a model yet"):
        load_artifact(tmp_path)


def test_a_newer_format_is_refused_with_advice(folder):
    change_config(folder, format_version=FORMAT_VERSION + 1, undivided_version="9.1", recipe={"unknown": 1})
    with pytest.raises(InputError, match=r"9\.1.*pip install -U undivided"):
        load_artifact(folder)


@pytest.mark.parametrize("facts", [{"format": "other"}, {"format_version": "one"}])
def test_another_format_is_refused(folder, facts):
    change_config(folder, **facts)
    with pytest.raises(InputError, match="does not describe a model"):
        load_artifact(folder)


def test_vocabulary_and_weights_must_fit(folder):
    change_config(folder, vocabulary=[5, 5])
    with pytest.raises(InputError, match="tokens, but"):
        load_artifact(folder)


def test_weights_that_do_not_fit_are_named():
    config = build_recipe({"model": {"d_model": 16, "n_heads": 2, "d_ff": 8, "encoder_layers": 1, "decoder_layers": 1}}).model
    model = make_model(config, 300, 300)
    tensors = weights(model)
    name = next(iter(tensors))
    with pytest.raises(InputError, match="is missing"):
        fill_weights(model, {key: value for key, value in tensors.items() if key != name}, "here")
    with pytest.raises(InputError, match="stranger is unknown to this model"):
        fill_weights(model, tensors | {"stranger": torch.zeros(1)}, "here")
    with pytest.raises(InputError, match=r"here: .*has shape \(1,\)"):
        fill_weights(model, tensors | {name: torch.zeros(1)}, "here")


OUTSIDE = ["../secret", "/etc/passwd", "a/../../b", "..", "sub/config.json", "a\\b", "C:x", "", "x\0", "manifest.json"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_parts_outside_the_folder_are_refused(folder, name):
    sums = json.loads((folder / "manifest.json").read_text())["sha256"]
    (folder / "manifest.json").write_text(manifest.render(sums | {name: "0" * 64}))
    with pytest.raises(InputError, match="no file of this folder"):
        load_artifact(folder)


class Crash(BaseException):
    """As if the power had gone."""


def changed(folder):
    new = load_artifact(folder)
    with torch.no_grad():
        new.model.output_weight.fill_(0.5)
    return new


def is_new(folder) -> bool:
    return bool((load_artifact(folder).model.output_weight == 0.5).all())


def crash_at(monkeypatch, place, name, number):
    """Let the `number`-th call of a function be the last."""
    real, calls = getattr(place, name), []

    def wrapped(*arguments, **more):
        calls.append(arguments)
        if len(calls) == number:
            raise Crash
        return real(*arguments, **more)

    monkeypatch.setattr(place, name, wrapped)


def test_a_crash_before_the_new_model_is_whole_keeps_the_old(folder, monkeypatch):
    new = changed(folder)
    with monkeypatch.context() as patch:
        crash_at(patch, saving, "model_card", 1)
        with pytest.raises(Crash):
            save_artifact(new, folder)
    assert not is_new(folder)
    save_artifact(new, folder)
    assert is_new(folder)


@pytest.mark.parametrize("number", [1, 2, 3, 5])
def test_a_crash_while_settling_leaves_the_new_model(folder, monkeypatch, number):
    new = changed(folder)
    with monkeypatch.context() as patch:
        crash_at(patch, saving.shutil, "copyfileobj", number)
        with pytest.raises(Crash):
            save_artifact(new, folder)
    assert (folder / INCOMING).is_dir()
    assert is_new(folder)
    save_artifact(load_artifact(folder), folder)
    assert is_new(folder)
    assert not (folder / INCOMING).exists()


def test_a_crash_while_cleaning_up_leaves_the_new_model(folder, monkeypatch):
    new, real = changed(folder), shutil.rmtree

    def half(path, *arguments, **more):
        if path.name.startswith(INCOMING) and (path / "manifest.json").exists():
            (path / "manifest.json").unlink()
            raise Crash
        real(path, *arguments, **more)

    with monkeypatch.context() as patch:
        patch.setattr(saving.shutil, "rmtree", half)
        with pytest.raises(Crash):
            save_artifact(new, folder)
    assert is_new(folder)


def test_the_card_tells_what_was_measured(model):
    card = (model / "README.md").read_text()
    facts = json.loads((model / "config.json").read_text())["facts"]
    assert "en → de" in card
    assert facts["scores"]["validation BLEU"]["signature"] in card
    assert "nrefs:1" in card
    for files in facts["data"].values():
        assert all(sha256 in card for sha256 in files.values())


KINDS = {
    "Transformer, 1 + 1 layers": {"kind": "transformer", "d_ff": 32, "n_heads": 2},
    "recurrent (gru, bidirectional) with additive attention and input feeding": {
        "kind": "recurrent", "cell": "gru", "attention": "additive", "input_feeding": True, "d_hidden": 24,
    },
    "recurrent (rnn, unidirectional) with a fixed context": {
        "kind": "recurrent", "cell": "rnn", "attention": "none", "bidirectional": False,
    },
    "kernels of 5": {"kind": "convolutional", "kernel_width": 5, "d_hidden": 24},
}  # fmt: skip


@pytest.mark.parametrize("said", KINDS)
def test_every_kind_of_model_comes_back_from_its_folder(said, translator, tmp_path):
    old = translator.artifact
    values = {"model": {"d_model": 16, "encoder_layers": 1, "decoder_layers": 1, **KINDS[said]}, "data": {"source_lang": "en"}}
    recipe = build_recipe(values, "tiny")
    fresh = make_model(recipe.model, len(old.tokenizer.source), len(old.tokenizer.target)).eval()
    made = Artifact(recipe, old.tokenizer, fresh)
    save_artifact(made, tmp_path / "m")
    back = load_artifact(tmp_path / "m")
    assert back.recipe == recipe
    assert type(back.model) is type(fresh)
    lines = ["The dog sees a tree today.", "A cat", "never seen"]
    assert Translator(back).score(lines, lines) == Translator(made).score(lines, lines)
    assert Translator(back).translate(lines, max_extra=5) == Translator(made).translate(lines, max_extra=5)
    assert said in (tmp_path / "m" / "README.md").read_text()
