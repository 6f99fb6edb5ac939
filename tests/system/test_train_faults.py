"""Faults within training: numbers that are not finite, memory that does not suffice, disks that fill; each is said and survived."""

import io
import json
import math
import os
import shutil
from pathlib import Path

import pytest
import torch

from samples import flags, sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.core.errors import InputError, UndividedError
from undivided.core.files import sha256_of
from undivided.core.signals import WorkClock
from undivided.training import checkpoint
from undivided.training.loop import MAX_ROLLBACKS, Trainer, train
from undivided.training.prepare import prepare
from undivided.training.replay import verify_resume
from undivided.training.tasks.contract import BatchLoss
from undivided.training.tasks.translation import TranslationTask

QUIET = Console(quiet=True, stream=io.StringIO())


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    home = tmp_path_factory.mktemp("text")
    values = tiny_recipe(home / "unset", write_pairs(home, "train", sentences(60)))
    values["tokens"]["dropout"] = 0.1
    values["model"] |= {"d_model": 16, "d_ff": 16}
    values["batches"] |= {"tokens": 200, "accumulate": 2}
    values["train"] |= {"max_steps": 8, "save_every": 4, "log_every": 2, "max_skipped": 3}
    return values


def at(recipe, out, **settings):
    return recipe | {"train": recipe["train"] | {"out": str(out), **settings}}


@pytest.fixture(scope="module")
def whole(recipe, tmp_path_factory):
    """A run that nothing disturbed."""
    return train(at(recipe, tmp_path_factory.mktemp("whole") / "run"), QUIET)


def weights_at(run: Path, step: int) -> str:
    return sha256_of(run / "training" / "checkpoints" / f"step-{step:09d}" / "model.safetensors")


def state_at(run: Path, step: int):
    return json.loads((run / "training" / "checkpoints" / f"step-{step:09d}" / "state.json").read_text())


