"""Argos Translate itself installs an exported package and translates with it."""

import os
import subprocess
from pathlib import Path

import pytest
import torch

from samples import sentences
from undivided.artifact import load_artifact
from undivided.config import SearchConfig
from undivided.inference.search import search
from undivided.interop.export import export_model

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / ".venv-peers" / "argos" / "bin" / "python"


@pytest.mark.skipif(
    not (PYTHON.parents[1] / "installed.json").exists(), reason="Argos Translate is not there: make prove-export sets it up"
)
def test_argos_translate_installs_the_package_and_translates(model, tmp_path, console):
    export_model(model, tmp_path / "a.argosmodel", "argos", console)
    lines = [source for source, _ in sentences(10, seed=3)]
    homes = dict.fromkeys(("XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"), str(tmp_path / "theirs"))
    homes["ARGOS_PACKAGES_DIR"] = str(tmp_path / "packages")
    program = [PYTHON, ROOT / "benchmarks" / "peers" / "with_argos.py", tmp_path / "a.argosmodel", "en", "de"]
    found = subprocess.run(
        program,
        check=False,
        input="\n".join(lines) + "\n",
        capture_output=True,
        encoding="utf-8",
        env=os.environ | homes,
        timeout=300,
    )
    assert found.returncode == 0, found.stderr
    ours = load_artifact(model)
    config = SearchConfig(beam_size=4, length_penalty=0.2, length_norm="length")
    best = search(ours.model, ours.tokenizer.source.encode(lines), config, torch.device("cpu"))
    assert found.stdout.splitlines() == ours.tokenizer.target.decode([each[0].tokens for each in best])
    assert len(set(found.stdout.splitlines())) > 5
