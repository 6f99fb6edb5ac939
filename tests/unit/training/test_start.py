"""Training that begins with another translator: fine-tuning, and students that take over what their teacher has."""

import dataclasses
import io
import re
import shutil

import pytest
import torch

from samples import sentences, tiny_recipe, write_pairs
from undivided.artifact import load_artifact, save_artifact
from undivided.config import PRESETS
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.training.distill import distill
from undivided.training.loop import Trainer, train


@pytest.fixture
def values(model, tmp_path):
    """A recipe that says nothing of the model but where it begins."""
    recipe = tiny_recipe(
        tmp_path / "out", write_pairs(tmp_path, "train", sentences(40)), write_pairs(tmp_path, "valid", sentences(5))
    )
    del recipe["model"], recipe["tokens"]
    recipe["train"] |= {"start": str(model), "max_steps": 2, "rate": 1e-12, "average": 1, "save_every": 2}
    return recipe


def train_barely(values) -> tuple[dict[str, torch.Tensor], str]:
    """The weights of a model after two steps that are as good as none, and what was said."""
    said = io.StringIO()
    trained = load_artifact(train(values, Console(stream=said)))
    return dict(trained.model.named_parameters()), said.getvalue()


def test_a_translator_goes_on_from_another(model, values):
    there = load_artifact(model)
    weights, said = train_barely(values)
    assert f"weights from {model}" in said
    assert "newly initialised" not in said
    found = load_artifact(values["train"]["out"])
    assert found.recipe.model == there.recipe.model
    assert found.tokenizer.source.model == there.tokenizer.source.model
    for name, tensor in there.model.named_parameters():
        assert torch.allclose(weights[name], tensor, atol=1e-6), name


def test_layers_that_both_have_are_taken_over(model, values):
    there = load_artifact(model)
    layers = there.recipe.model.encoder_layers
    values["model"] = {"encoder_layers": layers + 1}
    weights, said = train_barely(values)
    assert f"newly initialised: encoder.{layers}\n" in said
    for name, tensor in there.model.named_parameters():
        assert torch.allclose(weights[name], tensor, atol=1e-6), name
    assert any(name.startswith(f"encoder.{layers}.") for name in weights)


def test_a_student_takes_over_what_its_teacher_has(model, values, monkeypatch):
    monkeypatch.setitem(PRESETS, "fast", {"model": {"encoder_layers": 3, "decoder_layers": 1}})
    said = io.StringIO()
    student = load_artifact(distill(model, values | {"preset": "fast"}, Console(stream=said)))
    teacher = load_artifact(model).recipe.model
    assert (student.recipe.model.encoder_layers, student.recipe.model.decoder_layers) == (3, 1)
    assert student.recipe.model.d_model == teacher.d_model
    fresh = [f"encoder.{number}" for number in range(teacher.encoder_layers, 3)]
    assert f"newly initialised: {', '.join(fresh)}" in said.getvalue()


def test_another_width_is_an_error_that_names_what_differs(model, values):
    values["model"] = {"d_model": 2 * load_artifact(model).recipe.model.d_model}
    with pytest.raises(InputError, match=r"not of the same shape as this model: decoder.0, decoder_norm, encoder.0"):
        train(values, Console(quiet=True))


def test_a_run_that_resumes_does_not_start_over(values, monkeypatch):
    values["train"] |= {"rate": 1e-3}
    train(values, Console(quiet=True))
    before = {name: tensor.clone() for name, tensor in load_artifact(values["train"]["out"]).model.named_parameters()}
    monkeypatch.setattr(Trainer, "_is_finished", lambda self: True)
    said = io.StringIO()
    train({"train": {"out": values["train"]["out"]}}, Console(stream=said))
    assert "weights from" not in said.getvalue()
    after = dict(load_artifact(values["train"]["out"]).model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_named_preset_is_not_passed_over(model, values):
    with pytest.raises(InputError, match="not of the same shape"):
        train(values | {"preset": "base"}, Console(stream=io.StringIO()))


def test_a_vocabulary_of_another_size_is_not_passed_over_in_silence(values):
    values["tokens"] = {"vocab_size": 500}
    assert "tokens.vocab_size 500 is not used" in train_barely(values)[1]


def test_languages_and_search_are_those_of_the_start(model, values, tmp_path):
    changed = shutil.copytree(model, tmp_path / "changed")
    artifact = load_artifact(changed)
    data = dataclasses.replace(artifact.recipe.data, source_lang="en", target_lang="de")
    search = dataclasses.replace(artifact.recipe.search, length_penalty=0.9)
    artifact.recipe = dataclasses.replace(artifact.recipe, data=data, search=search)
    save_artifact(artifact, tmp_path / "start")
    values["train"] |= {"start": str(tmp_path / "start")}
    train_barely(values)
    recipe = load_artifact(values["train"]["out"]).recipe
    assert (recipe.data.source_lang, recipe.data.target_lang, recipe.search.length_penalty) == ("en", "de", 0.9)


def test_settings_that_cannot_be_leave_the_folder_free(model, values):
    with pytest.raises(InputError, match="not of the same shape"):
        train(values | {"model": {"d_model": 8}}, Console(stream=io.StringIO()))
    assert f"weights from {model}" in train_barely(values)[1]


def test_what_fine_tuning_gained_and_lost_is_said(model, values, tmp_path):
    """The old data is that of the model folder, as long as it holds what the folder says."""
    _, said = train_barely(values)
    assert "on the new data (5 pairs): BLEU " in said
    assert "on the old data (20 pairs): BLEU " in said
    before, after = re.findall(r"on the old data .*BLEU ([\d.]+) before fine-tuning, ([\d.]+) after", said)[0]
    assert before == after, "two steps with a rate of next to nothing"
    assert float(before) > 5


def test_old_data_may_be_named(values, tmp_path):
    values["data"]["old_valid"] = [write_pairs(tmp_path, "old", sentences(7, seed=3))]
    assert "on the old data (7 pairs)" in train_barely(values)[1]


def test_old_data_that_changed_is_not_used(model, values, tmp_path):
    there = load_artifact(model)
    changed = {"valid": dict.fromkeys(there.facts["data"]["valid"], "0" * 64)}
    save_artifact(dataclasses.replace(there, facts=there.facts | {"data": changed}), tmp_path / "changed")
    values["train"]["start"] = str(tmp_path / "changed")
    _, said = train_barely(values)
    assert "on the old data" not in said
    assert "what it forgot is not measured" in said
    assert "--old-valid" in said
