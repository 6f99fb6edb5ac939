"""The rounds of `improve` with trainings that are only noted: who learns from what, in which direction, and when it ends."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from samples import WORDS, sentences, tiny_recipe, write_lines, write_pairs
from undivided.artifact import load_artifact
from undivided.config import CorpusFiles
from undivided.config.improve import ImproveConfig
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.training import improve as module
from undivided.training.improve import improve
from undivided.training.synthetic import TAG, text_lines

QUIET = Console(quiet=True)
BACK = {german.casefold(): english for english, german in WORDS.items()}


def german_of(text: str) -> str:
    for english, german in WORDS.items():
        text = text.replace(english, german).replace(english.capitalize(), german)
    return text


def english_of(text: str) -> str:
    for german, english in BACK.items():
        text = text.replace(german, english).replace(WORDS[english], english)
    return text


class Notes:
    """What was trained, and how good it is said to be."""

    def __init__(self, model: Path) -> None:
        self.model, self.trainings, self.bleu = model, {}, {}

    def train(self, values, console):
        out = Path(values["train"]["out"])
        self.trainings[out.parent.name] = values
        return shutil.copytree(self.model, out, ignore=shutil.ignore_patterns("training"))

    def measure(self, translator, valid):
        return {"BLEU": self.bleu.get(translator.folder.parent.name, 20.0), "chrF2": 50.0, "signature": "made up"}

    def make_pairs(self, translator, lines, rows, console, what, is_sampled):
        say = english_of if "reverse" in str(translator.folder) else german_of
        write_lines(rows, [f"ok\t-0.1\t{say(line)}" for line in text_lines(lines)])

    def pairs_of(self, stage: str) -> list[list[tuple[str, str]]]:
        """The pairs of each of the corpora that a stage learns from."""
        corpora = self.trainings[stage]["data"]["train"]
        return [
            list(zip(*(Path(each[side]).read_text().splitlines() for side in ("source", "target")), strict=True))
            for each in corpora
        ]


@pytest.fixture
def notes(model, monkeypatch):
    found = Notes(model)
    for name in ("train", "measure", "make_pairs"):
        monkeypatch.setattr(module, name, getattr(found, name))
    monkeypatch.setattr(module, "open_translator", lambda folder, config, console: SimpleNamespace(folder=folder))
    return found


@pytest.fixture
def values(tmp_path):
    return tiny_recipe(tmp_path / "better", write_pairs(tmp_path, "train", PAIRS), write_pairs(tmp_path, "valid", VALID))


KNOWN = list(dict.fromkeys(sentences(60)))
PAIRS, VALID, ENGLISH_ONLY, GERMAN_ONLY = KNOWN[:10], KNOWN[10:14], KNOWN[14:24], KNOWN[24:34]


def config(tmp_path, **changes):
    english = write_lines(tmp_path / "mono.en", [source for source, _ in ENGLISH_ONLY])
    german = write_lines(tmp_path / "mono.de", [target for _, target in GERMAN_ONLY] + [VALID[0][1]])
    texts = {"source_text": [str(english)], "target_text": [str(german)]}
    return ImproveConfig(**({"minutes": 0.0, "rounds": 1, "keep": 1.0} | texts | changes))


def low(pairs):
    return [(one.lower(), two.lower()) for one, two in pairs]


def test_each_direction_learns_from_what_the_other_translated(notes, values, tmp_path):
    improve("", values, config(tmp_path), QUIET)
    assert list(notes.trainings) == ["round-0-forward", "round-1-reverse", "round-1-forward"]
    assert [low(pairs) for pairs in notes.pairs_of("round-0-forward")] == [low(PAIRS)]
    swapped, tagged, versions = notes.pairs_of("round-1-reverse")
    assert swapped == [(german, english) for english, german in PAIRS]
    assert low(tagged) == low((f"{TAG} {german}", english) for english, german in ENGLISH_ONLY)
    assert low(versions) == low(swapped)
    data = notes.trainings["round-1-reverse"]["data"]
    assert (data["source_lang"], data["target_lang"]) == ("de", "en")
    assert Path(data["valid"][0]["source"]).read_text().splitlines() == [german for _, german in VALID]


def test_the_new_model_learns_from_all_of_it(notes, values, tmp_path):
    improve("", values, config(tmp_path), QUIET)
    own, forward, _, _, back = notes.pairs_of("round-1-forward")
    assert own == PAIRS
    assert low(forward) == low(ENGLISH_ONLY)
    assert low(back) == low((f"{TAG} {english}", german) for english, german in GERMAN_ONLY)
    learned = {german.lower() for pairs in notes.pairs_of("round-1-forward") for _, german in pairs}
    assert VALID[0][1].lower() not in learned, "a line of validation was in the text"
    assert notes.trainings["round-1-forward"]["data"]["train"][0]["weight"] > 1


@pytest.mark.parametrize(
    ("changes", "corpora"),
    [({"tag": False}, 5), ({"diversify": False}, 3), ({"target_text": []}, 4), ({"source_text": [], "target_text": []}, 3)],
)
def test_what_is_not_asked_for_is_left_out(notes, values, tmp_path, changes, corpora):
    improve("", values, config(tmp_path, **changes), QUIET)
    found = notes.pairs_of("round-1-forward")
    assert len(found) == corpora
    assert any(source.startswith(TAG) for pairs in found for source, _ in pairs) == ("diversify" in changes)


def test_rounds_go_on_while_validation_gains(notes, values, tmp_path):
    notes.bleu = {"round-1-forward": 30.0, "round-2-forward": 29.0, "round-3-forward": 40.0}
    found = improve("", values, config(tmp_path, rounds=3), QUIET)
    assert list(notes.trainings)[-2:] == ["round-2-forward", "round-1-forward-fine-tuned"]
    assert found.best == "round-1-forward"
    assert len(notes.pairs_of("round-2-forward")) == 7, "versions of both rounds"


def test_at_last_the_best_learns_from_the_pairs_alone(notes, values, tmp_path):
    notes.bleu = {"round-1-forward": 30.0, "round-1-forward-fine-tuned": 31.0}
    found = improve("", values, config(tmp_path), QUIET)
    assert found.best == "round-1-forward-fine-tuned"
    assert notes.pairs_of("round-1-forward-fine-tuned") == [PAIRS]
    tuned = notes.trainings["round-1-forward-fine-tuned"]
    assert Path(tuned["train"]["start"]).parent.name == "round-1-forward"
    assert not {"rate", "schedule", "warmup_steps"} & tuned["train"].keys(), "the rate is that of fine-tuning"
    assert "model" not in tuned


def test_the_best_model_becomes_the_folder_with_a_card(notes, values, tmp_path):
    notes.bleu = {"round-1-forward": 30.0}
    out = improve("", values, config(tmp_path), QUIET).out
    found = load_artifact(out)
    assert [row.split(",")[0] for row in found.facts["improved"]] == list(notes.trainings)
    assert found.recipe.data.train[0].source == values["data"]["train"][0][0]
    assert found.recipe.train.out == str(out)
    assert "round-1-forward, en → de, BLEU 30.00" in (out / "README.md").read_text()


def test_a_given_model_is_measured_and_kept_if_nothing_is_better(notes, values, model, tmp_path):
    before = (model / "manifest.json").read_bytes()
    notes.bleu = {model.parent.name: 50.0}
    found = improve(str(model), values, config(tmp_path), QUIET)
    assert found.best == "given"
    assert (model / "manifest.json").read_bytes() == before
    assert (found.out / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()


def test_settings_and_text_come_from_the_model(notes, model, tmp_path):
    improve(str(model), {"train": {"out": str(tmp_path / "better")}}, config(tmp_path), QUIET)
    learned = notes.trainings["round-1-forward"]
    assert len(notes.pairs_of("round-1-reverse")[0]) == 300
    assert learned["data"]["source_lang"] == "en"
    assert learned["train"]["threads"] == 1
    assert "d_model" not in learned["model"], "what was fitted to other minutes is fitted anew"


def test_kinds_that_bring_nothing_are_left_out(notes, values, tmp_path):
    notes.bleu = {"round-1-trial-back-translated": 21.0}
    improve("", values, config(tmp_path, trials=1.0), QUIET)
    own, back = notes.pairs_of("round-1-forward")
    assert (own, len(back)) == (PAIRS, len(GERMAN_ONLY))


def test_the_better_of_a_new_and_a_fine_tuned_model_is_kept(notes, values, model, tmp_path):
    values["train"]["start"] = str(model)
    notes.bleu = {"round-1-forward-tuned": 31.0, "round-1-forward": 30.0}
    found = improve("", values, config(tmp_path), QUIET)
    assert found.best == "round-1-forward-tuned"
    assert notes.trainings["round-1-forward-tuned-fine-tuned"]
    assert notes.trainings["round-1-forward-tuned"]["train"]["start"] == str(model)
    assert notes.trainings["round-1-forward"]["train"]["start"] == ""


def test_minutes_are_shared_out(notes, values, tmp_path, monkeypatch):
    shares = {"lines": 10, "share": 0.5}
    run = module.Stages.run
    speed = lambda self, name, *rest: shares if name.endswith("speed") else run(self, name, *rest)  # noqa: E731
    monkeypatch.setattr(module.Stages, "run", speed)
    improve("", values, config(tmp_path, minutes=100.0), QUIET)
    minutes = [each["train"]["minutes"] for each in notes.trainings.values()]
    assert minutes == pytest.approx([100 * 3 / 17, 100 * 3 / 13, 100 * 8 / 9], rel=0.1), "what nobody used is left for the last"
    assert len(notes.pairs_of("round-1-forward")[1]) == 5, "half of the lines, as there is time for"


def test_done_stages_are_not_done_again(notes, values, tmp_path):
    first = improve("", values, config(tmp_path), QUIET)
    notes.trainings.clear()
    assert improve("", values, config(tmp_path), QUIET) == first
    assert not notes.trainings
    with pytest.raises(InputError, match="begun with other"):
        improve("", values, config(tmp_path, keep=0.5), QUIET)


def test_a_part_of_the_pairs_is_held_out_where_no_validation_is_named(notes, values, tmp_path):
    values["data"] |= {"valid": [], "train": [write_pairs(tmp_path, "more", KNOWN * 5)]}
    with pytest.raises(InputError, match="too few pairs to hold some out"):
        improve("", values, config(tmp_path), QUIET)
    many = [(f"{english} {number}", f"{german} {number}") for number, (english, german) in enumerate(sentences(400))]
    values["data"]["train"] = [write_pairs(tmp_path, "many", many)]
    improve("", values, config(tmp_path), QUIET)
    data = notes.trainings["round-0-forward"]["data"]
    held, own = ({*Path(data[part][0]["source"]).read_text().splitlines()} for part in ("valid", "train"))
    assert (len(held), held & own, held | own) == (20, set(), {english for english, _ in many})


@pytest.mark.parametrize(
    ("changes", "settings", "said"),
    [
        ({"target_text": ["none.de"]}, {}, "none.de: no such file"),
        ({"target_text": [], "source_text": [], "diversify": False}, {}, "nothing to learn from but the pairs"),
        ({}, {"train": {"out": ""}}, "where should the better model go"),
        ({}, {"data": {"train": []}}, "what should it learn from"),
        ({}, {"data": {"valid": [["none.en", "none.de"]]}}, "none.en: no such file"),
    ],
)
def test_bad_input(notes, values, tmp_path, changes, settings, said):
    for section, keys in settings.items():
        values[section] |= keys
    with pytest.raises(InputError, match=said):
        improve("", values, config(tmp_path, **changes), QUIET)


def test_the_model_is_not_its_own_output(values, model, tmp_path):
    values["train"]["out"] = str(model)
    with pytest.raises(InputError, match="is the model to improve"):
        improve(str(model), values, config(tmp_path), QUIET)


def test_another_model_is_not_replaced(values, model, tmp_path):
    there = shutil.copytree(model, tmp_path / "there", ignore=shutil.ignore_patterns("training"))
    values["train"]["out"] = str(there)
    with pytest.raises(InputError, match="would replace what is there"):
        improve("", values, config(tmp_path), QUIET)


def test_facts_on_disk_are_plain(notes, values, tmp_path):
    out = improve("", values, config(tmp_path), QUIET).out
    stage = json.loads((out / "improve" / "round-1-back-translations" / "back-translated" / "stage.json").read_text())
    assert stage["facts"]["lines"] == len(GERMAN_ONLY) + 1
    assert stage["facts"]["leak"] == 1
    assert CorpusFiles(*stage["facts"]["files"]).source.endswith("made")
