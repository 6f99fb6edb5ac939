import dataclasses

import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided import InputError
from undivided.config import build_recipe
from undivided.config.settings import merge
from undivided.core.console import Console
from undivided.data.subwords import Tokenizer
from undivided.paper.runs import compute_lines, fingerprint, is_complete, pin_settings, read_facts, read_log, train_or_load


@pytest.fixture
def recipe(tmp_path):
    values = tiny_recipe(
        tmp_path / "m", write_pairs(tmp_path, "train", sentences(60)), write_pairs(tmp_path, "valid", sentences(3, seed=2))
    )
    values["train"]["max_steps"] = 4
    return values


def test_a_training_is_done_once_and_goes_on_for_more(recipe, capsys):
    model = train_or_load(recipe, Console(quiet=True))
    assert is_complete(build_recipe(recipe))
    before = len(read_log(model))
    train_or_load(recipe, Console())
    assert "already trained" in capsys.readouterr().err
    assert len(read_log(model)) == before
    longer = merge(recipe, {"train": {"max_steps": 6, "minutes": 5.0}})
    assert not is_complete(build_recipe(longer))
    train_or_load(longer, Console(quiet=True))
    assert read_facts(model)["steps"] in (4, 6)
    assert [event["step"] for event in read_log(model) if event["event"] == "final"] == [4, 6]


def test_a_finished_training_with_other_settings_is_refused(recipe):
    train_or_load(recipe, Console(quiet=True))
    with pytest.raises(InputError, match=r"model\.d_ff"):
        train_or_load(merge(recipe, {"model": {"d_ff": 48}}), Console(quiet=True))


def test_subwords_may_be_taken_over(recipe, tmp_path):
    first = train_or_load(recipe, Console(quiet=True))
    again = merge(recipe, {"tokens": {"ready": str(first / "training" / "subwords")}, "train": {"out": str(tmp_path / "n")}})
    second = train_or_load(again, Console(quiet=True))
    assert Tokenizer.load(second).source.model == Tokenizer.load(first).source.model


def test_subwords_that_are_not_there_or_do_not_fit(recipe, tmp_path, model):
    for ready, joint, said in ((tmp_path / "none", True, "no such file or folder"), (model, False, "tokens.joint to true")):
        with pytest.raises(InputError, match=said):
            train_or_load(merge(recipe, {"tokens": {"ready": str(ready), "joint": joint}}), Console(quiet=True))
        assert not (tmp_path / "m").exists()


def test_what_a_folder_was_begun_with_is_held(tmp_path):
    pin_settings(tmp_path / "o" / "facts.json", {"a": 1, "b": [1, 2]}, "a table")
    pin_settings(tmp_path / "o" / "facts.json", {"b": [1, 2], "a": 1}, "a table")
    with pytest.raises(InputError, match=r"a was 1, now 2(.|\n)*c was not set, now 3"):
        pin_settings(tmp_path / "o" / "facts.json", {"a": 2, "b": [1, 2], "c": 3}, "a table")


def test_lines_go_on_behind_the_last_whole_chunk(tmp_path):
    done = []
    stop = {7}

    def work(items):
        done.extend(items)
        if stop & set(items):
            raise KeyboardInterrupt
        return (f"line {item}" for item in items)

    with pytest.raises(KeyboardInterrupt):
        compute_lines(tmp_path / "x", range(10), work, 3)
    with (tmp_path / "x.part").open("a") as part:
        part.write("line 6\nhalf a li")
    done.clear()
    stop.clear()
    assert compute_lines(tmp_path / "x", range(10), work, 3) == [f"line {item}" for item in range(10)]
    assert done == [6, 7, 8, 9]
    assert compute_lines(tmp_path / "x", range(10), work, 3)[-1] == "line 9"
    assert len(done) == 4


def test_fingerprints_tell_apart():
    first, second = build_recipe({}), build_recipe({"search": {"beam_size": 9}})
    assert fingerprint(first.search) == fingerprint(dataclasses.replace(second.search, beam_size=first.search.beam_size))
    assert fingerprint(first.search) != fingerprint(second.search)
