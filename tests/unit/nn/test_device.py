"""What of the GPU paths can be run without a GPU: shapes on `meta`, half precision, the choice of device, the pool."""

import threading

import pytest
import torch
import torch.nn.functional as F

from undivided.config import ModelConfig
from undivided.core.errors import InputError
from undivided.core.ids import PAD
from undivided.models import make_model
from undivided.nn.device import ThreadPool, choose_device, use_threads
from undivided.nn.dropout import Dropout, seeded_dropout
from undivided.nn.loss import smoothed_loss


def small(**changes):
    return make_model(ModelConfig(d_model=32, d_ff=64, n_heads=4, encoder_layers=2, decoder_layers=2, **changes), 50, 50)


def test_unknown_and_absent_devices_are_refused():
    assert choose_device("cpu").type == "cpu"
    for name in ("gpu", "cuda:77"):
        with pytest.raises(InputError, match=name):
            choose_device(name)


def test_negative_threads_are_refused():
    with pytest.raises(InputError, match="less than 0"):
        use_threads(-1)


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "window": 4}, {"attention_dropout": 0.1, "activation": "swiglu"}])
def test_the_path_of_other_devices_has_the_same_shapes(changes):
    """On `meta` as on a GPU, attention takes the fused kernel and dropout torch's own."""
    with torch.device("meta"):
        model = small(**changes).train()
        src, tgt = torch.ones(3, 7, dtype=torch.long), torch.ones(3, 5, dtype=torch.long)
        memory = model.encode(src, src != PAD)
        assert model.decode(memory, tgt).shape == (3, 5, 32)
        state = model.start(memory)
        assert model.step(state, tgt[:, :1]).shape == (3, 1, 50)


def test_the_fused_kernel_gives_what_the_plain_products_give(monkeypatch):
    torch.manual_seed(0)
    model = small().eval()
    src, tgt = torch.tensor([[4, 5, 6, 3], [7, 3, PAD, PAD]]), torch.tensor([[2, 8, 9], [2, 10, PAD]])
    plain = model.decode(model.encode(src, src != PAD), tgt)
    monkeypatch.setattr("undivided.nn.backend.dispatch.LARGEST_SCORES", 0)
    assert torch.allclose(model.decode(model.encode(src, src != PAD), tgt), plain, atol=1e-6)


def test_the_loss_in_half_precision_is_near_the_exact_one():
    torch.manual_seed(0)
    states, weight = torch.randn(2, 9, 32, requires_grad=True), torch.randn(50, 32, requires_grad=True)
    labels = torch.randint(4, 50, (2, 9))
    labels[1, 6:] = PAD
    exact = F.cross_entropy(
        (states @ weight.t()).flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=0.1, reduction="sum"
    )
    wanted = torch.autograd.grad(exact, (states, weight))
    with torch.autocast("cpu", torch.bfloat16):
        loss, _ = smoothed_loss(states, weight, labels, 0.1)
    assert loss.dtype is torch.float32
    assert float(loss.detach()) == pytest.approx(float(exact.detach()), rel=0.02)
    for ours, theirs in zip(torch.autograd.grad(loss, (states, weight)), wanted):
        assert ours.dtype is torch.float32
        assert (ours - theirs).norm() < 0.03 * theirs.norm()


def test_a_crew_keeps_the_order_and_computes_with_one_thread_each():
    pool = ThreadPool(2)
    meeting = threading.Barrier(2, timeout=10)

    def work(number):
        meeting.wait()
        return number, torch.get_num_threads(), threading.current_thread().name

    results = pool.map(work, range(2))
    assert [number for number, _, _ in results] == [0, 1]
    assert {threads for _, threads, _ in results} == {1}
    assert len({name for _, _, name in results}) == 2


def test_an_error_in_a_crew_is_raised():
    with pytest.raises(ZeroDivisionError):
        ThreadPool(2).map(lambda number: 1 / number, [1, 0])


def test_seeded_dropout_repeats_and_gives_torch_its_generator_back():
    x, drop = torch.ones(1000), Dropout(0.5).train()

    def seeded(seed):
        with seeded_dropout(seed):
            return drop(x)

    def of_torch():
        torch.manual_seed(7)
        return drop(x)

    before = of_torch()
    assert torch.equal(seeded(1), seeded(1))
    assert not torch.equal(seeded(1), seeded(2))
    assert torch.equal(of_torch(), before)


def test_workers_of_a_crew_stay_alone_whatever_another_thread_sets():
    """A worker that had not computed yet took over the number that the main thread set: a run was not the same twice."""
    before, pool = torch.get_num_threads(), ThreadPool(2)
    pool.map(lambda _: None, range(2))
    try:
        torch.set_num_threads(2)
        assert set(pool.map(lambda _: torch.get_num_threads(), range(8))) == {1}
    finally:
        torch.set_num_threads(before)
