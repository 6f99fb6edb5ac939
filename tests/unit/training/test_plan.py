"""The plan of a training is what the training then costs."""

import pytest

from samples import sentences, write_pairs
from undivided.artifact import load_artifact
from undivided.config import build_recipe
from undivided.core.console import Console
from undivided.models.cost import count_products
from undivided.training.plan import make_plan, measure, paper_flops, report
from undivided.training.recipe import preview_recipe


def small(**model):
    shape = {"d_model": 64, "d_ff": 96, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
    return build_recipe({"model": shape | model, "tokens": {"vocab_size": 500}, "batches": {"tokens": 240}})


@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_every_kind_is_counted_as_what_it_is(kind):
    """Not as a Transformer of that width."""
    recipe = build_recipe({"model": {"kind": kind, "d_model": 64}, "tokens": {"vocab_size": 500}, "batches": {"tokens": 240}})
    plan = make_plan(recipe, length=12)
    assert plan.step_flops == pytest.approx(20 * count_products(recipe.model, 500, 12, 12).training_flops)
    assert f"{plan.step_flops:.2e} FLOPs" in report(plan, None)
    assert plan.memory_bytes > 16 * plan.parameters


def test_parameters_are_the_papers():
    assert make_plan(build_recipe({"preset": "base"})).parameters / 1e6 == pytest.approx(65, abs=2.5)
    assert make_plan(build_recipe({"preset": "big"})).parameters / 1e6 == pytest.approx(213, abs=5)


def test_the_papers_own_count():
    """The products alone must be less than what the hardware could have done."""
    for preset in ("base", "big"):
        assert 0.2 < make_plan(build_recipe({"preset": preset})).total_flops / paper_flops(preset) < 1


def test_a_plan_allocates_nothing_and_says_what_it_assumed():
    plan = make_plan(build_recipe({"preset": "big"}))
    text = report(plan, None)
    for word in ("assumed", "300,000 steps", "A100", "the paper's count 2.3e+19", "20 are kept"):
        assert word in text
    assert "this machine" not in text


def test_measured_in_seconds_on_this_machine():
    plan = make_plan(small(), length=10)
    speed = measure(plan, seconds=0.05)
    assert 0 < speed.training_flops < 2 * speed.product_flops
    assert "this machine" in report(plan, speed)
    assert "assumed" not in report(plan, speed)


def test_a_plan_says_what_ends_a_training_earlier():
    limits = {"minutes": 90, "patience": 1}
    assert "; stops before that after 90 minutes or 1 validation without" in report(
        make_plan(build_recipe({"train": limits}), 25), None
    )
    assert "stops before" not in report(make_plan(build_recipe({}), 25), None)


def test_a_plan_is_of_the_model_that_training_would_make(tmp_path, model):
    source, target = write_pairs(tmp_path, "train", sentences(40))
    values = {"data": {"train": [{"source": source, "target": target}]}}
    recipe = preview_recipe(values, Console(quiet=True))
    assert (recipe.preset, recipe.model.encoder_layers, recipe.tokens.vocab_size) == ("", 3, 2_000)
    assert preview_recipe(values | {"preset": "small"}, Console(quiet=True)).model.d_model == 256
    there = load_artifact(model)
    recipe = preview_recipe({"train": {"start": str(model)}}, Console(quiet=True))
    assert (recipe.model, recipe.tokens.vocab_size) == (there.recipe.model, len(there.tokenizer.source))
    assert make_plan(recipe).parameters == sum(parameter.numel() for parameter in there.model.parameters())


def test_a_plan_does_without_files_that_are_not_there(tmp_path):
    absent = {"source": str(tmp_path / "a"), "target": str(tmp_path / "b")}
    assert preview_recipe({"data": {"train": [absent]}}, Console(quiet=True)) == build_recipe({"data": {"train": [absent]}})


def test_a_plan_promises_no_second_on_a_gpu():
    """A small model is bound by launching kernels: 8,000 steps take minutes on any GPU."""
    plan = make_plan(build_recipe({"preset": "tiny", "tokens": {"vocab_size": 4000}}))
    said = report(plan, None)
    assert "arithmetic from their data sheets, not measured; a step is taken to last at least 20 ms" in said
    (line,) = (line for line in said.splitlines() if line.startswith("H100"))
    assert line.startswith("H100              2:40 min on one"), line
