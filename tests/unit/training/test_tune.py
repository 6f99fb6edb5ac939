"""`undivided tune`: which settings are tried, who stays in, what is written; with noted trainings, and with real ones."""

from pathlib import Path

import pytest

from samples import flags, sentences, tiny_recipe, write_pairs
from undivided.config import build_recipe
from undivided.config.improve import TuneConfig
from undivided.config.yaml_file import read_yaml
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.training import tune as module
from undivided.training.tune import SPACE, choose_trials, minutes_of_rounds, plan_rounds, tune

QUIET = Console(quiet=True)


@pytest.mark.parametrize(("trials", "rounds"), [(2, [2]), (3, [3]), (4, [4, 2]), (8, [8, 4, 2]), (9, [9, 5, 3])])
def test_each_round_has_half_of_the_trials(trials, rounds):
    assert plan_rounds(trials) == rounds


def test_rounds_take_the_minutes_that_are_given():
    ends = minutes_of_rounds(60, [8, 4, 2])
    assert ends == [3.75, 7.5, 15]
    assert 8 * ends[0] + 4 * (ends[1] - ends[0]) + 2 * (ends[2] - ends[1]) == 60


def test_trials_differ_and_the_first_is_as_it_is():
    found = choose_trials(8, 20_000, {}, seed=1)
    assert [trial.number for trial in found] == list(range(8))
    assert found[0].settings == {}
    assert len({str(trial.settings) for trial in found}) == 8
    assert all(set(trial.settings) == set(SPACE) for trial in found[1:])
    assert {trial.settings["tokens.vocab_size"] for trial in found[1:]} <= {2000, 4000, 8000, 16_000}
    assert found == choose_trials(8, 20_000, {}, seed=1) != choose_trials(8, 20_000, {}, seed=2)


def test_what_a_person_sets_stays():
    given = {"model": {"dropout": 0.3}, "tokens": {"ready": "subwords"}}
    tried = choose_trials(4, 20_000, given, seed=1)[1].settings
    assert set(tried) == set(SPACE) - {"model.dropout", "tokens.vocab_size"}
    given = {"model": {"dropout": 0, "encoder_layers": 1}, "tokens": {"vocab_size": 1}, "train": {"label_smoothing": 0}}
    with pytest.raises(InputError, match="nothing to tune"):
        choose_trials(4, 20_000, given | {"batches": {"tokens": 1}}, seed=1)


@pytest.fixture
def values(tmp_path):
    recipe = tiny_recipe(
        tmp_path / "tuned", write_pairs(tmp_path, "train", sentences(30)), write_pairs(tmp_path, "valid", sentences(5))
    )
    recipe["train"] |= {"max_steps": 8, "schedule": "inverse_sqrt", "save_every": 2}
    del recipe["model"]["dropout"]
    return recipe


class Crash(BaseException):
    """As if the power had gone."""


@pytest.fixture
def noted(monkeypatch):
    """Trainings are noted as (trial, steps, dropout); the more dropout, the better."""
    notes: list[tuple[str, int, float]] = []

    def train(settings, console):
        recipe = build_recipe(settings)
        notes.append((Path(recipe.train.out).parent.name, recipe.train.max_steps, recipe.model.dropout))
        return Path(recipe.train.out)

    def measure(translator, valid):
        return {"BLEU": 100 * notes[-1][2], "chrF2": 0.0, "signature": ""}

    monkeypatch.setattr(module, "SPACE", {"model.dropout": (0.05, 0.1, 0.2, 0.3, 0.4)})
    monkeypatch.setattr(module, "train", train)
    monkeypatch.setattr(module, "measure", measure)
    monkeypatch.setattr(module, "open_translator", lambda folder, config, console: None)
    monkeypatch.setattr(module, "training_facts", lambda folder: {"minutes": 0.0})
    return notes


def test_the_better_half_goes_on_for_twice_as_long(values, noted):
    found = tune("", values, TuneConfig(minutes=0, trials=5), QUIET)
    steps = [steps for _, steps, _ in noted]
    assert steps == [4] * 5 + [8] * 3, "rounds of 5 and 3"
    first, second = noted[:5], noted[5:]
    assert {name for name, _, _ in second} == {name for name, _, _ in sorted(first, key=lambda each: -each[2])[:3]}
    assert [len(trial.scores) for trial in found.trials] == [2, 2, 2, 1, 1]
    assert found.trials[0].settings["model.dropout"] == max(dropout for _, _, dropout in noted)


def test_the_winner_is_a_recipe(values, noted):
    found = tune("", values, TuneConfig(minutes=0, trials=4), QUIET)
    recipe = build_recipe(read_yaml(found.recipe))
    assert recipe.model.dropout == found.trials[0].settings["model.dropout"]
    assert (recipe.model.d_model, recipe.data.source_lang, recipe.train.schedule) == (32, "en", "inverse_sqrt")
    assert recipe.train.out == ""
    assert found.recipe.read_text().startswith("# The best of 4 trials on 30 pairs: BLEU ")


def test_after_a_crash_what_is_done_is_not_done_again(values, noted, monkeypatch):
    whole = tune("", values, TuneConfig(minutes=0, trials=4), QUIET)
    order = [*noted]
    noted.clear()
    values["train"]["out"] += "-again"
    train = module.train
    monkeypatch.setattr(module, "train", lambda settings, console: crash() if len(noted) == 3 else train(settings, console))

    def crash():
        raise Crash

    with pytest.raises(Crash):
        tune("", values, TuneConfig(minutes=0, trials=4), QUIET)
    monkeypatch.setattr(module, "train", train)
    again = tune("", values, TuneConfig(minutes=0, trials=4), QUIET)
    assert again.trials == whole.trials
    assert noted == order
    assert again.recipe.read_text() == whole.recipe.read_text()


def test_real_trials_resume_their_training(values, run, monkeypatch):
    """The second round of a trial begins at the step where its first ended."""
    monkeypatch.setattr(module, "SPACE", {"train.label_smoothing": (0.0, 0.2, 0.3, 0.4)})
    said = run("tune", *flags(values), "--minutes", 0, "--trials", 4)
    assert said.code == 0, said.err
    assert said.out.count("trial ") == 4
    assert said.err.count("resumed at step 4") == 2
    assert "label_smoothing" in said.out


@pytest.mark.parametrize(
    ("train", "said"),
    [
        ({"out": ""}, "where should trials and recipe go"),
        ({"start": "m"}, "nothing to tune"),
        ({"max_steps": None}, "--max-steps N"),
    ],
)
def test_bad_tuning(values, train, said):
    values["train"] = {key: value for key, value in (values["train"] | train).items() if value is not None}
    with pytest.raises(InputError, match=said):
        tune("", values, TuneConfig(minutes=0), QUIET)


def test_a_recipe_that_is_there_is_not_replaced(values, tmp_path):
    (tmp_path / "tuned").mkdir()
    (tmp_path / "tuned" / "recipe.yaml").write_text("preset: tiny\n")
    with pytest.raises(InputError, match="would be replaced"):
        tune("", values, TuneConfig(minutes=0), QUIET)
