"""What training does to weights beside learning: gradients are clipped, the last checkpoints averaged, a running average kept."""

import itertools
import math

import pytest
import torch
from safetensors.torch import load_file

from samples import sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.training.loop import Trainer, train
from undivided.training.tasks.translation import TranslationTask


def run(folder, pairs=None, batches=None, dropout=0.0, **settings):
    """A run of a few steps: its folder, and the tensors of all its checkpoints by part."""
    recipe = tiny_recipe(folder / "run", write_pairs(folder, "train", pairs or sentences(60)))
    recipe["model"]["dropout"] = dropout
    recipe["batches"] |= batches or {"tokens": 200}
    recipe["train"] |= {"precision": "float32", "save_every": 1, "keep_last": 100, **settings}
    out = train(recipe, Console(quiet=True))
    places = sorted((out / "training" / "checkpoints").iterdir())
    return out, [{part.stem: load_file(part) for part in place.glob("*.safetensors")} for place in places]


def norm_of(tensors):
    return math.sqrt(sum(float(tensor.double().square().sum()) for tensor in tensors))


def gradient_norm(checkpoint):
    """Of the first step: Adam's first mean is (1 − β₁) times the gradient."""
    return norm_of(tensor for name, tensor in checkpoint["optimizer"].items() if name.endswith(":exp_avg")) / (1 - 0.9)


def moved(before, after):
    return norm_of(after["model"][name] - tensor for name, tensor in before["model"].items())


CLIP = 0.01


def test_a_gradient_is_as_long_as_the_clip_allows(tmp_path):
    """With a large ε, Adam's step is the rate times the mean of gradients, so that a step too is bounded by the clip."""
    settings = {"max_steps": 3, "epsilon": 1.0, "schedule": "inverse_sqrt", "warmup_steps": 1, "rate": 0.5}
    _, clipped = run(tmp_path / "clipped", clip=CLIP, **settings)
    _, free = run(tmp_path / "free", clip=0, **settings)
    assert gradient_norm(free[0]) > 100 * CLIP
    assert gradient_norm(clipped[0]) == pytest.approx(CLIP, rel=1e-3)
    for step, (before, after) in enumerate(itertools.pairwise(clipped), 2):
        assert 0 < moved(before, after) <= 0.5 * step**-0.5 * CLIP * 1.001
    assert moved(*free[:2]) > 10 * moved(*clipped[:2])


def test_a_gradient_within_the_clip_is_left_as_it_is(tmp_path):
    _, clipped = run(tmp_path / "clipped", clip=1e6, max_steps=1)
    _, free = run(tmp_path / "free", clip=0, max_steps=1)
    assert clipped[0]["optimizer"].keys() == free[0]["optimizer"].keys()
    assert all(torch.equal(tensor, free[0]["optimizer"][name]) for name, tensor in clipped[0]["optimizer"].items())


def test_the_model_folder_holds_the_mean_of_the_last_checkpoints(tmp_path):
    out, checkpoints = run(tmp_path, average=3, max_steps=7, rate=0.05, warmup_steps=1, schedule="inverse_sqrt")
    assert len(checkpoints) == 7
    written = load_file(out / "model.safetensors")
    for name in checkpoints[-1]["model"]:
        mean = torch.stack([each["model"][name].double() for each in checkpoints[-3:]]).mean(dim=0).float()
        torch.testing.assert_close(written[name], mean, atol=1e-6, rtol=1e-6)
    last = checkpoints[-1]["model"]
    assert max(float((written[name] - tensor).abs().max()) for name, tensor in last.items()) > 1e-3


def test_a_running_average_forgets_as_its_decay_says_and_becomes_the_model(tmp_path):
    out, checkpoints = run(tmp_path, ema=0.8, max_steps=60, save_every=1)
    assert len(checkpoints) == 60
    for step, (before, after) in enumerate(itertools.pairwise(checkpoints), 2):
        share = max(1 - 0.8, 10 / (10 + step))
        for name, tensor in after["ema"].items():
            expected = before["ema"][name] + share * (after["model"][name] - before["ema"][name])
            torch.testing.assert_close(tensor, expected, atol=1e-5, rtol=1e-4)
    written = load_file(out / "model.safetensors")
    for name, tensor in checkpoints[-1]["ema"].items():
        torch.testing.assert_close(written[name], tensor, atol=1e-6, rtol=1e-6)


def test_the_gradient_is_that_of_the_mean_over_target_tokens(tmp_path):
    """So it does not depend on the budget, which says only how many tokens a batch may have."""
    few = sentences(6)
    norms = [
        gradient_norm(run(tmp_path / str(tokens), few, {"tokens": tokens}, clip=0, max_steps=1)[1][0]) for tokens in (1000, 9000)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-4)


def test_dropout_differs_from_step_to_step_and_from_part_to_part(tmp_path, monkeypatch):
    """One sentence pair, over and over, and weights that stay where they are: only dropout can change the loss."""
    losses, loss_of = [], TranslationTask.loss

    def record(self, batch):
        found = loss_of(self, batch)
        losses.append((len(batch.src), float(found[0].detach())))
        return found

    monkeypatch.setattr(TranslationTask, "loss", record)
    same = sentences(1) * 4
    run(tmp_path, same, {"tokens": 10_000, "parts": 2}, dropout=0.3, rate=1e-12, max_steps=3)
    rows, last = zip(*losses[-6:])
    assert set(rows) == {2}
    assert len(set(last)) == 6


def test_a_resumed_run_draws_what_it_would_have_drawn(tmp_path, monkeypatch):
    """Whatever takes numbers from torch's generator, as dropout does on a GPU, goes on where it was."""
    drawn, advance = [], Trainer.advance

    def draw_too(self, plans):
        advance(self, plans)
        drawn.append(float(torch.rand(())))

    monkeypatch.setattr(Trainer, "advance", draw_too)
    run(tmp_path / "whole", max_steps=5, schedule="inverse_sqrt")
    whole = drawn.copy()
    assert len(set(whole)) == 5
    drawn.clear()
    out, _ = run(tmp_path / "stopped", max_steps=3, schedule="inverse_sqrt")
    train({"train": {"out": str(out), "max_steps": 5}}, Console(quiet=True))
    assert drawn == whole
