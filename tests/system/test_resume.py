"""Training that was killed, stopped or started again goes on as if nothing had been, or says why not."""

import copy
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from samples import environment, flags, sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import sha256_of
from undivided.inference.score import Score
from undivided.training import checkpoint
from undivided.training.loop import Stopped, Trainer, train
from undivided.training.prepare import lock_run
from undivided.training.recipe import resolve_run
from undivided.training.tasks import Validation
from undivided.training.tasks.translation import TranslationTask

KILLER = """
import json, os, signal, sys
from undivided.training import checkpoint
from undivided.training.loop import Trainer, train
from undivided.core.console import Console

def die(*_): os.kill(os.getpid(), signal.SIGKILL)

where, step = sys.argv[2], int(sys.argv[3])
if where == "after saving":
    save = Trainer.save
    Trainer.save = lambda self: (save(self), self.state.step == step and die())
if where == "while saving":
    fsync = checkpoint.fsync
    checkpoint.fsync = lambda path: die() if f"{step:09d}" in str(path) else fsync(path)
if where == "between":
    update = Trainer._update
    Trainer._update = lambda self, loss: (update(self, loss), self.state.step == step and die())
train(json.loads(sys.argv[1]), Console(quiet=True))
"""
KILLS = [("between", 5), ("after saving", 20), ("while saving", 40), ("between", 50)]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Everything random is on: dropout, subword sampling, and a running average beside."""
    home = tmp_path_factory.mktemp("text")
    files = [write_pairs(home, "train", sentences(200)), write_pairs(home, "valid", sentences(10, seed=2))]
    values = tiny_recipe(home / "unset", *files)
    values["tokens"]["dropout"] = 0.1
    values["model"]["dropout"] = 0.2
    values["batches"] |= {"tokens": 300, "pool": 60, "accumulate": 2}
    values["train"] |= {"ema": 0.9, "validate_every": 20, "max_steps": 60}
    return values


def at(recipe, out, **train_settings):
    values = copy.deepcopy(recipe)
    values["train"] |= {"out": str(out), **train_settings}
    return values


def weights_of(run: Path) -> dict[str, str]:
    last = run / "training" / "checkpoints" / "step-000000060"
    return {part: sha256_of(last / f"{part}.safetensors") for part in ("model", "optimizer", "random", "ema")}


def validations(run: Path) -> dict[int, float]:
    events = [json.loads(line) for line in (run / "training" / "log.jsonl").read_text().splitlines()]
    return {event["step"]: event["bleu"] for event in events if event["event"] == "validation"}


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory):
    """One run that nothing disturbed, and one that was killed again and again."""
    home = tmp_path_factory.mktemp("runs")
    whole = train(at(recipe, home / "whole"), Console(quiet=True))
    values = at(recipe, home / "killed")
    for where, step in KILLS:
        command = [sys.executable, "-c", KILLER, json.dumps(values), where, str(step)]
        assert subprocess.run(command, env=environment(), check=False).returncode == -signal.SIGKILL, where
    said = io.StringIO()
    killed = train({"train": {"out": str(home / "killed")}}, Console(stream=said))
    assert "resuming the training" in said.getvalue()
    assert "resumed at step 40" in said.getvalue()
    return whole, killed


def test_a_killed_run_ends_bit_identical(runs):
    whole, killed = map(weights_of, runs)
    assert whole == killed


def test_stopped_twice_a_run_averages_the_same_checkpoints(recipe, tmp_path, monkeypatch):
    """What is saved at a stop is there to go on from; the final model is that of a run that nobody stopped."""
    averaged = {"ema": 0.0, "average": 3, "keep_last": 3, "save_every": 10, "max_steps": 44}
    whole = train(at(recipe, tmp_path / "whole", **averaged), Console(quiet=True))
    advance = Trainer.advance

    def stopping(self, plans):
        advance(self, plans)
        if self.state.step in (25, 33, 34) and self.state.step not in stops:
            stops.append(self.state.step)
            self._stop_signal = signal.SIGINT

    stops: list[int] = []
    monkeypatch.setattr(Trainer, "advance", stopping)
    values = at(recipe, tmp_path / "stopped", **averaged)
    for _ in range(3):
        with pytest.raises(Stopped, match="stopped and saved"):
            train(values, Console(quiet=True))
    stopped = train(values, Console(quiet=True))
    assert stops == [25, 33, 34]
    assert (whole / "model.safetensors").read_bytes() == (stopped / "model.safetensors").read_bytes()
    left = [[path.name[-2:] for path in checkpoint.paths(run / "training" / "checkpoints")] for run in (whole, stopped)]
    assert left == [["30", "40", "44"]] * 2


def test_a_finished_run_says_so(runs, tmp_path):
    copy_of = shutil.copytree(runs[0], tmp_path / "copy")
    said = io.StringIO()
    train({"train": {"out": str(copy_of)}}, Console(stream=said))
    assert "finished at step 60; to train further, raise --max-steps" in said.getvalue()
    assert "resumed" not in said.getvalue()
    train({"train": {"out": str(copy_of), "max_steps": 61}}, Console(stream=said))
    assert "resumed at step 60" in said.getvalue()


def test_a_killed_run_counts_the_same(runs):
    states = [json.loads((run / "training" / "checkpoints" / "step-000000060" / "state.json").read_text()) for run in runs]
    for state in states:
        del state["seconds"]
    assert states[0] == states[1]


def test_a_killed_run_validates_the_same(runs):
    whole, killed = map(validations, runs)
    assert sorted(whole) == [20, 40, 60]
    assert whole == killed


def test_a_killed_run_leaves_the_same_model(runs):
    whole, killed = runs
    assert sha256_of(whole / "model.safetensors") == sha256_of(killed / "model.safetensors")


class Crash(BaseException):
    """As if the power had gone."""


def test_the_best_model_is_remembered_over_a_crash(recipe, tmp_path, monkeypatch):
    """Step 20 is good, all later ones and their average are bad; the crash comes at step 25."""
    quality = iter([50.0, 10.0, 5.0, 4.0])
    step = Trainer._step

    def crashing(self, plans):
        if self.state.step == 25:
            raise Crash
        return step(self, plans)

    monkeypatch.setattr(TranslationTask, "measure", lambda self: Validation(Score("BLEU", next(quality), "made up"), {}))
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_step", crashing)
        with pytest.raises(Crash):
            train(at(recipe, tmp_path / "m"), Console(quiet=True))
    train(at(recipe, tmp_path / "m"), Console(quiet=True))
    facts = json.loads((tmp_path / "m" / "config.json").read_text())["facts"]
    assert facts["scores"]["validation BLEU"]["score"] == 50.0
    assert facts["weights"] == "step 20"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_is_saved_and_goes_on(recipe, spawn, tmp_path, number, code):
    values = at(recipe, tmp_path / "m", max_steps=100_000, log_every=1, validate_every=100_000)
    process = spawn("train", *flags(values), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    with process:
        while not process.stderr.readline().startswith(b"step 3,"):
            assert process.poll() is None
        process.send_signal(number)
        err = process.stderr.read().decode()
        assert process.wait(60) == code
    assert "Traceback" not in err
    assert "stopped and saved at step" in err
    step = int(err.split("stopped and saved at step ")[1].split(";")[0].replace(",", ""))
    assert (tmp_path / "m" / "training" / "checkpoints" / f"step-{step:09d}").is_dir()
    said = io.StringIO()
    train({"train": {"out": str(tmp_path / "m"), "max_steps": step + 2}}, Console(stream=said))
    assert f"resumed at step {step}" in said.getvalue()
    assert (tmp_path / "m" / "manifest.json").exists()


def test_a_damaged_checkpoint_is_passed_over(runs, tmp_path):
    copied = shutil.copytree(runs[0], tmp_path / "m")
    last = copied / "training" / "checkpoints" / "step-000000060" / "optimizer.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    said = io.StringIO()
    train({"train": {"out": str(copied)}}, Console(stream=said))
    assert "skipped a damaged checkpoint" in said.getvalue()
    assert "resumed at step 40" in said.getvalue()
    assert weights_of(copied) == weights_of(runs[0])


def test_training_again_after_the_end_changes_nothing(runs, tmp_path):
    copied = shutil.copytree(runs[0], tmp_path / "m")
    train({"train": {"out": str(copied)}}, Console(quiet=True))
    assert sha256_of(copied / "model.safetensors") == sha256_of(runs[0] / "model.safetensors")
    assert weights_of(copied) == weights_of(runs[0])


def resumed(runs, **values):
    return resolve_run({"train": {"out": str(runs[0])}} | values, Console(quiet=True))


def test_limits_may_change(runs):
    recipe, _, resumes = resumed(runs, train={"out": str(runs[0]), "max_steps": 99, "patience": 3})
    assert resumes
    assert (recipe.train.max_steps, recipe.train.patience) == (99, 3)


def test_the_same_recipe_may_be_given_again(runs, recipe):
    assert resumed(runs, **at(recipe, runs[0])).resumes


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model": {"d_model": 48}}, "model.d_model was 32, now 48"),
        ({"tokens": {"vocab_size": 400}}, "tokens.vocab_size was 320, now 400"),
        ({"preset": "big"}, "preset"),
        ({"data": {"source_lang": "fr"}}, "data.source_lang was en, now fr"),
        ({"data": {"train": [["other.src", "other.tgt"]]}}, "other.src is missing"),
    ],
)
def test_another_training_is_refused(runs, values, said):
    with pytest.raises(InputError, match="another training") as caught:
        resumed(runs, **values)
    assert said in str(caught.value)


def test_a_changed_corpus_is_refused(recipe, tmp_path):
    files = write_pairs(tmp_path, "train", sentences(20))
    values = at(recipe, tmp_path / "m", max_steps=2)
    values["data"] |= {"train": [files], "valid": []}
    train(values, Console(quiet=True))
    with Path(files[1]).open("a") as stream:
        stream.write("noch eine Zeile\n")
    with pytest.raises(InputError, match="has changed since training started") as caught:
        train(values, Console(quiet=True))
    assert files[1] in str(caught.value)
    assert files[0] not in str(caught.value)
    os.remove(files[1])
    with pytest.raises(InputError, match="is missing; this training started with it"):
        train(values, Console(quiet=True))


def test_separate_vocabularies_go_on_with_the_same_words(recipe, tmp_path):
    values = at(recipe, tmp_path / "m", max_steps=2)
    values["tokens"]["joint"] = False
    values["model"]["tie"] = "all"
    train(values, Console(quiet=True))
    assert resolve_run(values, Console(quiet=True)).resumes


def test_two_trainings_in_one_folder_are_refused(recipe, tmp_path):
    run = resolve_run(at(recipe, tmp_path / "m", max_steps=2), Console(quiet=True))
    with lock_run(run), pytest.raises(InputError, match="another process is training there"):
        train(at(recipe, tmp_path / "m"), Console(quiet=True))
    with pytest.raises(InputError, match="another training has just started there"), lock_run(run):
        pass
    train(at(recipe, tmp_path / "m", max_steps=2), Console(quiet=True))
    assert (tmp_path / "m" / "model.safetensors").exists()


def test_a_running_average_forgets_the_beginning_soon(recipe, tmp_path):
    """Each step it moves towards the weights by 1 - decay, and in the first steps by more."""
    train(at(recipe, tmp_path, max_steps=6, save_every=1, keep_last=6, ema=0.99), Console(quiet=True))
    steps = [checkpoint.read(tmp_path / "training" / "checkpoints" / f"step-{number:09d}").tensors for number in range(1, 7)]
    for number, (before, after) in enumerate(pairwise(steps), start=2):
        for name, average in after["ema"].items():
            wanted = torch.lerp(before["ema"][name], after["model"][name], 10 / (10 + number))
            torch.testing.assert_close(average, wanted)
