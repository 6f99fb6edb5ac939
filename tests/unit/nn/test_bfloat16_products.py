"""Products of factors rounded to bfloat16 beside those in float32, and when a training takes them."""

import subprocess

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from samples import flags, sentences, tiny_recipe, write_pairs
from undivided.artifact import Artifact
from undivided.config import ModelConfig, SearchConfig, build_recipe
from undivided.core.errors import InputError
from undivided.core.ids import PAD
from undivided.inference.engines.torch import TorchEngine
from undivided.models import make_model
from undivided.nn.backend import (
    PackedWeights,
    bfloat16,
    bfloat16_products,
    choose_precision,
    linear,
    packing_works,
    uses_bfloat16,
)
from undivided.nn.backend.dispatch import linear_relu
from undivided.nn.backend.packed import supports_packing
from undivided.nn.layers import FeedForward, Linear
from undivided.nn.loss import consistent_loss, smoothed_loss
from undivided.training.distributed import Group
from undivided.training.gradients import GradientWorkers

CPU = torch.device("cpu")


@pytest.fixture
def asked(monkeypatch):
    """How many times the processor was tried, with what it answers and a cache of its own."""

    def ask(home, answer, code=0):
        calls = []

        def run(command, **options):
            calls.append(command)
            if code:
                raise subprocess.CalledProcessError(code, command)
            return subprocess.CompletedProcess(command, code, answer, "")

        monkeypatch.setattr(bfloat16, "cache_folder", lambda: home)
        monkeypatch.setattr(bfloat16.subprocess, "run", run)
        bfloat16.bfloat16_pays.cache_clear()
        return calls

    yield ask
    bfloat16.bfloat16_pays.cache_clear()


def rounded(x):
    return x.bfloat16().double()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(7,), (3, 5), (2, 3, 4)])
def test_factors_are_rounded_and_sums_are_not(bias, shape):
    """Against the exact product of the rounded factors: what is left is one rounding of the result."""
    torch.manual_seed(0)
    linear, x = Linear(300, 20, bias), torch.randn(*shape, 300, requires_grad=True)
    with bfloat16_products():
        out = linear(x)
    exact = rounded(x) @ rounded(linear.weight).t() + (rounded(linear.bias) if bias else 0)
    assert out.dtype is torch.float32
    assert torch.allclose(out.double(), exact, rtol=2**-8, atol=1e-3)
    assert not torch.allclose(out.double(), (x.double() @ linear.weight.double().t()), rtol=1e-6, atol=1e-6)
    slope = torch.randn_like(out)
    found = torch.autograd.grad(out, [x, *linear.parameters()], slope)
    flat, rows = rounded(slope).flatten(0, -2), rounded(x).flatten(0, -2)
    wanted = [rounded(slope) @ rounded(linear.weight), flat.t() @ rows, slope.flatten(0, -2).sum(0)]
    for ours, right in zip(found, wanted):
        assert ours.dtype is torch.float32
        assert (ours - right).norm() <= 0.005 * right.norm()


def test_feed_forward_is_the_same_but_for_rounding():
    torch.manual_seed(0)
    layer = FeedForward(ModelConfig(d_model=32, d_ff=64))
    x = torch.randn(3, 6, 32, requires_grad=True)
    exact = layer(x)
    with bfloat16_products():
        out = layer(x)
    assert 0 < (out - exact).norm() < 0.01 * exact.norm()
    slope = torch.randn_like(out)
    sides = [torch.autograd.grad(each, [x, *layer.parameters()], slope) for each in (out, exact)]
    for ours, right in zip(*sides):
        assert (ours - right).norm() < 0.04 * right.norm()


@pytest.mark.parametrize("activation_dropout", [0.0, 0.5])
@pytest.mark.parametrize("activation", ["relu", "swiglu"])
def test_every_feed_forward_may_have_rounded_products(activation, activation_dropout):
    layer = FeedForward(ModelConfig(d_model=32, d_ff=64, activation=activation, activation_dropout=activation_dropout))
    with bfloat16_products():
        layer(torch.randn(2, 5, 32)).sum().backward()
    assert all(bool(each.grad.isfinite().all()) and each.grad.norm() > 0 for each in layer.parameters())