def events(run: Path, kind: str):
    lines = [json.loads(line) for line in (run / "training" / "log.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


def spoiled(monkeypatch, bad, spoil=lambda loss: loss * math.nan):
    """Spoil the loss of a step for which `bad(trainer)` says so."""
    step, loss, now = Trainer._step, TranslationTask.loss, {}

    def stepping(self, plans):
        now["bad"] = bad(self)
        return step(self, plans)

    def spoiling(self, batch):
        result = loss(self, batch)
        return BatchLoss(spoil(result.loss), result.likelihood, result.tokens) if now.get("bad") else result

    monkeypatch.setattr(Trainer, "_step", stepping)
    monkeypatch.setattr(TranslationTask, "loss", spoiling)


class InfiniteSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, *slopes):
        return slopes[0] * math.inf


@pytest.mark.parametrize(("spoil", "what"), [(lambda loss: loss * math.nan, "loss"), (InfiniteSlope.apply, "gradient")])
def test_a_step_that_is_not_finite_is_skipped_and_counted(recipe, tmp_path, monkeypatch, spoil, what):
    said = io.StringIO()
    spoiled(monkeypatch, lambda trainer: trainer.state.step in (4, 5), spoil)
    run = train(at(recipe, tmp_path / "run"), Console(stream=said))
    state = state_at(run, 8)
    assert (state["step"], state["skipped"], state["skipped_in_all"], state["rate_factor"]) == (8, 0, 2, 1.0)
    assert said.getvalue().count(f"the {what} is not finite, the step is skipped") == 2
    assert all(math.isfinite(event["loss"]) for event in events(run, "step"))


def test_after_some_in_a_row_training_goes_back_with_a_lower_rate(recipe, tmp_path, monkeypatch):
    said = io.StringIO()
    spoiled(monkeypatch, lambda trainer: trainer.state.step >= 4 and trainer.state.rate_factor > 0.25)
    run = train(at(recipe, tmp_path / "run"), Console(stream=said))
    state = state_at(run, 8)
    assert (state["step"], state["rollbacks"], state["rate_factor"], state["skipped_in_all"]) == (8, 2, 0.25, 6)
    assert "3 steps in a row had no finite loss and gradient; back to step 4 with 0.5 of the rate" in said.getvalue()
    assert "back to step 4 with 0.25 of the rate" in said.getvalue()
    assert [event["failed_step"] for event in events(run, "rollback")] == [7, 7]
    assert events(run, "step")[-1]["rate"] < 0.26 * 0.01


def test_weights_that_are_not_finite_are_not_validated(recipe, tmp_path, monkeypatch):
    """Between two checkpoints too: nothing can be translated with them."""
    said, update, spoilt = io.StringIO(), Trainer._update, []

    def spoil(self, loss):
        update(self, loss)
        if self.state.step == 6 and not spoilt:
            spoilt.append(self.run.parameters[0].data.view(-1)[0].fill_(math.nan))

    monkeypatch.setattr(Trainer, "_update", spoil)
    settings = at(recipe, tmp_path / "run", validate_every=6)
    settings["data"] = settings["data"] | {"valid": settings["data"]["train"]}
    train(settings, Console(stream=said))
    assert "step 6: weights are not finite; back to step 4" in said.getvalue()


def test_before_the_first_checkpoint_it_goes_back_to_the_beginning(recipe, tmp_path, monkeypatch):
    said = io.StringIO()
    spoiled(monkeypatch, lambda trainer: trainer.state.rate_factor == 1 and trainer.state.step > 0)
    run = train(at(recipe, tmp_path / "run"), Console(stream=said))
    assert "back to step 0 with 0.5 of the rate" in said.getvalue()
    assert state_at(run, 8)["rollbacks"] == 1


def test_when_no_rate_helps_it_is_said_and_the_checkpoints_stay(recipe, tmp_path, monkeypatch):
    spoiled(monkeypatch, lambda trainer: trainer.state.step >= 4)
    with pytest.raises(
        UndividedError, match=r"losses or gradients are still not finite after 8 rollbacks .* start over with a lower train\.rate"
    ):
        train(at(recipe, tmp_path / "run", max_skipped=1), QUIET)
    assert len(events(tmp_path / "run", "rollback")) == MAX_ROLLBACKS
    assert checkpoint.newest(tmp_path / "run" / "training" / "checkpoints", QUIET).state["step"] == 4


def test_weights_that_are_not_finite_are_never_saved(recipe, tmp_path, monkeypatch):
    update, said = Trainer._update, io.StringIO()

    def breaking(self, loss):
        update(self, loss)
        if self.state.step == 8 and self.state.rate_factor == 1:
            self.model.output_weight.data[0, 0] = math.inf

    monkeypatch.setattr(Trainer, "_update", breaking)
    run = train(at(recipe, tmp_path / "run"), Console(stream=said))
    assert "weights are not finite; back to step 4" in said.getvalue()
    for path in checkpoint.paths(run / "training" / "checkpoints"):
        assert all(tensor.isfinite().all() for tensor in checkpoint.read(path).tensors["model"].values())


# Memory.


GPU = torch.OutOfMemoryError("CUDA out of memory")
CPU = RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory")


def scarce(monkeypatch, most, error=GPU):
    """As if memory sufficed for batches of at most so many tokens."""
    loss, tried = TranslationTask.loss, []

    def losing(self, batch):
        tried.append(batch.size)
        if batch.size > most:
            raise error
        return loss(self, batch)

    monkeypatch.setattr(TranslationTask, "loss", losing)
    return tried


def trainer_at(recipe, out):
    with prepare(at(recipe, out), QUIET) as prepared:
        trainer = Trainer(prepared, QUIET)
    trainer.model.train()
    return trainer


@pytest.mark.parametrize("error", [GPU, CPU, MemoryError()])
def test_a_batch_that_does_not_fit_is_cut_with_the_same_gradient(recipe, tmp_path, monkeypatch, error):
    """Subword sampling is on; dropout, whose masks are drawn anew, is off, and so is the rounding of products."""
    changed = {"model": recipe["model"] | {"dropout": 0.0}, "train": recipe["train"] | {"precision": "float32"}}
    trainer = trainer_at(recipe | changed, tmp_path / "run")
    batches = [next(trainer.task.stream.plans())[0] for _ in range(2)]
    expected = trainer.run.workers.gradient(3, batches, 0)
    scarce(monkeypatch, 60, error)
    found = trainer.run.workers.gradient(3, batches, 0)
    assert expected.fits == 0
    assert 0 < found.fits <= 60
    assert (found.tokens, found.loss) == (expected.tokens, pytest.approx(expected.loss, rel=1e-6))
    for ours, theirs in zip(found.gradients, expected.gradients):
        assert float((ours - theirs).abs().max()) < 1e-6


def test_the_size_that_fits_is_found_before_the_first_step_and_remembered(recipe, tmp_path, monkeypatch):
    said = io.StringIO()
    tried = scarce(monkeypatch, 60)
    run = train(at(recipe, tmp_path / "run", max_steps=4), Console(stream=said))
    assert said.getvalue().count("step 0: out of memory for a batch") == 1
    assert "out of memory" not in said.getvalue().split("step 0:")[1].split("\n", 1)[1]
    fits = state_at(run, 4)["fits"]
    assert 0 < fits <= 60
    tried.clear()
    train(at(recipe, tmp_path / "run", max_steps=8), QUIET)
    assert tried
    assert max(tried) <= 60
    assert state_at(run, 8)["fits"] == fits


def test_one_pair_that_does_not_fit_ends_training(recipe, tmp_path, monkeypatch):
    scarce(monkeypatch, 1)
    with pytest.raises(UndividedError, match=r"out of memory for one pair of \d+ and \d+ subwords: .*data\.max_length"):
        train(at(recipe, tmp_path / "run"), QUIET)


def test_the_longest_batch_is_tried_first_and_changes_no_number(recipe, whole, tmp_path, monkeypatch):
    sizes = []
    loss = TranslationTask.loss
    with monkeypatch.context() as patch:
        patch.setattr(TranslationTask, "loss", lambda self, batch: (sizes.append(batch.src.shape[1]), loss(self, batch))[1])
        again = train(at(recipe, tmp_path / "again"), QUIET)
    assert sizes[0] >= max(sizes) - 2
    monkeypatch.setattr(Trainer, "_probe_memory", lambda self: None)
    without = train(at(recipe, tmp_path / "without"), QUIET)
    assert weights_at(whole, 8) == weights_at(again, 8) == weights_at(without, 8)


def test_another_error_is_not_taken_for_memory(recipe, tmp_path, monkeypatch):
    scarce(monkeypatch, 1, RuntimeError("shapes do not fit"))
    with pytest.raises(RuntimeError, match="shapes do not fit"):
        train(at(recipe, tmp_path / "run"), QUIET)


# Threads.


def test_any_number_of_threads_makes_the_same_run(recipe, tmp_path):
    parted = recipe | {"batches": recipe["batches"] | {"parts": 2}}
    runs = [train(at(parted, tmp_path / str(threads), threads=threads, max_steps=4), QUIET) for threads in (1, 2)]
    assert weights_at(runs[0], 4) == weights_at(runs[1], 4)
    assert [e["loss"] for e in events(runs[0], "step")] == [e["loss"] for e in events(runs[1], "step")]


def test_a_run_keeps_the_micro_batches_it_started_with(recipe, tmp_path):
    train(at(recipe, tmp_path / "run", threads=2, max_steps=1), QUIET)
    with prepare({"train": {"out": str(tmp_path / "run"), "threads": 1}}, QUIET) as prepared:
        assert prepared.recipe.batches.parts == 2
    torch.set_num_threads(1)


# Disks.


def test_training_on_a_full_disk_goes_on_when_there_is_room(run, recipe, whole, tmp_path, small_disk):
    home = small_disk("1400k")
    result = run("train", *flags(at(recipe, home / "run", save_every=1, keep_last=9)), "--quiet")
    assert result.code == 1
    assert "the disk is full" in result.err
    assert "Traceback" not in result.err
    before = checkpoint.newest(home / "run" / "training" / "checkpoints", QUIET)
    os.system(f"mount -o remount,size=8m {home}")
    assert run("train", "--out", home / "run", "--quiet").code == 0
    assert before is None or before.state["step"] < 8
    assert weights_at(home / "run", 8) == weights_at(whole, 8)


def test_pruning_never_removes_the_only_good_one(recipe, whole, tmp_path):
    folder = shutil.copytree(whole / "training" / "checkpoints", tmp_path / "checkpoints")
    newest = folder / "step-000000008" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-1])
    said = io.StringIO()
    checkpoint.prune(folder, 1, Console(stream=said))
    assert "cannot be read back; older ones are kept" in said.getvalue()
    assert checkpoint.newest(folder, QUIET).state["step"] == 4


