"""Several processes train one model: the same numbers as one, with any number of them in turn, and when one dies."""

import io
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from samples import environment, sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.training import checkpoint
from undivided.training.distributed import Group
from undivided.training.loop import train

QUIET = Console(quiet=True, stream=io.StringIO())

TRAIN = """
import atexit, json, os, signal, sys, torch
from pathlib import Path
from undivided.core.console import Console
from undivided.training.loop import Trainer, train

step = Trainer._step

def dying(self, plans):
    result = step(self, plans)
    first = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if first and self.group.rank == 1 and self.state.step == job.get("dies"):
        os.kill(os.getpid(), signal.SIGKILL)
    return result

def leave():
    # A thread that outlives Python ends it with SIGABRT, now and then. FSDP2 keeps its group, and with it the threads.
    tasks = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    left = [task.strip() for task in tasks if "gloo" in task]
    if left and not any(job["recipe"]["train"].get("shard") for job in jobs):
        print("threads left behind:", *left, file=sys.stderr)
        os._exit(70)

jobs = json.loads(sys.argv[1])
atexit.register(leave)
Trainer._step = dying
for job in jobs:
    torch.set_default_dtype(getattr(torch, job.get("dtype", "float32")))
    if "port" in job:
        os.environ["MASTER_PORT"] = str(job["port"])
    train(job["recipe"], Console())
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def in_two(jobs):
    """Do some trainings in two processes, one after the other; what each process said."""
    for job in jobs:
        job["port"] = free_port()
    command = [sys.executable, "-c", TRAIN, json.dumps(jobs)]
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
    pair = [
        subprocess.Popen(command, env=environment(**shared, RANK=rank, LOCAL_RANK=rank), stderr=subprocess.PIPE, text=True)
        for rank in ("0", "1")
    ]
    said = [process.communicate()[1] for process in pair]
    assert [process.returncode for process in pair] == [0, 0], said
    return said


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Everything random is on; a step has four parts, and the last batch of an epoch fewer."""
    home = tmp_path_factory.mktemp("text")
    values = tiny_recipe(
        home / "unset", write_pairs(home, "train", sentences(50)), write_pairs(home, "valid", sentences(4, seed=2))
    )
    values["tokens"]["dropout"] = 0.1
    values["model"] |= {"d_model": 16, "d_ff": 32}
    values["batches"] |= {"tokens": 250, "accumulate": 2, "parts": 2}
    # Rounded products would make much of the last bit of a sum that was taken in another order.
    values["train"] |= {"precision": "float32"}
    values["train"] |= {"max_steps": 12, "save_every": 4, "log_every": 1, "validate_every": 6, "ema": 0.5, "keep_last": 9}
    return values


def at(recipe, out, **settings):
    return recipe | {"train": recipe["train"] | {"out": str(out), **settings}}


@pytest.fixture(scope="module")
def runs(recipe, tmp_path_factory):
    """One process; two; one, then two, then one; two that share the weights out; one after these; all that again in float64."""
    home = tmp_path_factory.mktemp("runs")
    train(at(recipe, home / "one"), QUIET)
    for name in ("turns", "resharded"):
        train(at(recipe, home / name, max_steps=4), QUIET)
    torch.set_default_dtype(torch.float64)
    train(at(recipe, home / "one64"), QUIET)
    torch.set_default_dtype(torch.float32)
    said = in_two(
        [
            {"recipe": at(recipe, home / "two")},
            {"recipe": at(recipe, home / "turns", max_steps=8)},
            {"recipe": at(recipe, home / "sharded", shard=True)},
            {"recipe": at(recipe, home / "resharded", max_steps=8, shard=True)},
            {"recipe": at(recipe, home / "two64"), "dtype": "float64"},
            {"recipe": at(recipe, home / "sharded64", shard=True), "dtype": "float64"},
        ]
    )
    for name in ("turns", "resharded"):
        train(at(recipe, home / name, max_steps=12), QUIET)
    return home, said


def losses(run: Path) -> dict[int, float]:
    events = [json.loads(line) for line in (run / "training" / "log.jsonl").read_text().splitlines()]
    return {event["step"]: event["loss"] for event in events if event["event"] == "step"}


def last_of(run: Path) -> checkpoint.Checkpoint:
    return checkpoint.read(run / "training" / "checkpoints" / "step-000000012")


@pytest.mark.parametrize("name", ["two", "turns", "sharded", "resharded"])
def test_losses_are_those_of_one_process(runs, name):
    expected, found = losses(runs[0] / "one"), losses(runs[0] / name)
    assert sorted(expected) == sorted(found) == list(range(1, 13))
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", ["two64", "sharded64"])
def test_weights_are_those_of_one_process(runs, name):
    one, other = last_of(runs[0] / "one64"), last_of(runs[0] / name)
    for part in ("model", "optimizer", "ema"):
        assert one.tensors[part].keys() == other.tensors[part].keys()
        for key, tensor in one.tensors[part].items():
            assert part != "model" or tensor.dtype == torch.float64
            assert float((tensor - other.tensors[part][key]).abs().max()) < 1e-9, (part, key)


