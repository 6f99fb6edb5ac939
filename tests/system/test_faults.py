"""Disks fill, turn read-only, clocks jump, files vanish: one clear error, what was good stays good, and then it goes on."""

import ast
import errno
import itertools
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from samples import flags, sentences, tiny_recipe, write_lines, write_pairs
from undivided.artifact import load_artifact, save, save_artifact
from undivided.artifact.weights import weights
from undivided.core.console import Console
from undivided.core.files import sha256_of
from undivided.inference.workers import coordinator as shards
from undivided.training import checkpoint

PAIRS = sentences(40, seed=3)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    home = tmp_path_factory.mktemp("faults")
    values = tiny_recipe(home / "unset", write_pairs(home, "train", PAIRS))
    values["train"] |= {"max_steps": 4, "save_every": 2}
    return values


def at(recipe, out, **settings):
    return recipe | {"train": recipe["train"] | {"out": str(out), **settings}}


@pytest.fixture(scope="module")
def done(recipe, tmp_path_factory):
    """A run of four steps."""
    from undivided.training.loop import train

    return train(at(recipe, tmp_path_factory.mktemp("done") / "run"), Console(quiet=True))


def contents(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_of(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def clear(result, *words) -> bool:
    """One error, without a traceback, in which all these words occur."""
    return "Traceback" not in result.err and all(word in result.err for word in words)


# A full disk.


def test_shards_on_a_full_disk_resume_when_there_is_room(run, tmp_path, model, small_disk):
    home = small_disk("40k")
    text = write_lines(tmp_path / "in", [PAIRS[number * number % 40][0] for number in range(2100)])
    command = ["translate", model, text, "-o", home / "out", "--workers", "1", "--beam-size", "1", "-q"]
    result = run(*command)
    assert result.code == 1
    assert clear(result, "the disk is full", "run the same command to resume")
    assert not (home / "out").exists()
    os.system(f"mount -o remount,size=2m {home}")
    assert run(*command).code == 0
    assert (home / "out").read_bytes().count(b"\n") == 2100
    assert [path.name for path in home.iterdir()] == ["out"]


def failing(real, number, code=errno.ENOSPC):
    """A function whose `number`-th call finds no room."""
    calls = itertools.count(1)

    def call(*arguments, **more):
        if next(calls) == number:
            raise OSError(code, os.strerror(code))
        return real(*arguments, **more)

    return call


@pytest.mark.parametrize("number", [1, 2, 3])
@pytest.mark.parametrize("name", ["write_tensors", "fsync", "open_atomic"])
def test_a_model_is_never_half_written(done, tmp_path, monkeypatch, name, number):
    home = shutil.copytree(done, tmp_path / "m", ignore=shutil.ignore_patterns("training"))
    before = weights(load_artifact(home).model)
    place = sys.modules["undivided.artifact.weights"] if name == "write_tensors" else save
    with monkeypatch.context() as patch:
        patch.setattr(place, name, failing(getattr(place, name), number))
        with suppress(OSError):
            save_artifact(load_artifact(home), home)
    after = weights(load_artifact(home).model)
    assert all((before[key] == after[key]).all() for key in before)
    save_artifact(load_artifact(home), home)
    assert not [path.name for path in home.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("number", [1, 2, 3, 4])
@pytest.mark.parametrize("name", ["write_tensors", "fsync"])
def test_a_checkpoint_is_never_half_written(done, tmp_path, monkeypatch, name, number):
    home = shutil.copytree(done / "training" / "checkpoints", tmp_path / "checkpoints")
    before, newest = contents(home), checkpoint.newest(home, Console(quiet=True))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, name, failing(getattr(checkpoint, name), number))
        with suppress(OSError):
            checkpoint.write(home, 5, newest)
    assert before.items() <= contents(home).items()
    assert checkpoint.newest(home, Console(quiet=True)).state == newest.state
    checkpoint.write(home, 6, newest)
    assert not list(home.glob("*.building"))


def test_the_next_run_removes_what_a_killed_one_left(run, recipe, done, tmp_path):
    home = shutil.copytree(done, tmp_path / "m")
    for left in (home / "training" / "store-0.99999999.building", home / ".incoming.99999999"):
        left.mkdir()
        (left / "part").write_text("half")
    assert run("train", "--out", home, "--max-steps", "5", "--quiet").code == 0
    assert not [path for path in home.rglob("*") if path.name.endswith(".building") or ".incoming" in path.name]


def test_a_model_that_cannot_be_written_leaves_nothing_behind(done, tmp_path, monkeypatch):
    home = shutil.copytree(done, tmp_path / "m", ignore=shutil.ignore_patterns("training"))
    before = contents(home)
    monkeypatch.setattr(save, "fsync", failing(save.fsync, 1))
    with pytest.raises(OSError, match="No space"):
        save_artifact(load_artifact(home), home)
    assert contents(home) == before


def test_a_score_on_a_full_disk_leaves_no_file(run, tmp_path, model, small_disk):
    home = small_disk("4k")
    text = write_lines(tmp_path / "in", [source for source, _ in PAIRS] * 9)
    gold = write_lines(tmp_path / "gold", [target for _, target in PAIRS] * 9)
    result = run("score", text, gold, "--model", model, "-o", home / "out", "--beam-size", "1", "-q")
    assert result.code == 1
    assert clear(result, "the disk is full")
    assert not list(home.iterdir())


# A read-only disk.


def test_a_model_on_a_read_only_disk_translates(run, done, tmp_path, read_only):
    home = read_only(shutil.copytree(done, tmp_path / "m", ignore=shutil.ignore_patterns("training")))
    before = contents(home)
    assert run("translate", home, write_lines(tmp_path / "in", ["a"]), "--threads", "1", "-q").code == 0
    assert contents(home) == before


def test_nothing_can_be_written_to_a_read_only_disk(run, recipe, done, tmp_path, read_only):
    text = write_lines(tmp_path / "in", ["a"])
    (tmp_path / "shut").mkdir()
    home = read_only(tmp_path / "shut")
    for command in (
        ["translate", done, text, "-o", home / "out", "--threads", "1"],
        ["translate", done, text, "-o", home / "out", "--workers", "1"],
        ["average", done, "--last", "1", "-o", home / "out"],
        ["train", *flags(at(recipe, home / "m"))],
    ):
        result = run(*command)
        assert result.code == 1, command
        assert clear(result, str(home), "ead-only" if not os.geteuid() else "denied"), result.err
    assert list(home.iterdir()) == []


def test_a_training_whose_disk_turns_read_only_keeps_its_checkpoints(run, recipe, done, tmp_path, read_only):
    home = shutil.copytree(done, tmp_path / "run")
    before = contents(home / "training" / "checkpoints")
    read_only(home)
    result = run("train", "--out", home, "--max-steps", "6", "--quiet")
    assert result.code == 1
    assert clear(result, str(home))
    assert contents(home / "training" / "checkpoints") == before


# A clock that jumps.


TELLS_THE_DATE = "openai.py"
"""Its answers have a date, because OpenAI's have one; nothing is timed by it."""


def test_nothing_is_timed_by_a_clock_that_can_be_set():
    wrong = []
    for path in sorted((Path(__file__).parents[2] / "src").rglob("*.py")):
        if path.name == TELLS_THE_DATE:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(("time.time", "time.time_ns", ".now", ".utcnow")):
                wrong.append(f"{path.name}:{node.lineno}")
    assert wrong == []


@pytest.mark.parametrize("step", [-3600.0, 10.0**9], ids=["back", "forth"])
def test_a_clock_that_jumps_at_every_look_changes_nothing(run, recipe, tmp_path, monkeypatch, step):
    looks = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 2.0e9 + step * next(looks))
    result = run("train", *flags(at(recipe, tmp_path / "run", minutes=5)))
    assert result.code == 0, result.err
    assert (tmp_path / "run" / "training" / "checkpoints" / "step-000000004").is_dir()
    text = write_lines(tmp_path / "in", [source for source, _ in PAIRS])
    assert run("translate", tmp_path / "run", text, "-o", tmp_path / "out", "--threads", "1", "--beam-size", "1").code == 0
    plan = shards.make_plan(str(tmp_path / "run"), str(text), tmp_path / "out.shards", {}, None, False, "cpu", 1)
    os.utime(tmp_path / "run" / "manifest.json", (0, 0))
    again = shards.make_plan(str(tmp_path / "run"), str(text), tmp_path / "out.shards", {}, None, False, "cpu", 1)
    assert again.settings == plan.settings


# A corpus that vanishes.


def test_a_corpus_that_vanished_before_a_resume(run, tmp_path):
    files = write_pairs(tmp_path, "train", PAIRS)
    recipe = tiny_recipe(tmp_path / "run", files)
    recipe["train"] |= {"max_steps": 2, "save_every": 1}
    assert run("train", *flags(recipe), "--quiet").code == 0
    before = contents(tmp_path / "run" / "training" / "checkpoints")
    Path(files[0]).rename(tmp_path / "elsewhere")
    result = run("train", "--out", tmp_path / "run", "--max-steps", "4", "--quiet")
    assert result.code == 2
    assert clear(result, f"{files[0]} is missing; this training started with it")
    assert contents(tmp_path / "run" / "training" / "checkpoints") == before
    (tmp_path / "elsewhere").rename(files[0])
    assert run("train", "--out", tmp_path / "run", "--max-steps", "4", "--quiet").code == 0
    assert (tmp_path / "run" / "training" / "checkpoints" / "step-000000004").is_dir()


def test_a_corpus_that_vanishes_while_training_begins(run, tmp_path, monkeypatch):
    from undivided.training import prepare

    files = write_pairs(tmp_path, "train", PAIRS)
    recipe = tiny_recipe(tmp_path / "run", files)
    recipe["train"]["max_steps"] = 2
    lock_run = prepare.lock_run

    def vanish(run):
        Path(files[1]).rename(tmp_path / "elsewhere")
        return lock_run(run)

    with monkeypatch.context() as patch:
        patch.setattr(prepare, "lock_run", vanish)
        result = run("train", *flags(recipe), "--quiet")
    assert result.code == 2
    assert clear(result, f"{files[1]}: no such file")
    (tmp_path / "elsewhere").rename(files[1])
    assert run("train", "--out", tmp_path / "run", "--quiet").code == 0
