"""What nobody has set is fitted to the data and to the time, steps or epochs that are given."""

import io
import itertools

import pytest

from samples import sentences, write_pairs
from undivided.cli.demo import run as demo
from undivided.config import build_recipe
from undivided.config.settings import merge
from undivided.core.console import Console
from undivided.training import budget, speed
from undivided.training.budget import (
    FITTED,
    Workload,
    describe_fit,
    estimate_workload,
    fit_budget,
    fit_clock,
    fit_fine_tuning,
    has_budget,
    warn_if_too_few,
    warn_if_too_short,
)
from undivided.training.recipe import preview_recipe, resolve_run
from undivided.training.schedule import learning_rate

OFFICE = Workload(30_000, 600_000)


@pytest.fixture
def fast(monkeypatch):
    """A machine that trains the smallest model with 12,000 target tokens a second, and any other as much slower as it costs."""

    def tokens_per_second(recipe, vocabulary, length, seconds=1.5):
        smallest = budget._recipe({}, budget.SIZES[0], OFFICE)
        return 12_000 / budget._relative_cost(recipe, smallest, OFFICE)

    monkeypatch.setattr(speed, "tokens_per_second", tokens_per_second)


def fitted(values, work=OFFICE):
    fit = fit_budget(values, work)
    return fit, build_recipe(merge(fit.settings, values))


def test_minutes_end_long_after_the_warmup(fast):
    for minutes in (4, 10, 30, 600):
        fit, recipe = fitted({"train": {"minutes": minutes}})
        assert recipe.train.warmup_steps < fit.steps / 10
        assert recipe.train.schedule == "cosine"
        assert recipe.train.max_steps > 2 * fit.steps, "the clock ends the training, not the count of steps"
        assert recipe.train.patience == 0
        assert recipe.train.validate_every <= fit.steps, "quality is measured on the way"
        assert recipe.train.save_every <= fit.steps / 4, "a stop leaves something to use"


def test_more_time_makes_larger_models_with_more_dropout(fast):
    found = [fitted({"train": {"minutes": minutes}})[1] for minutes in (4, 30, 300)]
    assert [recipe.model.encoder_layers for recipe in found] == [3, 4, 4]
    dropouts = [recipe.model.dropout for recipe in found]
    assert dropouts[0] == 0
    assert dropouts == sorted(dropouts)
    assert dropouts[-1] == 0.3, "130 passes over 30,000 pairs"
    batches = [recipe.batches.tokens for recipe in found]
    assert batches == sorted(batches)


def test_a_large_corpus_gets_a_large_model_only_where_there_is_time_for_it(fast):
    large = Workload(5_000_000, 120_000_000)
    assert fitted({"train": {"minutes": 10}}, large)[1].model.d_model == 128
    assert fitted({}, large)[1].model.d_model == 512
    assert fitted({}, Workload(500_000, 12_000_000))[1].model.d_model == 256


def test_without_a_budget_it_ends_by_itself(fast):
    fit, recipe = fitted({})
    assert not has_budget({})
    assert recipe.train.max_steps == fit.steps
    assert recipe.train.patience > 0
    assert fit.speed > 0, "so that the time can be said"
    assert fit.tokens == pytest.approx(40 * OFFICE.target_tokens)
    assert "h of training or less; " in describe_fit(fit, recipe, OFFICE)


def test_steps_and_epochs_are_budgets_without_a_clock(monkeypatch):
    monkeypatch.setattr(speed, "tokens_per_second", lambda *_: pytest.fail("measured"))
    fit, recipe = fitted({"train": {"max_steps": 5000}})
    assert (fit.steps, recipe.train.max_steps) == (5000, 5000)
    assert recipe.train.warmup_steps < 500
    fit, recipe = fitted({"train": {"max_epochs": 3}})
    assert fit.tokens == 3 * OFFICE.target_tokens
    assert recipe.train.max_epochs == 3


@pytest.mark.parametrize("steps", [100, 3000, 5000, 20_000, 100_000])
def test_steps_see_the_tokens_that_are_said(steps):
    fit, recipe = fitted({"train": {"max_steps": steps}}, Workload(1_000_000, 25_000_000))
    assert fit.tokens == pytest.approx(steps * recipe.batches.tokens * 0.85)
    assert fit.steps == steps


@pytest.mark.parametrize("train", [{}, {"minutes": 30}, {"max_steps": 100}])
def test_what_is_fitted_is_listed(fast, train):
    """Who takes over the settings of a model leaves these out."""
    fit = fit_budget({"train": train}, OFFICE).settings
    assert {section: set(keys) - set(FITTED[section]) for section, keys in fit.items()} == {section: set() for section in fit}


def test_what_a_person_sets_stays(fast):
    values = {"model": {"d_model": 64, "norm": "post"}, "batches": {"tokens": 777}, "train": {"minutes": 5, "warmup_steps": 3}}
    _, recipe = fitted(values)
    assert (recipe.model.d_model, recipe.model.norm, recipe.batches.tokens) == (64, "post", 777)
    assert recipe.train.warmup_steps == 3
    assert recipe.train.rate == pytest.approx(0.01), "the rate suits the width that was set"


