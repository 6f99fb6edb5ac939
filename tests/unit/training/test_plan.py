"""The plan of a training is what the training then costs."""

import pytest
import torch

from samples import sentences, write_pairs
from undivided.artifact import load_artifact
from undivided.config import build_recipe
from undivided.core.console import Console
from undivided.core.ids import EOS
from undivided.data.batches import make_batch
from undivided.models import make_model
from undivided.nn.loss import smoothed_loss
from undivided.training.plan import make_plan, measure, model_cost, paper_flops, report
from undivided.training.recipe import preview_recipe

VARIATIONS = [
    {},
    {"activation": "swiglu"},
    {"d_k": 8, "d_v": 24},
    {"encoder_layers": 1, "decoder_layers": 3},
]


def small(**model):
    shape = {"d_model": 64, "d_ff": 96, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2}
    return build_recipe({"model": shape | model, "tokens": {"vocab_size": 500}, "batches": {"tokens": 240}})


def rows(length, count):
    torch.manual_seed(0)
    return [[*row, EOS] for row in torch.randint(5, 500, (count, length - 1)).tolist()]


@pytest.mark.parametrize("model", VARIATIONS)
def test_flops_are_those_of_the_products(model):
    """Counted by torch itself, in a forward pass."""
    from torch.utils.flop_counter import FlopCounterMode

    recipe, batch = small(**model), make_batch(rows(12, 20), rows(12, 20))
    net = make_model(recipe.model, 500, 500).eval()
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        states = net.decode(net.encode(batch.src, None), batch.tgt_in)
        net.logits(states)
    cost = model_cost(recipe.model, 500, 12)
    ours = 240 * (cost.per_source_token + cost.per_target_token)
    assert counter.get_total_flops() == pytest.approx(ours, rel=0.01)
    assert cost.step_flops(240, 240) == 3 * ours


@pytest.mark.parametrize("model", VARIATIONS)
def test_memory_is_what_is_kept_for_the_backward_pass(model):
    recipe, batch = small(**model), make_batch(rows(12, 20), rows(12, 20))
    net = make_model(recipe.model, 500, 500).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    kept = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        states = net.decode(net.encode(batch.src, None), batch.tgt_in)
        smoothed_loss(states, net.output_weight, batch.tgt_out, 0.1)
    plan = make_plan(recipe, length=12)
    ours = 240 * (plan.cost.bytes_per_source_token + plan.cost.bytes_per_target_token)
    assert sum(kept.values()) == pytest.approx(ours, rel=0.25)


def test_parameters_are_the_papers():
    assert make_plan(build_recipe({"preset": "base"})).parameters / 1e6 == pytest.approx(65, abs=2.5)
    assert make_plan(build_recipe({"preset": "big"})).parameters / 1e6 == pytest.approx(213, abs=5)


def test_the_papers_own_count():
    """Table 2: 3.3e18 and 2.3e19; the products alone must be less than what the hardware could have done."""
    assert paper_flops("base") == pytest.approx(3.3e18, rel=0.02)
    assert paper_flops("big") == pytest.approx(2.3e19, rel=0.02)
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
    assert (recipe.preset, recipe.tokens.vocab_size) == ("tiny", 2_000)
    assert preview_recipe(values | {"preset": "small"}, Console(quiet=True)).model.d_model == 256
    there = load_artifact(model)
    recipe = preview_recipe({"train": {"start": str(model)}}, Console(quiet=True))
    assert (recipe.model, recipe.tokens.vocab_size) == (there.recipe.model, len(there.tokenizer.source))
    assert make_plan(recipe).parameters == sum(parameter.numel() for parameter in there.model.parameters())


def test_a_plan_does_without_files_that_are_not_there(tmp_path):
    absent = {"source": str(tmp_path / "a"), "target": str(tmp_path / "b")}
    assert preview_recipe({"data": {"train": [absent]}}, Console(quiet=True)) == build_recipe({"data": {"train": [absent]}})
