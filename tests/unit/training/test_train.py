"""What training writes beside checkpoints; that it learns, stops and resumes is shown in tests/system."""

import json

import pytest

from undivided.training.journal import Log, Meter, RunState


def test_every_number_is_a_line_of_json(tmp_path):
    log = Log(tmp_path, tensorboard=False)
    log.write("step", RunState(step=3, seconds=1.5, target_tokens=70), loss=2.5)
    log.write("validation", RunState(step=4), bleu=10.0, signature="nrefs:1")
    first, second = (json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines())
    assert first == {"event": "step", "step": 3, "epoch": 0, "seconds": 1.5, "target_tokens": 70, "loss": 2.5}
    assert (second["event"], second["bleu"], second["signature"]) == ("validation", 10.0, "nrefs:1")


@pytest.mark.filterwarnings("ignore")
def test_tensorboard_gets_the_same_numbers(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `tensorboard` is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = Log(tmp_path, tensorboard=True)
    for step, loss in ((1, 3.0), (2, 2.5)):
        log.write("step", RunState(step=step), loss=loss)
    log.board.close()
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    assert [(event.step, event.value) for event in events.Scalars("step/loss")] == [(1, 3.0), (2, 2.5)]


def test_a_meter_means_over_tokens_and_not_over_steps():
    meter = Meter()
    meter.add(loss=10.0, likelihood=0.0, tokens=10, seconds=1.0)
    meter.add(loss=0.0, likelihood=0.0, tokens=30, seconds=1.0)
    assert (meter.loss, meter.perplexity, meter.rate) == (0.25, 1.0, 20.0)


def test_what_is_left_is_told_at_the_pace_of_the_last_steps():
    state = RunState(step=1000, target_tokens=2_000_000, seconds=4000.0, meter=Meter(tokens=100_000, seconds=100.0))
    assert state.at_this_pace == pytest.approx(2000.0)
    assert RunState(step=1000, target_tokens=2_000_000, seconds=4000.0).at_this_pace == 4000.0


def test_the_log_has_norm_clipping_rate_memory_and_validation_by_length(tmp_path):
    import json

    from samples import sentences, tiny_recipe, write_pairs
    from undivided.core.console import Console
    from undivided.training.loop import train

    values = tiny_recipe(tmp_path / "m", *(write_pairs(tmp_path, name, sentences(40)) for name in ("train", "valid")))
    values["train"] |= {"max_steps": 4, "log_every": 2, "validate_every": 2, "clip": 0.01}
    train(values, Console(quiet=True))
    lines = [json.loads(line) for line in (tmp_path / "m" / "training" / "log.jsonl").read_text().splitlines()]
    step = next(line for line in lines if line["event"] == "step")
    assert step["gradient_norm"] > 0.01
    assert step["clipped"] == 1.0
    assert step["rate"] > 0
    assert step["memory_bytes"] > 1e7
    validation = next(line for line in lines if line["event"] == "validation")
    assert any(name.startswith("bleu_") and name.endswith("_subwords") for name in validation)


def test_numbers_say_what_they_are():
    from undivided.inference.score import Score
    from undivided.training.tasks.contract import Validation

    shown = str(Validation(Score("probability", 12.5, ""), {"perplexity": 8.0}, {"hidden": 1.0}))
    assert shown == "probability 12.50 % (geometric mean over the tokens of the validation text), perplexity 8.00"
