"""Ctrl-C, a reader that leaves, a full disk: the process ends in time and in order, and what was finished is written."""

import dataclasses
import random
import signal
import time

import pytest
import torch

from samples import WORDS, write_lines
from undivided.artifact import Artifact, load_artifact, save_artifact
from undivided.config import ModelConfig, Recipe
from undivided.inference.translator import Translator
from undivided.models import make_model

pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")

ENGINES = ("auto", "ctranslate2")


@pytest.fixture(scope="module")
def slow(model, tmp_path_factory):
    """A model that takes long for a chunk of lines, converted for every engine."""
    folder, known = tmp_path_factory.mktemp("slow") / "m", load_artifact(model)
    config = ModelConfig(d_model=256, d_ff=1024, n_heads=4, encoder_layers=2, decoder_layers=4, dropout=0.0)
    torch.manual_seed(3)
    made = make_model(config, len(known.tokenizer.source), len(known.tokenizer.target)).eval()
    save_artifact(Artifact(dataclasses.replace(Recipe(), model=config), known.tokenizer, made), folder)
    for engine in ENGINES:
        assert Translator(folder, engine=engine).engine.name != "torch"
    return folder


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    chance = random.Random(1)
    lines = [" ".join(chance.choices(list(WORDS), k=chance.randint(2, 5))) + f" {number}." for number in range(6000)]
    return write_lines(tmp_path_factory.mktemp("text") / "in", ["The dog.", *lines])


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_signal_ends_a_fast_engine_in_time(spawn, slow, text, tmp_path, number, engine):
    with spawn("translate", slow, text, "-o", tmp_path / "out", "--engine", engine) as process:
        while b"engine" not in (line := process.stderr.readline()):
            assert line, process.wait()
        time.sleep(2)
        sent = time.monotonic()
        process.send_signal(number)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 128 + number
        assert time.monotonic() - sent < 4
        assert b"Traceback" not in process.stderr.read()
    assert list(tmp_path.iterdir()) == []


def test_what_was_finished_before_a_stop_signal_is_written(spawn, slow):
    with spawn("translate", slow, "-", "-q") as process:
        process.stdin.write(b"The dog.\n")
        process.stdin.flush()
        first = process.stdout.readline()
        process.stdin.write(b"The dog sees a tree today.\n" + b"".join(b"a cat %d\n" % count for count in range(5000)))
        process.stdin.flush()
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        rest = process.stdout.read()
        assert b"Traceback" not in process.stderr.read()
    assert first.endswith(b"\n")
    assert not rest or rest.endswith(b"\n")


def test_ctrl_c_while_python_ends_prints_no_traceback(python):
    """A second Ctrl-C, when the command is done and exit functions run."""
    said = python(
        "import atexit, os, signal, sys; from undivided.cli import main\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "sys.stderr = sys.stdout; sys.argv = ['undivided', 'score', 'none', 'none']\n"
        "atexit.register(lambda: (os.kill(os.getpid(), signal.SIGINT), print('quiet')))\n"
        "main()"
    )
    assert said.endswith("quiet\n")
    assert "KeyboardInterrupt" not in said


@pytest.mark.parametrize("attempt", range(4))
def test_a_reader_that_leaves_early_ends_no_process_by_abort(spawn, model, text, attempt):
    with spawn("translate", model, text, "-q", "--beam-size", "1") as process:
        for _ in range(2001):
            assert process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 0
        # Remarks on lines aside, it is quiet.
        assert [line for line in process.stderr.read().splitlines() if not line.startswith(b"line ")] == []


@pytest.mark.parametrize("attempt", range(2))
def test_a_full_disk_ends_no_process_by_abort(spawn, model, text, small_disk, attempt):
    home = small_disk("40k")
    with spawn("translate", model, text, "-q", "--beam-size", "1", "-o", home / "out") as process:
        assert process.wait(60) == 1
        assert b"the disk is full" in process.stderr.read()
    assert list(home.iterdir()) == []


def test_two_that_write_the_same_file_leave_a_whole_one(spawn, model, text, tmp_path):
    """The last one wins; neither writes into what the other is writing."""
    out = tmp_path / "out"
    plain, scored = (spawn("translate", model, text, "-q", "--beam-size", "1", "-o", out, *more) for more in ([], ["--scores"]))
    with plain, scored:
        assert [each.wait(100) for each in (plain, scored)] == [0, 0]
    lines = out.read_bytes().split(b"\n")
    assert len(lines) == 6002
    assert len({b"\t" in line for line in lines[:-1]}) == 1
    assert list(tmp_path.iterdir()) == [out]