def exact_loss(states, weight, labels):
    """The smoothed loss by PyTorch."""
    logits = (states @ weight.t()).flatten(0, 1)
    return F.cross_entropy(logits, labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"), None


def one_pass(states, weight, labels):
    return smoothed_loss(states, weight, labels, 0.1)


def two_passes(states, weight, labels):
    return consistent_loss(states, weight, labels, 0.1, 5.0)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize(("passes", "rounded", "exactly"), [(1, one_pass, exact_loss), (2, two_passes, two_passes)])
def test_the_loss_is_near_the_exact_one(passes, rounded, exactly, kernels, monkeypatch):
    if not kernels:
        monkeypatch.setattr("undivided.nn.backend.choice.supports_kernels", lambda *tensors: False)
    torch.manual_seed(0)
    states, weight = torch.randn(2 * passes, 9, 32, requires_grad=True), torch.randn(50, 32, requires_grad=True)
    labels = torch.randint(4, 50, (2, 9))
    labels[1, 6:] = PAD
    exact, _ = exactly(states, weight, labels)
    with bfloat16_products():
        loss, _ = rounded(states, weight, labels)
    assert float(loss.detach()) == pytest.approx(float(exact.detach()), rel=0.01)
    sides = [torch.autograd.grad(each, (states, weight)) for each in (loss, exact)]
    for ours, right in zip(*sides):
        assert ours.dtype is torch.float32
        assert (ours - right).norm() < 0.03 * right.norm()


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_the_gradient_of_a_whole_model_points_the_same_way(norm):
    torch.manual_seed(0)
    model = make_model(
        ModelConfig(d_model=64, d_ff=96, n_heads=4, encoder_layers=2, decoder_layers=2, dropout=0, norm=norm), 90, 90
    )
    src, tgt = torch.randint(4, 90, (6, 11)), torch.randint(4, 90, (6, 9))

    def gradient(on):
        with bfloat16_products(on):
            loss, _ = smoothed_loss(model.decode(model.encode(src, None), tgt), model.output_weight, tgt.roll(-1, 1), 0.1)
        return torch.cat([each.flatten() for each in torch.autograd.grad(loss, list(model.parameters()))])

    exact, ours = gradient(False), gradient(True)
    assert not torch.equal(exact, ours)
    assert F.cosine_similarity(exact, ours, dim=0) > 0.999


def test_outside_of_it_nothing_is_rounded():
    linear, x = Linear(8, 8), torch.randn(3, 8)
    with bfloat16_products():
        assert uses_bfloat16(x)
        assert not uses_bfloat16(x.double())
        with bfloat16_products(False):
            assert not uses_bfloat16(x)
    assert not uses_bfloat16(x)
    assert torch.equal(linear(x), nn.Linear.forward(linear, x))


def test_what_is_asked_for():
    assert choose_precision("float32", CPU) is torch.float32
    assert choose_precision("bfloat16", CPU) is torch.bfloat16
    assert choose_precision("float16", torch.device("meta")) is torch.float16
    assert choose_precision("auto", torch.device("meta")) is torch.float32
    with pytest.raises(InputError, match="float16 is for GPUs"):
        choose_precision("float16", CPU)


@pytest.mark.parametrize(("answer", "code", "chosen"), [
    ("2.1\n", 0, torch.bfloat16), ("1.1\n", 0, torch.float32), ("0.1\n", 0, torch.float32), ("", 0, torch.float32),
    ("2.1\n", -4, torch.float32),
])  # fmt: skip
def test_a_cpu_is_tried_once_in_a_process_of_its_own(tmp_path, asked, answer, code, chosen):
    calls = asked(tmp_path, answer, code)
    assert choose_precision("auto", CPU) is chosen
    bfloat16.bfloat16_pays.cache_clear()
    assert choose_precision("auto", CPU) is chosen
    assert len(calls) == 1


def test_a_damaged_memory_of_the_trial_is_made_anew(tmp_path, asked):
    calls = asked(tmp_path, "2.1\n")
    assert bfloat16.bfloat16_pays()
    (kept,) = tmp_path.iterdir()
    kept.write_text("")
    bfloat16.bfloat16_pays.cache_clear()
    assert bfloat16.bfloat16_pays()
    assert (len(calls), kept.read_text()) == (2, "2.1\n")


def test_the_trial_itself_tells_a_ratio(tmp_path, monkeypatch):
    monkeypatch.setattr(bfloat16, "cache_folder", lambda: tmp_path)
    bfloat16.bfloat16_pays.cache_clear()
    pays = bfloat16.bfloat16_pays()
    bfloat16.bfloat16_pays.cache_clear()
    (kept,) = tmp_path.iterdir()
    assert pays == (float(kept.read_text()) >= bfloat16.MIN_SPEEDUP)


@pytest.mark.parametrize(("setting", "least", "chosen"), [
    ("auto", 0.0, torch.float32), ("auto", 1.0, torch.bfloat16), ("bfloat16", 0.0, torch.bfloat16)
])  # fmt: skip
def test_what_does_not_pay_in_one_process_is_done_in_none(monkeypatch, setting, least, chosen):
    class Others(Group):
        def min_values(self, *numbers):
            return [min(each, least) for each in numbers]

    monkeypatch.setattr(bfloat16, "bfloat16_pays", lambda: True)
    assert GradientWorkers(build_recipe({"train": {"precision": setting}}), None, Others(device=CPU)).precision is chosen


def test_what_a_device_cannot_do_is_said_before_anything_is_written(tmp_path, run):
    recipe = tiny_recipe(tmp_path / "run", write_pairs(tmp_path, "train", sentences(60)))
    recipe["train"] |= {"precision": "float16", "device": "cpu"}
    result = run("train", *flags(recipe))
    assert result.code == 2
    assert "float16 is for GPUs" in result.err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("precision", ["bfloat16", "float32"])
def test_a_training_says_what_it_computes_with_and_learns(tmp_path, run, precision):
    import json

    recipe = tiny_recipe(tmp_path / "run", write_pairs(tmp_path, "train", sentences(60)))
    recipe["train"] |= {"precision": precision, "max_steps": 30, "log_every": 10}
    assert run("train", *flags(recipe)).code == 0
    log = [json.loads(line) for line in (tmp_path / "run" / "training" / "log.jsonl").read_text().splitlines()]
    losses = [event["loss"] for event in log if event["event"] == "step"]
    assert losses[-1] < 0.9 * losses[0]
    assert json.loads((tmp_path / "run" / "config.json").read_text())["facts"]["precision"] == precision
    assert f"products in {precision}" in (tmp_path / "run" / "README.md").read_text()


packed = pytest.mark.skipif(not packing_works(), reason="this PyTorch has no packed weights")


@packed
@pytest.mark.parametrize("shape", [(1, 40), (16, 40), (3, 7, 40), (2, 150, 40)])
def test_packed_weights_change_nothing_but_the_last_bits(shape):
    torch.manual_seed(0)
    x, weight, bias, packs = torch.randn(shape), torch.randn(72, 40), torch.randn(72), PackedWeights()
    with torch.inference_mode(), packs.use():
        for _ in range(2):
            torch.testing.assert_close(linear(x, weight), F.linear(x, weight), rtol=1e-5, atol=1e-4)
            torch.testing.assert_close(linear(x, weight, bias), F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
            torch.testing.assert_close(linear_relu(x, weight, bias), F.linear(x, weight, bias).relu(), rtol=1e-5, atol=1e-4)
    assert len(packs._packed) == 1


@packed
def test_packed_weights_may_be_rounded():
    torch.manual_seed(0)
    x, weight, bias, packs = torch.randn(5, 7, 40), torch.randn(72, 40), torch.randn(72), PackedWeights(rounded=True)
    wanted = x @ weight.t() + bias
    with torch.inference_mode(), packs.use():
        out = linear(x, weight, bias)
        assert out.dtype is torch.float32
        assert 0 < (out - wanted).norm() < 0.01 * wanted.norm()
        torch.testing.assert_close(linear(x, weight, bias, exact=True), wanted, rtol=1e-5, atol=1e-4)
        assert (linear_relu(x, weight, bias) - wanted.relu()).norm() < 0.01 * wanted.norm()


@packed
def test_rows_in_the_midst_of_a_tensor_are_read_as_they_are_and_nothing_is_written():
    torch.manual_seed(0)
    whole, weight, packs = torch.randn(50, 40), torch.randn(72, 40), PackedWeights()
    before = whole.clone()
    with torch.inference_mode(), packs.use():
        for part in (whole[3:20], whole[45:], whole[:, :40:1], whole.t()[:, :40].t()[:7]):
            torch.testing.assert_close(linear(part, weight), F.linear(part, weight), rtol=1e-5, atol=1e-4)
    assert torch.equal(whole, before)


@packed
def test_weights_are_packed_only_where_nothing_is_learned():
    x, layer, packs = torch.randn(4, 32), Linear(32, 16), PackedWeights()
    with packs.use():
        layer(x).sum().backward()
        with torch.no_grad():
            layer(x)
        assert not packs._packed
        with torch.inference_mode():
            layer(x)
            assert list(packs._packed) == [(id(layer.weight), torch.float32)]
            assert not supports_packing(x.double())
            assert not supports_packing(x.to("meta"))
    with torch.inference_mode():
        other = Linear(32, 16)
        other(x)
    assert len(packs._packed) == 1


@packed
def test_a_translator_of_changed_weights_packs_them_anew():
    """Training validates with the same tensors again and again, each time with other numbers in them."""
    model = make_model(ModelConfig(d_model=32, d_ff=64, n_heads=2, encoder_layers=1, decoder_layers=1), 40, 40).eval()
    artifact = Artifact(build_recipe({}), None, model)

    def scores():
        found = TorchEngine(artifact).search([[5, 6, 7, 3]], SearchConfig(beam_size=2, max_extra=5), [[]], [0])
        return [each.log_probability for _, found in found for each in found]

    before = scores()
    assert scores() == before
    with torch.no_grad():
        for each in model.parameters():
            each.add_(0.1 * torch.randn_like(each))
    assert scores() != pytest.approx(before, abs=1e-3)


def test_without_packed_weights_products_are_as_ever(monkeypatch):
    monkeypatch.setattr("undivided.nn.backend.packed.packing_works", lambda: False)
    x, weight, packs = torch.randn(4, 32), torch.randn(16, 32), PackedWeights()
    with torch.inference_mode(), packs.use():
        assert torch.equal(linear(x, weight), F.linear(x, weight))
    assert not packs._packed
