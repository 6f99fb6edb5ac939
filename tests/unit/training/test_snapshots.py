"""Snapshots: which steps are kept, how evenly, and that training is the same with and without them."""

from itertools import pairwise

import pytest
import torch

from samples import sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.training import checkpoint, snapshots
from undivided.training.loop import train


def kept_of(steps, count):
    kept = []
    for step in range(steps + 1):
        if snapshots.is_due(step, count):
            kept = snapshots.thin_out([*kept, step], count)
    return kept


@pytest.mark.parametrize("steps", [300, 5_000, 200_000])
def test_they_are_spread_over_a_run_of_any_length_and_denser_in_the_beginning(steps):
    kept = kept_of(steps, 20)
    assert kept[0] == 0
    assert 15 <= len(kept) <= 20
    assert kept[-1] > 0.7 * steps
    gaps = [snapshots.scale(after) - snapshots.scale(before) for before, after in pairwise(kept)]
    # The newest are close together, until the next ones come.
    assert max(gaps) < 4.1 * min(gaps[:-2])
    assert kept[1] - kept[0] < (kept[-1] - kept[-2]) / 2


def test_none_are_due_without_the_setting_and_the_first_and_last_always_stay():
    assert not any(snapshots.is_due(step, 0) for step in range(200))
    assert snapshots.thin_out([0, 3, 9], 1) == [0, 9]


def test_weights_too_large_for_half_precision_are_reported_and_not_kept(tmp_path, capsys):
    snapshots.keep(tmp_path, 5, {"w": torch.tensor([1e6])}, 3, Console())
    assert "step 5: no snapshot, since weights are too large for float16: w" in capsys.readouterr().err
    assert checkpoint.paths(tmp_path) == []


def weights_of(out):
    return checkpoint.read(checkpoint.paths(out / "training" / "checkpoints")[-1]).tensors


def made(home, name, **settings):
    pairs = write_pairs(home, "train", sentences(60)), write_pairs(home, "valid", sentences(8, seed=2))
    recipe = tiny_recipe(home / name, *pairs)
    recipe["train"] |= {"max_steps": 24, "save_every": 8, "keep_last": 1, "average": 1, "precision": "float32", **settings}
    return recipe


def names(out):
    return [path.name for path in checkpoint.paths(out / "training" / "snapshots")]


@pytest.mark.parametrize("ema", [0.0, 0.9])
def test_training_is_the_same_with_them_and_they_resume(tmp_path, ema):
    quiet = Console(quiet=True)
    plain = train(made(tmp_path, "plain", ema=ema), quiet)
    kept = train(made(tmp_path, "kept", snapshots=40, ema=ema), quiet)
    assert names(plain) == []
    assert names(kept)[0] == "step-000000000"
    assert len(names(kept)) > 6
    before, after = weights_of(plain), weights_of(kept)
    assert all(torch.equal(before[part][name], each) for part, of in after.items() for name, each in of.items())
    # Stopped at step 16 and resumed: the same snapshots, and those that a longer run had made after step 16 are gone.
    stopped = train(made(tmp_path, "stopped", snapshots=40, ema=ema, max_steps=16, schedule="inverse_sqrt"), quiet)
    (stopped / "training" / "snapshots" / "step-000000020").mkdir()
    train(made(tmp_path, "stopped", snapshots=40, ema=ema, schedule="inverse_sqrt"), quiet)
    assert names(stopped) == names(kept)
    assert (stopped / "training" / "snapshots" / "step-000000020" / "model.safetensors").is_file()


def test_a_snapshot_holds_the_weights_of_its_step(tmp_path):
    quiet = Console(quiet=True)
    out = train(made(tmp_path, "run", snapshots=100, keep_last=3), quiet)
    for path in checkpoint.paths(out / "training" / "checkpoints"):
        whole = checkpoint.read(path).tensors["model"]
        half = checkpoint.read(out / "training" / "snapshots" / path.name).tensors["model"]
        assert all(torch.equal(half[name], each.half()) for name, each in whole.items())


def test_to_start_over_sets_them_aside(tmp_path):
    quiet = Console(quiet=True)
    out = train(made(tmp_path, "run", snapshots=20), quiet)
    before = names(out)
    train(made(tmp_path, "run", snapshots=20), quiet, restart=True)
    assert names(out) == before
    assert [path.name for path in (out / "training" / "snapshots.old-1").iterdir()]
