"""A model folder written by an earlier release loads and translates as it did then."""

import json
from pathlib import Path

import pytest

from undivided import Translator
from undivided.artifact import FORMAT_VERSION

FOLDERS = sorted(Path(__file__).parent.glob("frozen-*"))


def test_there_is_one_for_every_format():
    assert [folder.name for folder in FOLDERS] == [f"frozen-{number}" for number in range(1, FORMAT_VERSION + 1)]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_frozen_folder_translates_identically(folder):
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    translator = Translator(folder, device="cpu", threads=1, engine="torch")
    inputs = expected["inputs"]
    assert translator.artifact.tokenizer.source.encode(inputs) == expected["ids"]
    results = list(translator.stream(inputs))
    assert [result.text for result in results] == [text for text, _ in expected["beam"]]
    assert [result.score for result in results] == pytest.approx([score for _, score in expected["beam"]], abs=1e-4)
    assert translator.translate(inputs, beam_size=1) == expected["greedy"]
    assert translator.score(["A red boat."], ["Ein rotes Boot."])[0] == pytest.approx(expected["log_probabilities"], abs=1e-4)
