"""Section 5.3: Adam's values and the learning rate of Eq. 3."""

import pytest
import torch

from undivided.config import ModelConfig, TrainConfig
from undivided.models import make_model
from undivided.training.schedule import learning_rate, make_optimizer, paper_rate


@pytest.mark.parametrize("d_model", [128, 512, 1024])
@pytest.mark.parametrize("warmup", [1, 400, 4000])
def test_eq_3_equals_its_formula(d_model, warmup):
    for step in (1, 2, 10, 399, 400, 401, 3999, 4000, 4001, 100_000):
        rise, fall = step / (warmup * warmup**0.5), 1 / step**0.5
        wanted = (rise if step <= warmup else fall) / d_model**0.5
        assert paper_rate(step, d_model, warmup) == pytest.approx(wanted, rel=1e-12)


def test_eq_3_rises_linearly_to_its_peak_at_warmup_and_falls():
    rates = [paper_rate(step, 512, 4000) for step in range(1, 12_001)]
    assert max(rates) == rates[3999] == pytest.approx((512 * 4000) ** -0.5)
    assert rates[1999] == pytest.approx(rates[3999] / 2)
    assert rates[11_999] == pytest.approx(rates[3999] / 3**0.5)


def test_training_takes_eq_3_with_4000_steps_of_warmup_by_default():
    config = TrainConfig()
    assert [learning_rate(step, config, 512) for step in (1, 4000, 9000)] == [
        paper_rate(step, 512, 4000) for step in (1, 4000, 9000)
    ]


def test_factor_scales_eq_3():
    assert learning_rate(7, TrainConfig(rate=2.5), 128) == pytest.approx(2.5 * paper_rate(7, 128, 4000))


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine"])
def test_other_schedules_rise_to_their_peak_at_warmup(schedule):
    config = TrainConfig(schedule=schedule, rate=3e-4, warmup_steps=100, max_steps=1000)
    rates = [learning_rate(step, config, 512) for step in range(1, 1001)]
    assert max(rates) == rates[99] == pytest.approx(3e-4)
    assert rates[49] == pytest.approx(1.5e-4)
    assert rates[399] == pytest.approx(1.5e-4 if schedule == "inverse_sqrt" else 3e-4 * 0.75)
    assert rates[999] == pytest.approx(3e-4 / 10**0.5 if schedule == "inverse_sqrt" else 0.0)


def test_adam_has_the_values_of_the_paper():
    model = make_model(ModelConfig(d_model=16, d_ff=16, n_heads=2, encoder_layers=1, decoder_layers=1), 20, 20)
    optimizer = make_optimizer(model, TrainConfig())
    assert type(optimizer) is torch.optim.Adam
    (group,) = optimizer.param_groups
    assert (group["betas"], group["eps"], group["weight_decay"]) == ((0.9, 0.98), 1e-9, 0)
    assert {id(p) for p in group["params"]} == {id(p) for p in model.parameters()}


def test_adamw_is_an_option():
    model = make_model(ModelConfig(d_model=16, d_ff=16, n_heads=2, encoder_layers=1, decoder_layers=1), 20, 20)
    optimizer = make_optimizer(model, TrainConfig(optimizer="adamw", weight_decay=0.01, beta2=0.999))
    assert type(optimizer) is torch.optim.AdamW
    assert (optimizer.param_groups[0]["betas"], optimizer.param_groups[0]["weight_decay"]) == ((0.9, 0.999), 0.01)
