import pytest
import torch

from undivided.config import TrainConfig
from undivided.training.schedule import learning_rate, make_optimizer


def rates(steps, **config):
    return [learning_rate(step, TrainConfig(**config), d_model=64) for step in steps]


@pytest.mark.parametrize("schedule", ["paper", "inverse_sqrt", "cosine"])
def test_up_to_the_end_of_the_warmup_then_down(schedule):
    values = rates(range(1, 201), schedule=schedule, warmup_steps=50, max_steps=200, rate=0.5)
    assert values[:50] == sorted(values[:50])
    assert values[49:] == sorted(values[49:], reverse=True)
    assert values[0] == pytest.approx(values[49] / 50)
    assert all(value >= 0 for value in values)


@pytest.mark.parametrize("schedule", ["inverse_sqrt", "cosine"])
def test_the_peak_is_the_rate(schedule):
    assert rates([50], schedule=schedule, warmup_steps=50, max_steps=200, rate=0.5) == [0.5]


def test_inverse_square_root():
    assert rates([200], schedule="inverse_sqrt", warmup_steps=50, rate=0.5) == [pytest.approx(0.25)]


def test_cosine_ends_at_zero_and_stays():
    half, end, after = rates([125, 200, 300], schedule="cosine", warmup_steps=50, max_steps=200, rate=0.5)
    assert half == pytest.approx(0.25)
    assert (end, after) == (pytest.approx(0), pytest.approx(0))


def test_cosine_ends_with_the_time():
    config = TrainConfig(schedule="cosine", warmup_steps=1, max_steps=1_000_000, rate=1.0, minutes=2)
    assert learning_rate(5, config, 64, seconds=60) == pytest.approx(0.5)
    assert learning_rate(5, config, 64, seconds=120) == pytest.approx(0)


def test_on_a_slow_machine_the_warmup_ends_with_a_tenth_of_the_time():
    config = TrainConfig(schedule="cosine", warmup_steps=1000, max_steps=1_000_000, rate=1.0, minutes=2)
    assert learning_rate(2, config, 64, seconds=6) == pytest.approx(0.5)
    assert learning_rate(2, config, 64, seconds=13) > 0.95
    assert learning_rate(500, config, 64, seconds=1) == pytest.approx(0.5)


def test_a_warmup_longer_than_training_is_no_fault():
    assert rates([10], schedule="cosine", warmup_steps=100, max_steps=10, rate=1.0) == [pytest.approx(0.1)]


def test_optimizers():
    layer = torch.nn.Linear(2, 2)
    adam = make_optimizer(layer, TrainConfig())
    assert type(adam) is torch.optim.Adam
    assert (adam.defaults["betas"], adam.defaults["eps"]) == ((0.9, 0.98), 1e-9)
    adamw = make_optimizer(layer, TrainConfig(optimizer="adamw", weight_decay=0.3))
    assert type(adamw) is torch.optim.AdamW
    assert adamw.defaults["weight_decay"] == 0.3
