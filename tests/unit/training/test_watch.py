"""A run as a page that shows it learning: what is in it, and what is said where there is too little."""

import json
import shutil

import pytest
import torch

from samples import sentences, tiny_recipe, write_pairs
from undivided.artifact.weights import fill_weights
from undivided.core.console import Console
from undivided.data.batches import make_batch
from undivided.look.capture import record_pass
from undivided.look.training_page import describe_history
from undivided.models import make_model
from undivided.training import checkpoint
from undivided.training.loop import train
from undivided.training.watch import read_curves, watch_training

QUIET = Console(quiet=True)
TEXT, TARGET = sentences(3, seed=4)[0]


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A run of 60 steps with snapshots, learned positions, and two checkpoints."""
    home = tmp_path_factory.mktemp("learned")
    recipe = tiny_recipe(home / "run", write_pairs(home, "train", sentences(60)), write_pairs(home, "valid", sentences(8, seed=2)))
    recipe["model"]["positions"] = "learned"
    recipe["train"] |= {"snapshots": 8, "log_every": 5, "validate_every": 30}
    return train(recipe, QUIET)


def test_every_frame_is_what_pytorch_computes_with_the_weights_of_its_step(learned):
    history = watch_training(learned, TEXT, TARGET, {}, 40, QUIET)
    steps = [frame.step for frame in history.frames]
    assert steps[0] == 0
    assert steps[-1] == 60
    assert len(steps) >= 5
    artifact = history.artifact
    src, tgt = (side.encode([line])[0] for side, line in ((artifact.tokenizer.source, TEXT), (artifact.tokenizer.target, TARGET)))
    for frame in history.frames[1::2]:
        name = f"step-{frame.step:09d}"
        there = [learned / "training" / folder / name for folder in ("checkpoints", "snapshots")]
        path = next(each for each in there if each.exists())
        model = make_model(artifact.recipe.model, len(artifact.tokenizer.source), len(artifact.tokenizer.target)).eval()
        fill_weights(model, checkpoint.read(path).tensors["model"], name)
        with torch.inference_mode():
            seen = record_pass(model, make_batch([src], [tgt]))
            chances = model.logits(seen.states[0]).softmax(dim=-1)[range(len(tgt)), tgt]
        assert torch.allclose(torch.tensor(frame.cross), torch.tensor(seen.attention("cross", len(tgt), len(src))), atol=1e-6)
        assert list(frame.probabilities) == pytest.approx(chances.tolist(), rel=1e-4)
        assert torch.allclose(torch.tensor(frame.positions), model.source_embedding.positions.learned[: len(frame.positions)])
    assert history.frames[-1].log_probability > history.frames[0].log_probability


def test_the_fixed_translation_is_that_of_the_last_state_where_none_is_given(learned):
    history = watch_training(learned, TEXT, None, {"beam_size": 2}, 3, QUIET)
    assert len(history.frames) == 3
    assert not history.is_reference
    assert history.target == history.frames[-1].translation
    described = describe_history(history)
    assert described["frames"][-1]["chrf"] == 100
    assert len(described["steps"]) == len(history.tgt)


def test_the_curves_are_those_of_the_log(learned):
    logged = [json.loads(line) for line in (learned / "training" / "log.jsonl").read_text().splitlines()]
    curves = {curve.name: curve for curve in read_curves(learned)}
    assert list(curves) == ["loss", "perplexity", "learning rate", "gradient norm", "validation BLEU"]
    steps = [each for each in logged if each["event"] == "step"]
    assert curves["loss"].points == tuple((each["step"], each["loss"]) for each in steps)
    assert curves["learning rate"].points == tuple((each["step"], each["rate"]) for each in steps)
    assert curves["validation BLEU"].points == tuple(
        (each["step"], each["bleu"]) for each in logged if each["event"] == "validation"
    )
    assert len(curves["validation BLEU"].points) == 2


def test_what_came_after_a_rollback_counts(tmp_path):
    lines = [
        {"event": "step", "step": 5, "loss": 3.0}, {"event": "step", "step": 10, "loss": 9.0}, {"event": "rollback", "step": 5},
        {"event": "step", "step": 10, "loss": 2.0}, {"event": "step", "step": 15, "loss": float("nan")},
    ]  # fmt: skip
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "log.jsonl").write_text("\n".join([*map(json.dumps, lines), '{"event": "st']))
    [curve] = read_curves(tmp_path)
    assert curve.points == ((5, 3.0), (10, 2.0))


def test_a_damaged_state_is_skipped_and_named(learned, tmp_path, capsys):
    run = shutil.copytree(learned, tmp_path / "run")
    broken = checkpoint.paths(run / "training" / "snapshots")[1]
    (broken / "model.safetensors").write_bytes(b"broken")
    history = watch_training(run, TEXT, None, {}, 40, Console())
    assert int(broken.name[5:]) not in [frame.step for frame in history.frames]
    assert f"{broken}: model.safetensors is damaged" in capsys.readouterr().err


def test_where_there_is_too_little_it_is_said_what_to_do(run, learned, tmp_path):
    def look(folder, *more):
        return run("look", folder, TEXT, "--training", "-o", tmp_path / "page.html", *more)

    def without(*parts):
        copied = shutil.copytree(learned, tmp_path / "-".join(parts).replace("/", "_"))
        for part in parts:
            shutil.rmtree(copied / part)
        return copied

    assert "without a training beside the model" in look(without("training")).err
    assert "0 states of this training" in look(without("training/snapshots", "training/checkpoints")).err
    one = without("training/snapshots")
    shutil.rmtree(checkpoint.paths(one / "training" / "checkpoints")[0])
    while len(there := checkpoint.paths(one / "training" / "checkpoints")) > 1:
        shutil.rmtree(there[0])
    found = look(one)
    assert found.code == 2
    assert "1 state of this training" in found.err
    assert "--snapshots 20" in found.err
    assert "no such folder" in look(tmp_path / "nowhere").err
    assert run("look", learned, "--training", "-o", tmp_path / "x.html").code == 2
    faults = run("look", learned, "a", "--training", "--live", "--frames", "1").err
    for part in ("--live: cannot", "-o page.html", "--frames: 1 is less than 2"):
        assert part in faults
    assert not (tmp_path / "page.html").exists()
    assert look(learned).code == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