@pytest.mark.parametrize("kind", ["recurrent", "convolutional"])
def test_other_kinds_are_given_only_what_they_have(kind, fast):
    _, recipe = fitted({"model": {"kind": kind}, "train": {"max_steps": 100}})
    assert recipe.model.kind == kind


def test_kinds_whose_speed_is_not_measured_go_by_the_clock():
    values = {"model": {"kind": "decoder_only"}, "train": {"minutes": 3, "rate": 0.25}}
    recipe = build_recipe(merge(fit_clock(values, build_recipe(values, "tiny")), values), "tiny")
    assert (recipe.train.schedule, recipe.train.rate) == ("cosine", 0.25)
    assert learning_rate(1, recipe.train, 128, seconds=18) > 0.2, "the warmup is over after a tenth of the time"
    assert fit_clock({"model": {"kind": "decoder_only"}}, build_recipe({}, "tiny")) == {}


def test_fine_tuning_is_gentle(fast):
    values = {"model": {"d_model": 128}, "train": {"minutes": 5}}
    fit = fit_fine_tuning(values, OFFICE, 4000)
    gentle, usual = build_recipe(merge(fit.settings, values)), fitted(values)[1]
    assert gentle.train.rate == pytest.approx(usual.train.rate / 10)
    assert "model" not in fit.settings


def warnings_of(values, work=OFFICE, settings=None):
    said = io.StringIO()
    fit = fit_budget(values, work)
    warn_if_too_short(fit, build_recipe(merge(settings or fit.settings, values)), Console(stream=said))
    return said.getvalue()


def test_a_budget_that_is_too_short_is_said_before_it_starts(fast):
    assert "0.5 minutes is too short for a useful model" in warnings_of({"train": {"minutes": 0.5}})
    assert "--minutes 3" in warnings_of({"train": {"minutes": 0.5}}), "2 million tokens at 12,000 a second"
    assert warnings_of({"train": {"minutes": 10}}) == ""
    assert "the learning rate rises for 90,000" in warnings_of({"train": {"minutes": 10, "warmup_steps": 90_000}})


def remarks(values, work):
    said = io.StringIO()
    fit, recipe = fitted(values, work)
    warn_if_too_few(fit, recipe, work, Console(stream=said))
    return said.getvalue()


def test_too_few_steps_epochs_or_pairs_are_said_too(fast):
    assert "100 steps are too few for a useful model: it learns from 87,000 target tokens" in remarks(
        {"train": {"max_steps": 100}}, OFFICE
    )
    assert "Give it at least --max-steps 2298; --max-steps 11489 " in remarks({"train": {"max_steps": 100}}, OFFICE)
    assert remarks({"train": {"max_steps": 2298}}, OFFICE) == ""
    assert "1 epoch is too few for a useful model" in remarks({"train": {"max_epochs": 1}}, OFFICE)
    assert "Give it at least --max-epochs 4;" in remarks({"train": {"max_epochs": 1}}, OFFICE)
    assert "1,000 pairs are too few for a useful model" in remarks({}, Workload(1000, 20_000))
    assert "--from MODEL" in remarks({}, Workload(1000, 20_000))
    assert remarks({}, OFFICE) == ""


def test_bytes_tell_the_tokens():
    assert estimate_workload(100, 4200) == Workload(100, 1100)


@pytest.fixture
def corpus(tmp_path):
    pairs = list(dict.fromkeys(sentences(2000)))
    source, target = write_pairs(tmp_path, "train", pairs)
    return {"data": {"train": [{"source": source, "target": target}]}, "train": {"out": str(tmp_path / "m"), "minutes": 5}}


def test_training_and_plan_choose_the_same_and_say_so(corpus, fast):
    said, planned = io.StringIO(), io.StringIO()
    run = resolve_run(corpus, Console(stream=said))
    preview = preview_recipe(corpus, Console(stream=planned))
    assert run.recipe.model == preview.model
    assert run.recipe.train == preview.train
    line = next(line for line in said.getvalue().splitlines() if line.startswith("fitted to 5 minutes"))
    assert line in planned.getvalue()


def test_a_preset_that_does_not_fit_the_minutes_is_warned_of(corpus, fast):
    said = io.StringIO()
    corpus["train"]["minutes"] = 10
    run = resolve_run(corpus | {"preset": "base"}, Console(stream=said))
    assert run.recipe.train.warmup_steps == 4000, "the preset is the paper's"
    assert "too short for a useful model" in said.getvalue() or "the learning rate rises for 4,000" in said.getvalue()


def test_the_demo_has_no_settings_of_its_own(tmp_path):
    values = demo.make_recipe("en-de", 4.0, tmp_path)
    assert set(values) == {"data", "train"}
    assert set(values["train"]) == {"out", "minutes"}
    assert set(values["data"]) == {"train", "valid", "source_lang", "target_lang"}


def test_speed_is_measured_by_training(monkeypatch):
    ticks = itertools.count()
    monkeypatch.setattr(speed.time, "monotonic", lambda: float(next(ticks)))
    shape = {"d_model": 16, "d_ff": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    recipe = build_recipe({"model": shape, "batches": {"tokens": 100}, "train": {"threads": 1}})
    # Each step looks at the clock twice, a second apart: ten sentences of ten tokens in a second.
    assert speed.tokens_per_second(recipe, 50, 10, seconds=0) == pytest.approx(speed.FILL * 100)
