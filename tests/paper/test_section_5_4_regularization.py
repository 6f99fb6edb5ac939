"""Section 5.4: residual dropout, where it acts and what it does; label smoothing."""

import math

import pytest
import torch
import torch.nn.functional as F

from undivided.config import ModelConfig
from undivided.core.ids import PAD
from undivided.models import make_model
from undivided.nn import loss as loss_room
from undivided.nn.backend import choice
from undivided.nn.dropout import Dropout
from undivided.nn.loss import consistent_loss, smoothed_loss

SRC, TGT_IN = torch.tensor([[5, 6, 7, 3]]), torch.tensor([[2, 8, 9]])


def tiny(**changes):
    torch.manual_seed(0)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2} | changes
    return make_model(ModelConfig(**settings), 20, 20)


@pytest.fixture(autouse=True)
def _each_dropout_by_itself(monkeypatch):
    """The kernels join dropout with what follows, where no hook sees it; `test_kernels` shows that they do the same."""
    monkeypatch.setattr(choice, "supports_kernels", lambda *tensors: False)


def run(model):
    return model.decode(model.encode(SRC, None), TGT_IN)


def acting(model):
    """Names of the dropouts that, in one training pass, gave out something else than they took in."""
    names = []

    def watch(name):
        def hook(module, inputs, output):
            if not torch.equal(inputs[0], output):
                names.append(name)

        return hook

    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            module.register_forward_hook(watch(name))
    run(model.train())
    return sorted(names)


EMBEDDINGS = ["source_embedding.dropout", "target_embedding.dropout"]
SUBLAYERS = [f"encoder.{i}.residuals.{j}.dropout" for i in range(2) for j in range(2)]
SUBLAYERS += [f"decoder.{i}.residuals.{j}.dropout" for i in range(2) for j in range(3)]
INSIDE = [f"{stack}.{i}.feed_forward.dropout" for stack in ("encoder", "decoder") for i in range(2)]


def test_dropout_acts_on_embeddings_and_sub_layers_and_nowhere_else():
    assert acting(tiny(dropout=0.5)) == sorted(EMBEDDINGS + SUBLAYERS)


def test_activation_dropout_acts_inside_the_feed_forward_layers_when_asked():
    assert acting(tiny(dropout=0.0, activation_dropout=0.5)) == sorted(INSIDE)


@pytest.mark.parametrize("rates", [{}, {"attention_dropout": 0.5}, {"activation_dropout": 0.5}, {"dropout": 0.5}])
def test_nothing_else_in_training_is_random(rates):
    """Without any dropout training computes what evaluation does; each kind alone makes a difference."""
    model = tiny(**{"dropout": 0.0} | rates)
    with torch.no_grad():
        assert torch.equal(run(model.train()), run(model.eval())) == (not rates)


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_dropout_is_applied_to_each_sub_layers_output(norm):
    """ "Before it is added to the sub-layer input": the dropout takes what W^O or W₂ gave, just that."""
    model, given, taken = tiny(norm=norm).train(), [], []
    for layer in [*model.encoder, *model.decoder]:
        parts = [layer.self_attention, *([layer.cross_attention] if hasattr(layer, "cross_attention") else [])]
        for last in [*(part.output for part in parts), layer.feed_forward.outer]:
            last.register_forward_hook(lambda module, inputs, output: given.append(output))
        for residual in layer.residuals:
            residual.dropout.register_forward_hook(lambda module, inputs, output: taken.append(inputs[0]))
    run(model)
    assert len(given) == len(taken) == 10
    assert all(one is other for one, other in zip(given, taken))


def test_dropout_is_applied_to_the_sum_of_embedding_and_position():
    model, taken = tiny().train(), []
    model.source_embedding.dropout.register_forward_hook(lambda module, inputs, output: taken.append(inputs[0]))
    model.encode(SRC, None)
    wanted = model.source_embedding.weight[SRC] * 4.0 + model.source_embedding.positions.rows(4)
    torch.testing.assert_close(taken[0], wanted)