def test_the_best_checkpoint_is_kept_too(whole, tmp_path):
    found = checkpoint.read(whole / "training" / "checkpoints" / "step-000000008")
    for step in range(1, 6):
        checkpoint.write(tmp_path, step, found)
    checkpoint.prune(tmp_path, 2, QUIET, best=2)
    assert [path.name[-1] for path in checkpoint.paths(tmp_path)] == ["2", "4", "5"]


def test_a_run_whose_checkpoints_cannot_be_read_stops_and_can_be_restarted_beside_them(run, whole, tmp_path):
    copied = shutil.copytree(whole, tmp_path / "run")
    folder = copied / "training" / "checkpoints"
    for path in checkpoint.paths(folder):
        (path / "manifest.json").unlink()
    before = {path.relative_to(folder): sha256_of(path) for path in folder.rglob("*.*") if path.is_file()}
    result = run("train", "--out", copied, "--max-steps", "12", "--quiet")
    assert result.code == 2
    assert "none of its 2 checkpoints can be read" in result.err
    assert "--restart" in result.err
    assert {path.relative_to(folder): sha256_of(path) for path in folder.rglob("*.*") if path.is_file()} == before
    assert run("train", "--out", copied, "--restart", "--quiet").code == 0
    kept = copied / "training" / "checkpoints.old-1"
    assert {path.relative_to(kept): sha256_of(path) for path in kept.rglob("*.*") if path.is_file()} == before
    assert (copied / "training" / "log.jsonl.old-1").exists()
    assert weights_at(copied, 8) == weights_at(whole, 8)


