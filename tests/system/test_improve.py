"""`undivided improve` with real trainings of a tiny model: killed in the middle of a stage, it ends with the same model."""

import copy
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from samples import environment, flags, sentences, tiny_recipe, write_lines, write_pairs
from undivided.config.improve import ImproveConfig
from undivided.core.console import Console
from undivided.core.files import sha256_of
from undivided.inference.translator import Translator
from undivided.training import synthetic
from undivided.training.improve import improve

KILLER = """
import json, os, signal, sys
from undivided.config.improve import ImproveConfig
from undivided.core.console import Console
from undivided.training import synthetic
from undivided.training.improve import improve
from undivided.training.loop import Trainer

def die(*_): os.kill(os.getpid(), signal.SIGKILL)

model, values, config, where = sys.argv[1], *map(json.loads, sys.argv[2:4]), sys.argv[4]
synthetic.CHUNK = 8
if where == "translating":
    rate, seen = synthetic.rate, []
    synthetic.rate = lambda *given: die() if len(seen) == 20 else seen.append(1) or rate(*given)
else:
    update = Trainer._update
    def dying(self, loss):
        update(self, loss)
        if where in self.recipe.train.out and self.state.step == 9:
            die()
    Trainer._update = dying
improve(model, values, ImproveConfig(**config), Console(quiet=True))
"""


@pytest.fixture(scope="module")
def work(model, tmp_path_factory):
    """A model, settings for seconds of training, and text in one language."""
    home = tmp_path_factory.mktemp("improve")
    values = tiny_recipe(
        home / "unset", write_pairs(home, "train", sentences(30)), write_pairs(home, "valid", sentences(5, seed=2))
    )
    values["train"] |= {"max_steps": 12, "save_every": 4, "schedule": "inverse_sqrt"}
    english = write_lines(home / "mono.en", [source for source, _ in sentences(30, seed=5)])
    german = write_lines(home / "mono.de", [target for _, target in sentences(12, seed=6)])
    config = {"minutes": 0.0, "rounds": 1, "source_text": [str(english)], "target_text": [str(german)]}
    base = shutil.copytree(model, home / "base", ignore=shutil.ignore_patterns("training"))
    return base, values, config


def at(values, out):
    values = copy.deepcopy(values)
    values["train"]["out"] = str(out)
    return values


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    """One improvement that nothing disturbed, and one that was killed twice."""
    base, values, config = work
    home = tmp_path_factory.mktemp("improved")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(synthetic, "CHUNK", 8)
        whole = improve(str(base), at(values, home / "whole"), ImproveConfig(**config), Console(quiet=True))
        killed = at(values, home / "killed")
        for where in ("translating", "round-1-reverse"):
            command = [sys.executable, "-c", KILLER, str(base), json.dumps(killed), json.dumps(config), where]
            assert subprocess.run(command, env=environment(), check=False).returncode == -signal.SIGKILL, where
        return whole, improve(str(base), killed, ImproveConfig(**config), Console(quiet=True))


def files_of(out: Path, *suffixes: str) -> dict[str, str]:
    stages = out / "improve"
    found = [path for suffix in suffixes for path in stages.rglob(f"*{suffix}") if "training" not in path.parts]
    return {str(path.relative_to(stages)): sha256_of(path) for path in found}


def test_killed_in_two_stages_it_ends_the_same(runs):
    whole, killed = (files_of(run.out, "rows.tsv", ".source", ".target", ".given", ".made", "model.safetensors") for run in runs)
    assert whole == killed
    assert len([name for name in whole if name.endswith("rows.tsv")]) == 4
    assert {name.split("/")[0] for name in whole if name.endswith("model.safetensors")} == {"round-1-reverse", "round-1-forward"}


def test_it_says_the_same(runs):
    whole, killed = ([row._replace(minutes=0) for row in run.rows] for run in runs)
    assert whole == killed
    assert [row.stage for row in whole] == ["given", "round-1-reverse", "round-1-forward"]
    assert [row.direction for row in whole] == ["en → de", "de → en", "en → de"]


def test_translations_of_the_model_are_what_the_next_learn_from(runs, work):
    """The forward pairs are the model's own translations, and the folder is that of the best model."""
    base, _, _ = work
    pairs = runs[0].out / "improve" / "round-1-forward-translations" / "forward-translated" / "pairs"
    sources, targets = ((pairs / name).read_text().splitlines() for name in ("all.given", "all.made"))
    assert len(sources) > 15
    assert Translator(base, engine="torch").translate(sources[:5]) == targets[:5]
    assert runs[0].best == "given", "twelve steps make no better model"
    assert sha256_of(runs[0].out / "model.safetensors") == sha256_of(base / "model.safetensors")


def test_the_command_prints_what_each_stage_brought(runs, work, run):
    """Also for what is done already, with settings from flags instead of a recipe."""
    base, values, config = work
    out = runs[0].out
    texts = ["--target-text", *config["target_text"], "--source-text", *config["source_text"]]
    again = run("improve", base, *flags(at(values, out)), *texts, "--minutes", 0, "--rounds", 1)
    assert again.code == 0, again.err
    assert [line.split("\t")[0] for line in again.out.splitlines()] == ["given", "round-1-reverse", "round-1-forward"]
    assert "stages, kept in" in again.err