def test_defaults_are_those_of_base():
    config = ModelConfig()
    assert (config.dropout, config.attention_dropout, config.activation_dropout) == (0.1, 0.0, 0.0)


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.9])
def test_dropout_zeroes_its_share_and_keeps_the_expectation(share):
    torch.manual_seed(0)
    count, exact = 400_000, round(share * 256) / 256
    dropped = Dropout(share).train()(torch.ones(count))
    assert abs(exact - share) <= 1 / 512
    spread = math.sqrt(exact * (1 - exact) / count)
    assert abs(float((dropped == 0).double().mean()) - exact) < 5 * spread
    torch.testing.assert_close(dropped[dropped != 0].unique(), torch.tensor([1 / (1 - exact)]))
    assert abs(float(dropped.mean()) - 1) < 5 * spread / (1 - exact)


def test_dropout_of_neighbours_is_independent():
    torch.manual_seed(0)
    zero = (Dropout(0.5).train()(torch.ones(64, 4096)) == 0).double()
    for shift in range(1, 9):
        assert abs(float((zero[:, shift:] * zero[:, :-shift]).mean()) - 0.25) < 0.01
    assert abs(float((zero[1:] * zero[:-1]).mean()) - 0.25) < 0.01


def test_dropout_goes_back_through_the_same_mask():
    torch.manual_seed(0)
    x = torch.randn(50, 33, requires_grad=True)
    output = Dropout(0.3).train()(x)
    output.sum().backward()
    torch.testing.assert_close(x.grad * x.detach(), output.detach())
    assert 0 < (x.grad == 0).sum() < x.numel()


def test_dropout_draws_anew_each_time_and_repeats_with_the_seed():
    dropout, x = Dropout(0.5).train(), torch.ones(1000)
    torch.manual_seed(1)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(1)
    assert torch.equal(dropout(x), first)
    assert not torch.equal(first, second)


@pytest.mark.parametrize(("share", "training"), [(0.5, False), (0.0, True)])
def test_dropout_is_the_identity_in_evaluation_or_with_no_share(share, training):
    x = torch.randn(5)
    assert torch.equal(Dropout(share).train(training)(x), x)


@pytest.mark.parametrize("share", [0.997, 0.999])
def test_a_share_near_one_is_still_a_dropout(share):
    assert Dropout(share).train()(torch.ones(100)).isfinite().all()


def loss_case(dtype=torch.float64):
    rng = torch.Generator().manual_seed(0)
    states = torch.randn(3, 7, 8, generator=rng, dtype=dtype)
    weight = torch.randn(11, 8, generator=rng, dtype=dtype)
    tgt_out = torch.randint(4, 11, (3, 7), generator=rng)
    tgt_out[0, 4:] = tgt_out[2, 1:] = PAD
    return states.requires_grad_(), weight.requires_grad_(), tgt_out


def reference_loss(states, weight, tgt_out, smoothing):
    logits = (states @ weight.T).flatten(0, 1)
    return F.cross_entropy(logits, tgt_out.flatten(), ignore_index=PAD, label_smoothing=smoothing, reduction="sum")


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("rows", [1, 3, 4, 1000])
def test_smoothed_loss_and_gradients_equal_cross_entropy(monkeypatch, smoothing, rows):
    """Over chunks of 1, 3, 4 and all rows (there are 12 real tokens, so that chunks are whole, left over, and one)."""
    monkeypatch.setattr(loss_room, "CHUNK_ELEMENTS", 11 * rows)
    states, weight, tgt_out = loss_case()
    loss, likelihood = smoothed_loss(states, weight, tgt_out, smoothing)
    grads = torch.autograd.grad(loss, (states, weight))
    wanted = reference_loss(states, weight, tgt_out, smoothing)
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-6)
    assert float(likelihood) == pytest.approx(float(reference_loss(states, weight, tgt_out, 0.0).detach()), rel=1e-6)
    torch.testing.assert_close(grads, torch.autograd.grad(wanted, (states, weight)), atol=1e-10, rtol=1e-8)


