"""No string of a stranger commands a terminal: escapes are planted in all of them, and every verb is run."""

import io
import json
import shutil
import sys

import pytest

from samples import sentences, tiny_recipe, write_lines, write_pairs
from undivided.cli import main
from undivided.core import manifest

ESCAPE = "\x1b]0;mine\x07\x1b[2J\u202e"
NAME = "\x1b[2Jmine\x9b"
"""In file names: no slash."""


class Screen(io.TextIOWrapper):
    """What a terminal gets."""

    def __init__(self):
        super().__init__(io.BytesIO(), encoding="utf-8")

    def isatty(self):
        return True

    def shown(self) -> str:
        self.flush()
        return self.buffer.getvalue().decode()


def plant(value):
    """The same value with an escape in every string that is no name of a choice."""
    if isinstance(value, dict):
        return {key: plant(each) for key, each in value.items()}
    return [plant(each) for each in value] if isinstance(value, list) else f"{value}{ESCAPE}" if isinstance(value, str) else value


@pytest.fixture
def hostile(model, tmp_path):
    """A model folder with escapes in its name, in its languages and in all that was measured, signed anew."""
    folder = shutil.copytree(model, tmp_path / f"model{NAME}")
    config = json.loads((folder / "config.json").read_text())
    config["facts"] = plant(config["facts"])
    for side in ("source_lang", "target_lang"):
        config["recipe"]["data"][side] += ESCAPE
    (folder / "config.json").write_text(json.dumps(config))
    manifest.write(folder, json.loads((folder / manifest.NAME).read_text())["sha256"])
    return folder


def test_every_verb_with_escapes_in_every_string(hostile, model, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("TERM", "dumb")
    pairs = [(f"{source}{ESCAPE}", f"{target}{ESCAPE}") for source, target in sentences(30)]
    source, target = write_pairs(tmp_path / NAME, f"text{NAME}", pairs)
    broken = write_lines(tmp_path / f"broken{NAME}.yaml", [f"model: {{'{NAME}': 1}}"])
    recipe = tmp_path / f"recipe{NAME}.yaml"
    values = tiny_recipe(tmp_path / f"out{NAME}", [source, target], [source, target])
    values["data"] |= {"source_lang": f"en{ESCAPE}", "target_lang": f"de{ESCAPE}"}
    values["train"] |= {"max_steps": 2, "validate_every": 1, "log_every": 1, "save_every": 1}
    recipe.write_text(json.dumps(values))
    page = tmp_path / f"page{NAME}.json"
    verbs = [
        ["train", recipe], ["train", recipe], ["train", broken], ["train", tmp_path / NAME / "none.yaml"],
        ["train", recipe, "--verify-resume"], ["average", values["train"]["out"], "--last", "2", "-o", tmp_path / f"mean{NAME}"],
        ["average", hostile, "--last", "99", "-o", tmp_path / "none"], ["plan", recipe],
        ["distill", hostile, "--train", source, target, "--out", tmp_path / f"student{NAME}", "--max-steps", "1"],
        ["translate", hostile, source, "--engine", "torch"], ["translate", hostile, source, "-o", tmp_path / NAME],
        ["translate", hostile, source, "--scores", "--n-best", "2", "--engine", "torch"],
        ["score", target, target], ["score", target, target, "--json"], ["score", source, target, "--model", hostile],
        ["score", source, tmp_path / f"none{NAME}"], ["look", hostile, pairs[0][0]], ["look", hostile, "a", "--target", ESCAPE],
        ["look", hostile, "a", "-o", page, "--fast"], ["look", hostile, "--corpus", source, target],
        ["generate", hostile, ESCAPE], ["classify", hostile, source], ["paper", "parse", hostile], [NAME],
        ["translate", f"--{NAME}"],
    ]  # fmt: skip
    for verb in verbs:
        out, err = Screen(), Screen()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            code = main([str(each) for each in verb])
        # Below Python: what compilers and libraries print.
        raw = "".join(capfd.readouterr())
        assert code in (0, 1, 2), verb
        for shown in (out.shown(), err.shown(), raw):
            assert not set(shown) & set("\x1b\x07\x9b\u202e"), (verb, shown)
            assert "Traceback" not in shown, (verb, shown)


def test_look_shows_a_language_without_its_escapes(hostile, monkeypatch):
    screen = Screen()
    monkeypatch.setattr(sys, "stdout", screen)
    assert main(["look", str(hostile), "A dog."]) == 0
    assert "\\x1b]0;mine" in screen.shown()