# Time.


def test_a_step_takes_the_time_in_which_it_worked(recipe, tmp_path, monkeypatch):
    monkeypatch.setattr(WorkClock, "seconds", lambda self: 7.0)
    run = train(at(recipe, tmp_path / "run", max_steps=4), QUIET)
    assert state_at(run, 4)["seconds"] == 28.0


# The same steps again.


def test_verify_resume_proves_it_on_a_run(run, whole, tmp_path):
    before = sorted((str(path), sha256_of(path)) for path in whole.rglob("*") if path.is_file())
    result = run("train", "--out", whole, "--verify-resume", "--quiet")
    assert result.code == 0, result.err
    assert "steps 5 to 8 replayed: 2 log lines, " in result.out
    assert "identical to the last bit" in result.out
    assert "replayed: 1 log line: identical" in run("train", "--out", whole, "--verify-resume", "3", "--quiet").out
    assert sorted((str(path), sha256_of(path)) for path in whole.rglob("*") if path.is_file()) == before


def test_verify_resume_tells_a_difference(recipe, whole, tmp_path, monkeypatch):
    copied = shutil.copytree(whole, tmp_path / "run")
    values = {"train": {"out": str(copied)}}
    log = copied / "training" / "log.jsonl"
    log.write_text(log.read_text().replace('"loss": ', '"loss": 1'))
    with pytest.raises(UndividedError, match="step 6: logged: loss was"):
        verify_resume(values, 0, QUIET)
    load = TranslationTask.load
    monkeypatch.setattr(TranslationTask, "load", lambda self, draws: load(self, draws[::-1]))
    shutil.copy(whole / "training" / "log.jsonl", log)
    with pytest.raises(UndividedError, match="NOT identical") as caught:
        verify_resume(values, 0, QUIET)
    assert "model: " in str(caught.value)


def test_verify_resume_needs_a_run_with_two_checkpoints(recipe, whole, tmp_path):
    with pytest.raises(InputError, match="holds no training"):
        verify_resume(at(recipe, tmp_path / "none"), 0, QUIET)
    copied = shutil.copytree(whole, tmp_path / "run")
    shutil.rmtree(copied / "training" / "checkpoints" / "step-000000004")
    with pytest.raises(InputError, match="two complete checkpoints are needed"):
        verify_resume({"train": {"out": str(copied)}}, 0, QUIET)


def test_a_changed_corpus_is_refused_with_what_changed(recipe, tmp_path):
    files = write_pairs(tmp_path, "train", sentences(20))
    values = at(recipe, tmp_path / "run", max_steps=1) | {"data": recipe["data"] | {"train": [files]}}
    train(values, QUIET)
    size = Path(files[0]).stat().st_size
    Path(files[0]).write_text(Path(files[0]).read_text() + "one more\n")
    Path(files[1]).write_text(Path(files[1]).read_text().replace("Hund", "Band"))
    with pytest.raises(InputError, match="another training") as caught:
        train(values, QUIET)
    assert f"{files[0]} has changed since training started: it had {size} bytes, now {size + 9}" in str(caught.value)
    assert f"{files[1]} has changed since training started: same size, other content" in str(caught.value)


def test_there_is_nothing_to_verify_where_no_training_was_begun(run, tmp_path):
    for arguments in (["--out", tmp_path / "none"], []):
        result = run("train", "--verify-resume", *arguments)
        assert result.code == 2
        assert "holds no training" in result.err