def test_smoothed_loss_in_float32_and_scaled():
    states, weight, tgt_out = loss_case(torch.float32)
    loss, _ = smoothed_loss(states, weight, tgt_out, 0.1)
    grads = torch.autograd.grad(loss / 12, (states, weight))
    wanted = torch.autograd.grad(reference_loss(states, weight, tgt_out, 0.1) / 12, (states, weight))
    torch.testing.assert_close(grads, wanted, atol=1e-6, rtol=1e-5)


def test_padding_has_no_loss_and_no_gradient():
    states, weight, tgt_out = loss_case()
    loss, _ = smoothed_loss(states, weight, tgt_out, 0.1)
    loss.backward()
    assert torch.equal(states.grad.abs().sum(dim=-1) == 0, tgt_out == PAD)


def test_smoothing_is_spread_over_the_whole_vocabulary():
    """ε/V on every token, (1 − ε) more on the right one: against a sum over the vocabulary."""
    states, weight, tgt_out = loss_case()
    scores = (states @ weight.T).log_softmax(dim=-1)
    wanted = 0.0
    for row, token in zip(scores[tgt_out != PAD].tolist(), tgt_out[tgt_out != PAD].tolist()):
        wanted -= sum((0.1 / 11 + (0.9 if v == token else 0.0)) * row[v] for v in range(11))
    assert float(smoothed_loss(states, weight, tgt_out, 0.1)[0].detach()) == pytest.approx(wanted, rel=1e-6)


def plainly_consistent(states, weight, tgt_out, smoothing, strength):
    """The same by torch's own losses."""
    real = tgt_out != PAD
    first, second = (part[real] @ weight.t() for part in states.chunk(2))
    labels = tgt_out[real]
    right = sum(F.cross_entropy(each, labels, label_smoothing=smoothing, reduction="sum") for each in (first, second)) / 2
    p, q = first.log_softmax(-1), second.log_softmax(-1)
    apart = F.kl_div(p, q, log_target=True, reduction="sum") + F.kl_div(q, p, log_target=True, reduction="sum")
    return right + strength / 2 * apart / 2


@pytest.mark.parametrize("kernels", [True, False], ids=["kernels", "PyTorch"])
@pytest.mark.parametrize("strength", [0.5, 5.0])
def test_consistent_loss_and_gradients_equal_torchs(monkeypatch, strength, kernels):
    monkeypatch.setattr("undivided.nn.loss.CHUNK_ELEMENTS", 2 * 3 * 11)  # three rows at a time
    if not kernels:
        monkeypatch.setattr("undivided.nn.backend.choice.supports_kernels", lambda *tensors: False)
    torch.manual_seed(0)
    states, weight = torch.randn(6, 5, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    tgt_out = torch.randint(4, 11, (3, 5))
    tgt_out[1, 3:] = PAD
    loss, likelihood = consistent_loss(states, weight, tgt_out, 0.1, strength)
    wanted = plainly_consistent(states, weight, tgt_out, 0.1, strength)
    assert float(loss.detach()) == pytest.approx(float(wanted.detach()), rel=1e-5)
    for ours, right in zip(torch.autograd.grad(2 * loss, (states, weight)), torch.autograd.grad(2 * wanted, (states, weight))):
        torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-5)
    plain = sum(float(smoothed_loss(part, weight.detach(), tgt_out, 0.1)[1]) for part in states.detach().chunk(2)) / 2
    assert float(likelihood) == pytest.approx(plain, rel=1e-5)


def test_two_passes_that_agree_have_the_plain_loss():
    torch.manual_seed(0)
    states, weight = torch.randn(3, 5, 8), torch.randn(11, 8)
    tgt_out = torch.randint(4, 11, (3, 5))
    twice = float(consistent_loss(torch.cat([states, states]), weight, tgt_out, 0.1, 5.0)[0])
    assert twice == pytest.approx(float(smoothed_loss(states, weight, tgt_out, 0.1)[0]), rel=1e-5)
