"""What made new users stumble on the command line."""

import os
import pty
import re
import signal
import subprocess
import sys
import time
import typing

import pytest

from samples import environment, sentences, write_lines
from undivided.cli import main
from undivided.config import Recipe
from undivided.config.presets import FITTED
from undivided.config.settings import iter_settings
from undivided.training import speed
from undivided.training.budget import Workload, fit_budget

REFERENCE = ("--engine", "torch", "--threads", "1")
LINE = sentences(1, seed=9)[0][0]


@pytest.mark.parametrize(
    ("typed", "meant"), [(["trian"], "train"), (["transalte", "m"], "translate"), (["paper", "tabel1"], "table1"), (["xyz"], "")]
)
def test_verbs_have_did_you_mean_too(run, typed, meant):
    ran = run(*typed)
    assert ran.code == 2
    assert f"; did you mean {meant}?" in ran.err if meant else "did you mean" not in ran.err


def test_a_text_in_place_of_a_file_is_translated(run, model, translator):
    ran = run("translate", model, LINE, *REFERENCE)
    assert (ran.code, ran.out) == (0, f"{translator.translate(LINE)}\n")
    assert "no file has this name, so it is translated as text" in ran.err


@pytest.mark.parametrize("name", ["missing.en", "folder/missing", "./x"])
def test_a_mistyped_file_is_no_text(run, model, name):
    ran = run("translate", model, name, *REFERENCE)
    assert (ran.code, ran.out) == (2, "")
    assert f"{name}: no such file; a text is given in quotes, or piped: echo …" in ran.err


def test_workers_name_their_engine(run, model, tmp_path):
    text = write_lines(tmp_path / "in", [LINE])
    ran = run("translate", model, text, "-o", tmp_path / "out", "--workers", "1", *REFERENCE)
    assert ran.code == 0
    assert "engine torch, in every worker" in ran.err


def read_all(terminal):
    found = b""
    while True:
        try:
            if not (block := os.read(terminal, 4096)):
                return found
        except OSError:
            return found
        found += block


@pytest.fixture
def on_terminal(model):
    """Start `translate` with a terminal for all its streams: the process, and our side of the terminal."""
    started = []

    def start(*arguments):
        ours, theirs = pty.openpty()
        command = [sys.executable, "-m", "undivided", "translate", str(model), *arguments, *REFERENCE]
        process = subprocess.Popen(
            command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment(TERM="xterm"), start_new_session=True
        )
        os.close(theirs)
        started.append((process, ours))
        return process, ours

    yield start
    for process, ours in started:
        process.kill()
        process.wait()
        os.close(ours)


def test_on_a_terminal_translations_stand_alone_and_ctrl_c_leaves_a_clean_line(on_terminal, translator):
    process, ours = on_terminal()
    os.write(ours, f"{LINE}\n".encode())
    wanted, shown = translator.translate(LINE).encode(), b""
    end = time.monotonic() + 60
    while wanted not in shown and time.monotonic() < end:
        shown += os.read(ours, 4096)
    assert b"\r\n" + wanted in shown, "on a line of its own"
    assert b"translated lines" not in shown
    process.send_signal(signal.SIGINT)
    rest = read_all(ours)
    assert process.wait() == 130
    assert rest.endswith(b"\r\x1b[2K")
    assert b"Traceback" not in rest


def help_of(capsys, *verb):
    with pytest.raises(SystemExit):
        main([*verb, "--help"])
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", ["train", "translate", "score", "plan", "distill", "look"])
def test_help_opens_with_a_short_usage(capsys, verb):
    lines = help_of(capsys, verb).splitlines()
    assert lines[0].startswith(f"usage: undivided {verb} [") or lines[0].startswith(f"usage: undivided {verb} ")
    assert lines[0].endswith("[options]")
    assert not lines[1]


def test_common_flags_come_first_and_values_are_those_that_would_be_used(capsys):
    shown = " ".join(help_of(capsys, "train").split())
    places = [
        shown.index(text)
        for text in ("common settings:", "--train FILE", "--out TEXT", "--minutes X", "options:", "more settings: model:")
    ]
    assert places == sorted(places)
    d_model = "tiny 128, small 256, base 512, fast 512, student 256, big 1024"
    assert f"(default: fitted to data and budget; by preset: {d_model})" in shown
    assert (
        "pre (before each sub-layer) [transformer, decoder_only, encoder_only, vision, drawing] (default: fitted to data" in shown
    )
    assert "without one, a translator is fitted to its data and budget" in shown
    assert "model.positions sinusoidal|halves|marian|learned|index|none position encoding: sinusoidal (paper;" in shown
    assert (
        "none [transformer, decoder_only, encoder_only, vision, drawing, convolutional] (default: sinusoidal; preset student"
        in shown
    )
    assert "(default: false)" in shown
    assert "stop after this many passes over the data; 0 = no limit (default: 0)" in shown


def test_help_knows_what_is_fitted(monkeypatch):
    monkeypatch.setattr(speed, "tokens_per_second", lambda *_: 1000.0)
    found = set()
    for budget in ({}, {"minutes": 5}, {"max_steps": 500}, {"max_epochs": 2}):
        settings = fit_budget({"train": budget}, Workload(30_000, 600_000)).settings
        found |= {f"{section}.{key}" for section, keys in settings.items() for key in keys}
    assert found == set(FITTED)


def test_a_student_has_other_defaults(capsys):
    shown = " ".join(help_of(capsys, "distill").split())
    assert "width of embeddings and of every layer's output (default: the teacher's, or the preset's)" in shown
    assert "fitted to data and budget" not in shown.replace("a translator is fitted to its data and budget", "")


def test_every_choice_is_explained():
    for name, item, kind in iter_settings(Recipe):
        if typing.get_origin(kind) is typing.Literal:
            unexplained = [choice for choice in typing.get_args(kind) if not re.search(rf"\b{choice}\b", item.metadata["help"])]
            assert not unexplained, name
