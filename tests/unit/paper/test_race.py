"""`undivided paper race`: entrants of equal size, the same budget, a report, and nothing trained twice."""

import dataclasses
import functools
import json

import pytest
import torch

from samples import sentences, write_pairs
from undivided.artifact import Artifact
from undivided.config import CorpusFiles, ModelConfig, build_recipe
from undivided.config.yaml_file import read_yaml
from undivided.core.errors import InputError
from undivided.models import make_model
from undivided.paper.race import trials
from undivided.paper.race.curves import Point, bleu_at, curve_chart, curve_lines, leaders, read_curve
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
from undivided.paper.race.trials import Trial, TrialPlan, best_trial, describe_trials, trial_settings
from undivided.paper.runs import Part

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
        "--models", "gru,transformer,convolutional", "--out", tmp_path / "race", "--validate-every", "2",
    ]  # fmt: skip
    part = run(*command, "--part", "2/2")
    assert part.code == 0, part.err
    assert part.out == ""
    assert "1 of 1 trainings to do: about" in part.err
    assert not (tmp_path / "race" / "gru-1").exists()
    first = run(*command)
    assert first.code == 0, first.err
    assert first.err.count("already trained") == 1
    report = (tmp_path / "race" / "report.md").read_text(encoding="utf-8")
    rows = [line for line in first.out.splitlines() if line.startswith("|")][2:]
    assert [row.split("|")[1].strip() for row in rows] == ["GRU, fixed context", "convolutional", "Transformer"]
    assert "undivided paper race" in report
    assert "BLEU by length" in report
    figures = json.loads((tmp_path / "race" / "report.json").read_text())
    assert all(entry["steps"] == [4] and entry["translated tokens a second"] >= 0 for entry in figures.values())
    for name in ("report-length.svg", "report-reach.svg"):
        assert "Transformer" in (tmp_path / "race" / name).read_text(encoding="utf-8")
    assert "Validation BLEU over minutes" in report
    assert "Transformer" in (tmp_path / "race" / "report-curves.svg").read_text(encoding="utf-8")
    assert all([point["step"] for point in entry["curves"][0]] == [2, 4] for entry in figures.values())
    assert "## After 4 steps each, by length of the source" in report
    again = run(*command)
    assert again.err.count("already trained") == 3
    assert again.out == first.out
    other = write_pairs(tmp_path, "other", sentences(12, seed=3))
    refused = run(*command, "--test", *other)
    assert refused.code == 2
    assert "started there with other settings" in refused.err


def test_trials_choose_rate_and_dropout_on_validation(tmp_path, run, monkeypatch):
    monkeypatch.setattr(trials, "TrialPlan", functools.partial(TrialPlan, factors=(2.0,)))
    recipe = tmp_path / "tiny.yaml"
    recipe.write_text(TINY)
    files, valid = write_pairs(tmp_path, "train", sentences(40)), write_pairs(tmp_path, "valid", sentences(4, seed=2))
    command = [
        "paper", "race", recipe, "--train", *files, "--valid", *valid, "--source-lang", "en", "--target-lang", "de",
        "--models", "transformer", "--trials", "5", "--minutes", "5", "--out", tmp_path / "race",
    ]  # fmt: skip
    ran = run(*command)
    assert ran.code == 0, ran.err
    assert "3 of 3 trainings to do: about 15:00 min" in ran.err
    entry = json.loads((tmp_path / "race" / "report.json").read_text())["transformer"]
    tried = [Trial(**each) for each in entry["trials"]]
    assert [(each.rate, each.dropout) for each in tried] == [(0.01, 0.1), (0.01, 0.3)]
    chosen = json.loads((tmp_path / "race" / "transformer-1" / "training" / "recipe.json").read_text())["recipe"]
    assert (chosen["train"]["rate"], chosen["model"]["dropout"]) == best_trial(tried)[:2]
    assert "2 trainings of 5 minutes each" in (tmp_path / "race" / "report.md").read_text(encoding="utf-8")


def test_which_trials_and_which_seeds(shipped, tmp_path):
    plan_of_all = TrialPlan(3.0)
    values = settings_for(plan(shipped, tmp_path), "gru-attention")
    found = trial_settings(plan_of_all, values, tmp_path)
    rate = build_recipe(values).train.rate
    assert {(each["train"]["rate"], each["model"]["dropout"]) for each in found} == {
        (round(rate * factor, 6), dropout) for factor in (0.5, 1, 2) for dropout in (0.1, 0.3)
    }
    assert len({each["train"]["out"] for each in found}) == 6
    assert {each["train"]["minutes"] for each in found} == {3.0}
    config = dataclasses.replace(plan(shipped, tmp_path), seeds=3, seeded=("transformer",), part=Part(2, 2))
    names = config.part.of(config.names)
    assert config.runs(["rnn", "transformer"]) == [("rnn", 1), ("transformer", 1), ("transformer", 2), ("transformer", 3)]
    assert sorted(names + Part(1, 2).of(config.names)) == sorted(ENTRANTS)


def test_the_best_trial():
    tried = [Trial(0.1, 0.1, 3.0, 9.0), Trial(0.2, 0.1, 4.0, 9.5), Trial(0.3, 0.1, 4.0, 9.1)]
    assert best_trial(tried).rate == 0.3
    assert "**rate 0.3, dropout 0.1: 4.00 (9.10)**" in describe_trials(tried)


def curve(*points):
    return [
        Point(step, minutes, bleu, 9.0, {"bleu_1_to_10_subwords": bleu, "bleu_over_40_subwords": 1.0})
        for step, minutes, bleu in points
    ]


def test_who_is_ahead_when():
    curves = {
        "fast": [curve((500, 1.0, 10.0), (1000, 2.0, 12.0), (1500, 3.0, 13.0))],
        "slow": [curve((500, 2.0, 9.0), (1000, 4.0, 20.0)), curve((500, 2.0, 11.0), (900, 2.8, 30.0))],
    }
    assert [bleu_at(curves["fast"][0], minutes) for minutes in (0.5, 1.0, 2.9)] == [0.0, 10.0, 12.0]
    assert leaders(curves) == [(1.0, "fast"), (2.8, "slow")]
    text = "\n".join(curve_lines(curves, "x.svg"))
    assert "fast from minute 1.0 on; slow from minute 2.8 on" in text
    assert "## After 500 steps each" in text
    assert "| slow | 2.0 | 10.00 | 10.00 | 1.00 |" in text
    assert "| model | minutes | BLEU | 1 to 10 subwords | over 40 subwords |" in text
    (_, slow) = curve_chart(curves).series
    assert slow.bounds[0] == (9.0, 11.0)


def test_a_curve_keeps_the_last_validation_of_a_step(tmp_path):
    log = tmp_path / "training" / "log.jsonl"
    log.parent.mkdir()
    events = [("validation", 2, 1.0), ("step", 3, None), ("validation", 4, 2.0), ("validation", 4, 3.0), ("final", 5, 4.0)]
    lines = [{"event": name, "step": step, "seconds": 60 * step, "bleu": bleu, "perplexity": 5.0} for name, step, bleu in events]
    log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(point.step, point.minutes, point.bleu) for point in read_curve(tmp_path)] == [(2, 2, 1.0), (4, 4, 3.0), (5, 5, 4.0)]


def test_bad_input_is_said_at_once(tmp_path, run):
    recipe = tmp_path / "vision.yaml"
    recipe.write_text("model: {kind: vision}")
    assert run("paper", "race", recipe, "--trials", "-1").code == 2
    assert "--seeded: 'grv' is none of" in run("paper", "race", recipe, "--seeded", "grv").err
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
