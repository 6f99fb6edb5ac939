"""`undivided paper race`: entrants of equal size, the same budget, a report, and nothing trained twice."""

import dataclasses
import json

import pytest
import torch

from samples import sentences, write_pairs
from undivided.artifact import Artifact
from undivided.config import CorpusFiles, ModelConfig, build_recipe
from undivided.config.yaml_file import read_yaml
from undivided.core.errors import InputError
from undivided.models import make_model
from undivided.paper.race.race import (
    ENTRANTS,
    RaceConfig,
    by_kind,
    count_parameters,
    length_bins,
    match_width,
    select_models,
    settings_for,
)
from undivided.paper.race.reach import gradients, measure_reach

RECIPES = {"transformer": "en-de", "recurrent": "recurrent", "convolutional": "convolutional"}
TINY = """
tokens: {vocab_size: 300}
batches: {tokens: 400}
model: {d_model: 16, d_ff: 64, n_heads: 2, encoder_layers: 1, decoder_layers: 1, dropout: 0.0, norm: pre}
train: {schedule: cosine, rate: 0.005, warmup_steps: 2, max_steps: 4, save_every: 4, log_every: 2, threads: 1}
search: {beam_size: 1, max_extra: 5}
"""


def plan(recipes, tmp_path):
    return RaceConfig(recipes, list(ENTRANTS), 1, CorpusFiles("a", "b"), tmp_path)


@pytest.fixture
def shipped(pytestconfig):
    return {kind: read_yaml(pytestconfig.rootpath / "recipes" / f"multi30k-{name}.yaml") for kind, name in RECIPES.items()}


@pytest.mark.parametrize("given", [("transformer",), ("transformer", "recurrent", "convolutional")])
def test_all_have_as_many_parameters_and_the_same_data_and_budget(shipped, given, tmp_path):
    race = plan({kind: shipped[kind] for kind in given}, tmp_path)
    recipes = {name: build_recipe(settings_for(race, name)) for name in ENTRANTS}
    base = recipes["transformer"]
    for name, recipe in recipes.items():
        assert count_parameters(recipe.model) == pytest.approx(count_parameters(base.model), rel=0.015), name
        assert (recipe.model.d_model, recipe.model.tie) == (base.model.d_model, base.model.tie)
        assert (recipe.data, recipe.tokens, recipe.batches, recipe.search) == (base.data, base.tokens, base.batches, base.search)
        assert (recipe.train.max_steps, recipe.train.minutes) == (base.train.max_steps, base.train.minutes)
        assert recipe.model.kind == ENTRANTS[name].kind
    assert {recipe.model.cell for name, recipe in recipes.items() if "gru" in name} == {"gru"}
    assert [name for name, recipe in recipes.items() if recipe.model.kind == "recurrent" and recipe.model.attention == "none"] == [
        "rnn", "lstm", "gru",
    ]  # fmt: skip


def test_shipped_recipes_are_as_large_as_the_transformers(shipped):
    sizes = {}
    for kind, values in shipped.items():
        config = build_recipe(values).model
        sizes[kind] = sum(parameter.numel() for parameter in make_model(config, 6000, 6000).parameters())
        assert count_parameters(config) == sizes[kind] - 6000 * config.d_model
    assert max(sizes.values()) <= 1.01 * min(sizes.values()), sizes


@pytest.mark.parametrize("target", [3_000, 50_000, 400_000])
@pytest.mark.parametrize(
    "model", [{"kind": "recurrent", "cell": "gru"}, {"kind": "convolutional"}], ids=lambda model: model["kind"]
)
def test_a_width_is_the_nearest(target, model):
    config = ModelConfig(d_model=16, encoder_layers=2, decoder_layers=2, **model)
    width = match_width(config, target)

    def off(each):
        return abs(count_parameters(dataclasses.replace(config, d_hidden=each)) - target)

    assert width % 2 == 0
    assert off(width) == min(off(each) for each in range(2, width + 20, 2))


