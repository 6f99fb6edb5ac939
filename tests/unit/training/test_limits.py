"""A training says which limit ended it."""

import pytest

from undivided.config import TrainConfig
from undivided.data.batches import StreamPosition
from undivided.training.journal import RunState
from undivided.training.limits import seconds_left, why_finished


@pytest.mark.parametrize(
    ("limits", "state", "why"),
    [
        ({"minutes": 2}, {"seconds": 120.0}, "2:00 min of training (--minutes)"),
        ({"patience": 3}, {"since_best": 3}, "3 validations in a row brought no better score (--patience)"),
        ({"max_epochs": 1}, {"place": StreamPosition(epoch=1)}, "1 epoch (--max-epochs)"),
        ({"max_steps": 7}, {"step": 7}, "7 steps (--max-steps)"),
        ({"minutes": 2, "patience": 3, "max_epochs": 1, "max_steps": 7}, {"step": 6, "seconds": 119.0, "since_best": 2}, ""),
    ],
)
def test_why(limits, state, why):
    assert why_finished(RunState(**state), TrainConfig(**limits)) == why


def test_the_nearest_limit_tells_the_time_left():
    state = RunState(step=10, seconds=10.0, target_tokens=1000)
    assert seconds_left(state, TrainConfig(max_steps=110), 500) == pytest.approx(100)
    assert seconds_left(state, TrainConfig(max_steps=110, minutes=0.5), 500) == pytest.approx(20)
    assert seconds_left(state, TrainConfig(max_steps=110, max_epochs=3), 500) == pytest.approx(5)