@pytest.mark.parametrize("name", ["two", "turns", "sharded", "resharded"])
def test_the_counters_are_those_of_one_process(runs, name):
    one, other = last_of(runs[0] / "one").state, last_of(runs[0] / name).state
    for key in ("step", "place", "target_tokens", "skipped_in_all", "fits", "best_step", "since_best"):
        assert one[key] == other[key], key


def test_ewc_pulls_in_two_processes_as_in_one(runs, recipe, tmp_path):
    """The main process measures what matters; with shared weights each takes its rows of it."""
    tuning = {name: section for name, section in recipe.items() if name not in ("model", "tokens")}
    common = {"start": str(runs[0] / "one"), "ewc": 300.0, "max_steps": 12, "patience": 0}
    train(at(tuning, tmp_path / "one", **common), QUIET)
    others = {"two": {}, "sharded": {"shard": True}}
    in_two([{"recipe": at(tuning, tmp_path / name, **common, **more)} for name, more in others.items()])
    expected = losses(tmp_path / "one")
    for name in others:
        assert losses(tmp_path / name) == pytest.approx(expected, abs=1e-5)
    train(at(tuning, tmp_path / "free", **{**common, "ewc": 0.0}), QUIET)
    assert losses(tmp_path / "free") != pytest.approx(expected, abs=1e-4)


def test_one_process_speaks_and_writes(runs):
    _, (first, second) = runs
    assert "M parameters on 2 × cpu" in first
    assert "validation at step 6" in first
    assert second == ""


def test_processes_that_share_the_weights_out_write_their_own_rows(runs):
    home = runs[0]
    files = sorted(path.name for path in (home / "sharded" / "training" / "checkpoints" / "step-000000012").glob("*.safetensors"))
    assert "model-00001-of-00002.safetensors" in files
    assert "optimizer-00002-of-00002.safetensors" in files
    assert (home / "sharded" / "model.safetensors").exists()
    plain = home / "resharded" / "training" / "checkpoints" / "step-000000012"
    assert (plain / "model.safetensors").exists()


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_rows_are_read_by_any_number_of_processes(runs, size):
    path = runs[0] / "sharded" / "training" / "checkpoints" / "step-000000012"
    expected = checkpoint.read(path).tensors["model"]
    parts = [checkpoint.read(path, Group(rank, size)).tensors["model"] for rank in range(size)]
    for name, tensor in expected.items():
        assert torch.equal(torch.cat([part[name] for part in parts]), tensor)
        chunks = tensor.chunk(size)
        for rank, part in enumerate(parts):
            assert len(part[name]) == (len(chunks[rank]) if rank < len(chunks) else 0)


def torchrun(home: Path, job, *flags: str) -> subprocess.CompletedProcess:
    script = home / "script.py"
    script.write_text(TRAIN)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port()), *flags]
    env = environment(PYTHONWARNINGS="default")
    return subprocess.run(
        [*command, str(script), json.dumps([job])], env=env, capture_output=True, text=True, check=False, timeout=1800
    )


def test_after_a_death_all_go_on_from_the_last_checkpoint(runs, recipe, tmp_path):
    done = torchrun(tmp_path, {"recipe": at(recipe, tmp_path / "run"), "dies": 7}, "--max-restarts", "1")
    assert done.returncode == 0, done.stderr
    assert "resumed at step 4" in done.stderr
    assert losses(tmp_path / "run") == losses(runs[0] / "two")


def test_a_dead_process_ends_the_others(recipe, tmp_path):
    done = torchrun(tmp_path, {"recipe": at(recipe, tmp_path / "run"), "dies": 7})
    assert done.returncode == 1
    assert "SIGKILL" in done.stderr
    newest = checkpoint.newest(tmp_path / "run" / "training" / "checkpoints", QUIET)
    assert newest is not None
    assert newest.state["step"] == 4


@pytest.mark.parametrize("number", [signal.SIGTERM])
def test_processes_that_are_asked_to_stop_save_together(recipe, tmp_path, number):
    script, home = tmp_path / "script.py", tmp_path / "run"
    script.write_text(TRAIN)
    job = {"recipe": at(recipe, home, max_steps=100_000, validate_every=100_000, save_every=100_000)}
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    with subprocess.Popen(
        [*command, str(script), json.dumps([job])], env=environment(PYTHONWARNINGS="default"), stderr=subprocess.PIPE, text=True
    ) as process:
        for line in process.stderr:
            if line.startswith("step 3,"):
                break
        os.kill(process.pid, number)
        said = process.stderr.read()
    assert "stopped and saved at step" in said
    assert "threads left behind" not in said
    step = int(said.split("stopped and saved at step ")[1].split(";")[0].replace(",", ""))
    assert checkpoint.newest(home / "training" / "checkpoints", QUIET).state["step"] == step