def test_bins_hold_every_sentence_once():
    words = [1, 2, 2, 3, 5, 8, 8, 8, 13, 21, 34]
    bins = length_bins(words)
    assert all(sum(low <= count <= high for low, high in bins) == 1 for count in words)
    assert length_bins([4, 4]) == [(4, 4)]


def test_every_source_token_has_a_gradient(translator):
    artifact = translator.artifact
    source, target = artifact.tokenizer.source.encode(["The dog sees a tree today."])[0], [5, 9, 3]
    found = gradients(artifact, source, target)
    assert found.shape == (len(source),)
    assert (found > 0).all()
    result = measure_reach(artifact, ["The dog sees a tree."] * 5, ["der Hund sieht einen Baum."] * 5)
    assert result.distances == sorted(result.distances)
    assert len(result.sizes) == len(result.distances)


def test_a_fixed_context_reaches_less_far_than_attention():
    """Of fresh models: through a plain tanh chain gradients die out with distance; attention has a short path."""
    share = {}
    for attention in ("none", "additive"):
        torch.manual_seed(1)
        settings = {"kind": "recurrent", "cell": "rnn", "attention": attention, "d_model": 32, "bidirectional": False}
        recipe = build_recipe({"model": {**settings, "encoder_layers": 1, "decoder_layers": 1}})
        model = make_model(recipe.model, 60, 60).eval()
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                if "weight_hh" in name:
                    parameter.mul_(0.7)
        artifact = Artifact(recipe, None, model)  # type: ignore[arg-type]
        found = gradients(artifact, list(range(4, 44)), [5, 6, 3])
        share[attention] = float(found[:4].mean() / found[-4:].mean())
    assert share["none"] < 1e-3
    assert share["additive"] > 100 * share["none"]


def test_the_race_runs_reports_and_goes_on(tmp_path, run):
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(TINY)
    files = write_pairs(tmp_path, "train", sentences(60))
    valid = write_pairs(tmp_path, "valid", sentences(12, seed=2))
    command = [
        "paper", "race", recipe, "--train", *files, "--valid", *valid, "--source-lang", "en", "--target-lang", "de",
        "--models", "gru,transformer,convolutional", "--out", tmp_path / "race",
    ]  # fmt: skip
    first = run(*command)
    assert first.code == 0, first.err
    report = (tmp_path / "race" / "report.md").read_text(encoding="utf-8")
    rows = [line for line in first.out.splitlines() if line.startswith("|")][2:]
    assert [row.split("|")[1].strip() for row in rows] == ["GRU, fixed context", "convolutional", "Transformer"]
    assert "undivided paper race" in report
    assert "BLEU by length" in report
    figures = json.loads((tmp_path / "race" / "report.json").read_text())
    assert all(entry["steps"] == [4] and entry["translated tokens a second"] >= 0 for entry in figures.values())
    for name in ("report-length.svg", "report-reach.svg"):
        assert "Transformer" in (tmp_path / "race" / name).read_text(encoding="utf-8")
    again = run(*command)
    assert again.err.count("already trained") == 3
    assert again.out == first.out
    other = write_pairs(tmp_path, "other", sentences(12, seed=3))
    refused = run(*command, "--test", *other)
    assert refused.code == 2
    assert "started there with other settings" in refused.err


def test_bad_input_is_said_at_once(tmp_path, run):
    recipe = tmp_path / "vision.yaml"
    recipe.write_text("model: {kind: vision}")
    ran = run("paper", "race", recipe, recipe, "--models", "lstn", "--seeds", "0")
    assert ran.code == 2
    for message in (
        "did you mean 'lstm'?",
        "--seeds: 0",
        "two recipes have a vision model",
        "cannot race",
        "must be that of the Tr",
    ):
        assert message in ran.err
    assert select_models("transformer, rnn") == ["rnn", "transformer"]
    with pytest.raises(InputError, match="must be that of the Transformer"):
        by_kind([{"model": {"kind": "recurrent"}}])
