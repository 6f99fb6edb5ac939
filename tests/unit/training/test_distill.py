"""A student learns from its teacher's translations, also after a stop."""

import dataclasses
import json
import re
import shutil
from pathlib import Path

import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.inference.translator import Translator
from undivided.training import synthetic
from undivided.training.distill import distill, inherit_settings

QUIET = Console(quiet=True)


@pytest.fixture
def values(tmp_path):
    recipe = tiny_recipe(
        tmp_path / "student", write_pairs(tmp_path, "train", sentences(40)), write_pairs(tmp_path, "valid", sentences(5))
    )
    recipe["train"]["max_steps"] = 4
    recipe["model"] |= {"decoder_layers": 1}
    return recipe


@pytest.fixture
def teacher(model, tmp_path):
    return shutil.copytree(model, tmp_path / "teacher", ignore=shutil.ignore_patterns("training", "ctranslate2-*"))


def test_the_student_learns_what_the_teacher_says(teacher, values, tmp_path):
    out = distill(teacher, values, QUIET)
    texts = [(tmp_path / "student" / "distilled" / "0" / name).read_text().splitlines() for name in ("source.txt", "target.txt")]
    assert texts[0] == [source for source, _ in sentences(40)]
    assert texts[1] == [text or "-" for text in Translator(teacher).translate(texts[0])]
    recipe = json.loads((out / "config.json").read_text())["recipe"]
    assert recipe["data"]["train"][0]["target"].endswith("target.txt")
    assert recipe["model"]["decoder_layers"] == 1


class Said(Console):
    def __init__(self):
        super().__init__(quiet=True)
        self.lines = []

    def say(self, text):
        self.lines.append(text)


def test_the_student_is_compared_with_its_teacher(teacher, values):
    said = Said()
    distill(teacher, values, said)
    number = r"[\d,]+\.\d+"
    sides = rf"the teacher \(\S+, beam 4\) has BLEU ({number}) at {number} and the student \(\S+, beam 4\) has BLEU ({number}) at"
    found = re.search(rf"on 5 validation pairs {sides} {number} sentences/s, {number} times as fast", said.lines[-1])
    assert found, said.lines[-1]
    assert float(found[1]) > float(found[2]) + 20, "after four steps a student knows nothing"


def test_without_validation_data_nothing_is_compared(teacher, values):
    values["data"]["valid"] = []
    values["data"]["hold_out"] = 0
    said = Said()
    distill(teacher, values, said)
    assert "was not compared with its teacher: there is no validation data" in said.lines[-1]


def test_it_learns_from_the_pairs_themselves_too_where_asked(teacher, values):
    original = values["data"]["train"][0]
    out = distill(teacher, values, QUIET, originals=2)
    corpora = json.loads((out / "config.json").read_text())["recipe"]["data"]["train"]
    assert [(Path(each["source"]).name, each["weight"]) for each in corpora] == [("source.txt", 1.0), (Path(original[0]).name, 2.0)]


@pytest.mark.parametrize("originals", [-1, float("nan"), 1000])
def test_originals_cannot_count_any_number_of_times(teacher, values, originals):
    with pytest.raises(InputError, match="between 0 and 100"):
        distill(teacher, values, QUIET, originals)


def test_stopped_it_goes_on(teacher, values, monkeypatch):
    """Stopped in the third chunk, it translates the rest and no more, and ends with the same text."""
    monkeypatch.setattr(synthetic, "CHUNK", 10)
    chunks, stream = [], Translator.stream

    def stopping(self, lines, **how):
        if len(chunks) == 2:
            raise KeyboardInterrupt
        chunks.append(len(lines))
        return stream(self, lines, **how)

    monkeypatch.setattr(Translator, "stream", stopping)
    with pytest.raises(KeyboardInterrupt):
        distill(teacher, values, QUIET)
    monkeypatch.setattr(Translator, "stream", lambda self, lines, **how: chunks.append(len(lines)) or stream(self, lines, **how))
    out = distill(teacher, values, QUIET)
    assert chunks[:4] == [10, 10, 10, 10]
    texts = [(out / "distilled" / "0" / name).read_text().splitlines() for name in ("source.txt", "target.txt")]
    assert texts[1] == [text or "-" for text in Translator(teacher).translate(texts[0])]


def test_what_a_student_inherits(translator):
    teacher = translator.artifact.recipe
    whole, part = inherit_settings(teacher, True), inherit_settings(teacher, False)
    assert whole["model"]["decoder_layers"] == 1
    assert whole["model"]["encoder_layers"] == teacher.model.encoder_layers + 2
    assert whole["train"]["out"] == ""
    assert part.keys() == {"data", "search"}
    tuned = dataclasses.replace(teacher, train=dataclasses.replace(teacher.train, start="elsewhere"))
    assert inherit_settings(tuned, True)["train"]["start"] == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"train": {"out": ""}}, "where should the student go"),
        ({"data": {"train": [["none.en", "none.de"]]}}, "none.en: no such file"),
    ],
)
def test_bad_input(teacher, values, change, said):
    for section, keys in change.items():
        values[section] |= keys
    with pytest.raises(InputError, match=said):
        distill(teacher, values, QUIET)
