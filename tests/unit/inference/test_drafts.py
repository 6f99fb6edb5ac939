"""Draft and verify: whatever is proposed, the output is that of greedy search; what is proposed well saves steps."""

import dataclasses
import json
import math
import shutil

import numpy as np
import pytest
import torch

from samples import sentences, tiny_recipe, write_pairs
from undivided.artifact import DRAFT, Artifact, load_artifact, open_artifact
from undivided.config import SearchConfig, build_recipe
from undivided.core import manifest
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS
from undivided.inference.drafts import UNSURE, DraftCount, DraftSearch
from undivided.inference.engines.copies import sample_rows
from undivided.inference.engines.int8 import Int8Engine
from undivided.inference.engines.int8_convert import make_arrays
from undivided.inference.engines.int8_model import works, write_arrays
from undivided.inference.engines.torch import TorchEngine
from undivided.inference.hypothesis import NotFinite
from undivided.models import DraftDecoder, make_model
from undivided.training.distill import distill_drafts

QUIET = Console(quiet=True)
GREEDY = SearchConfig(beam_size=1)
needs_int8 = pytest.mark.skipif(not works(), reason="this processor has no AVX-512 VNNI, or there are no kernels")
ENGINES = ["torch", pytest.param("int8", marks=needs_int8)]


class Scripted:
    """A decoder that knows what is written: after `n` tokens comes the n-th of its text, whatever they are."""

    def __init__(self, texts, score=-0.1):
        self.texts, self.score, self.calls, self.read_so_far = texts, score, [], [0] * len(texts)

    def read(self, sentences, starts, rows):
        self.calls.append([len(row) for row in rows])
        found = []
        for sentence, start, row in zip(sentences, starts, rows, strict=True):
            assert start <= self.read_so_far[sentence], "what stands before is not known"
            self.read_so_far[sentence] = start + len(row)
            found += [self.texts[sentence][start + place] for place in range(len(row))]
        return found, [self.score] * len(found)


def draft_search(texts, drafter, draft, limit=50, score=-0.1):
    model, count = Scripted(texts, score), DraftCount()
    config = dataclasses.replace(GREEDY, draft=draft)
    found = DraftSearch(model, drafter, [limit] * len(texts), config, count).run()
    return [each.tokens for (each,) in found], model, count, found


TEXT = [*range(10, 19), EOS, *[99] * 60]


def test_right_proposals_save_steps():
    found, model, count, _ = draft_search([TEXT], Scripted([TEXT]), 4)
    assert found == [TEXT[:9]]
    assert model.calls == [[5], [5]]
    assert (count.tokens, count.steps) == (10, 2)


def test_wrong_proposals_change_nothing_and_save_nothing():
    found, model, count, _ = draft_search([TEXT], Scripted([[5] * 99]), 4)
    assert found == [TEXT[:9]]
    assert count.steps == 10
    assert max(max(call) for call in model.calls) == 5


@pytest.mark.parametrize("wrong", range(9))
def test_what_was_read_behind_a_wrong_proposal_is_read_again(wrong):
    drafted = [*TEXT[:wrong], 7, *TEXT[wrong + 1 :]]
    found, _, count, _ = draft_search([TEXT], Scripted([drafted]), 3)
    assert found == [TEXT[:9]]
    assert 3 <= count.steps <= 4


def test_every_sentence_is_as_far_as_its_own_drafts_bring_it():
    texts = [TEXT, [*range(20, 26), EOS, *[98] * 60], [EOS, *[97] * 60]]
    drafts = [TEXT, [1] * 99, [EOS] * 99]
    found, model, count, _ = draft_search(texts, Scripted(drafts), 4)
    assert found == [TEXT[:9], texts[1][:6], []]
    assert model.calls[0] == [5, 5, 2]
    assert count.steps == 2 + 7 + 1


def test_a_drafter_that_is_not_sure_proposes_no_more():
    _, model, _, _ = draft_search([TEXT], Scripted([TEXT], score=UNSURE - 0.01), 4)
    assert model.calls[0] == [2]


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 9])
def test_nothing_is_longer_than_its_limit(limit):
    found, model, _, ((hypothesis,),) = draft_search([TEXT], Scripted([TEXT]), 4, limit)
    assert found == [TEXT[:limit]]
    assert not hypothesis.finished
    assert max(model.read_so_far) <= limit
    assert hypothesis.log_probability == pytest.approx(-0.1 * limit)


def test_what_is_no_number_is_said():
    with pytest.raises(NotFinite):
        draft_search([TEXT], Scripted([TEXT]), 2, score=math.nan)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """The trained model of the tests, with a draft decoder."""
    home = tmp_path_factory.mktemp("drafts")
    teacher = shutil.copytree(model, home / "teacher", ignore=shutil.ignore_patterns("training"))
    values = tiny_recipe(home / "m", write_pairs(home, "train", sentences(300)), write_pairs(home, "valid", sentences(10, seed=2)))
    del values["model"], values["tokens"]
    values["train"]["max_steps"] = 100
    return distill_drafts(teacher, values, QUIET)


@pytest.fixture(scope="module")
def rows(translator):
    """Sentences like those of the training, and others that the model has never seen."""
    subwords = translator.artifact.tokenizer.source
    return subwords.encode([source for source, _ in sentences(120, seed=5)]) + sample_rows(len(subwords), count=40)


def engine_of(kind, artifact, home, threads=1):
    if kind == "torch":
        return TorchEngine(artifact)
    home.mkdir(exist_ok=True)
    write_arrays(home, *make_arrays(artifact))
    return Int8Engine(home, artifact, threads)


def searched(engine, rows, config):
    found = dict(engine.search(rows, config, [[]] * len(rows), range(len(rows))))
    return [found[place] for place in range(len(rows))]


def same(one, other, exact):
    """Ids and ends are equal; log-probabilities too, or nearly, where a product of several rows is rounded otherwise."""
    assert [[each.tokens for each in row] for row in one] == [[each.tokens for each in row] for row in other]
    assert [row[0].finished for row in one] == [row[0].finished for row in other]
    if exact:
        assert one == other
    else:
        assert [row[0].score for row in one] == pytest.approx([row[0].score for row in other], abs=1e-4)


@pytest.mark.parametrize("kind", ENGINES)
def test_the_output_is_that_of_greedy_search_in_fewer_steps(kind, folder, rows, tmp_path):
    engine = engine_of(kind, load_artifact(folder), tmp_path / "m")
    right = searched(engine, rows, GREEDY)
    assert engine.drafts.steps == 0
    for draft in (1, 5):
        engine.drafts = DraftCount()
        same(searched(engine, rows, dataclasses.replace(GREEDY, draft=draft)), right, exact=kind == "int8")
        assert engine.drafts.tokens == sum(len(row[0].tokens) + row[0].finished for row in right)
        assert engine.drafts.per_step > 1.2, draft


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "positions": "learned"}, {"output_bias": True, "attention_bias": True}])
def test_whatever_is_proposed(kind, changes, translator, rows, tmp_path):
    """A model with sharp random weights and a drafter that knows nothing."""
    artifact = translator.artifact
    config = dataclasses.replace(build_recipe({"model": {"d_model": 32, "d_ff": 64, "n_heads": 2}}).model, encoder_layers=1)
    config = dataclasses.replace(config, decoder_layers=2, **changes)
    torch.manual_seed(7)
    model = make_model(config, len(artifact.tokenizer.source), len(artifact.tokenizer.target)).eval()
    with torch.no_grad():
        model.output_weight.mul_(3.0)
    recipe = dataclasses.replace(artifact.recipe, model=config)
    random = Artifact(recipe, artifact.tokenizer, model, draft=DraftDecoder(config).eval())
    engine = engine_of(kind, random, tmp_path / "m", threads=2)
    for extra in (1, 12):
        search = dataclasses.replace(GREEDY, max_extra=extra)
        drafted = searched(engine, rows[100:], dataclasses.replace(search, draft=3))
        same(drafted, searched(engine, rows[100:], search), exact=kind == "int8")
    assert 1 <= engine.drafts.per_step < 4


@needs_int8
def test_neither_batch_nor_shortlist_matters(folder, rows, tmp_path):
    engine = engine_of("int8", load_artifact(folder), tmp_path / "m")
    for shortlist in (False, True):
        config = dataclasses.replace(GREEDY, draft=4, shortlist=shortlist)
        together = searched(engine, rows[:20], config)
        same(together, searched(engine, rows[:20], dataclasses.replace(config, draft=0)), exact=True)
        if not shortlist:
            assert together == [searched(engine, [row], config)[0] for row in rows[:20]]


@pytest.mark.parametrize("kind", ENGINES)
def test_where_something_else_says_what_may_follow_there_are_no_drafts(kind, folder, rows, tmp_path):
    engine = engine_of(kind, load_artifact(folder), tmp_path / "m")
    drafted = dataclasses.replace(GREEDY, draft=4)
    for changes, prefix in (({"no_repeat_ngram": 2}, []), ({}, [20, 21]), ({"beam_size": 2}, [])):
        config = dataclasses.replace(drafted, **changes)
        found = dict(engine.search(rows[:3], config, [prefix] * 3, range(3)))
        assert found == dict(engine.search(rows[:3], dataclasses.replace(config, draft=0), [prefix] * 3, range(3)))
    assert engine.drafts.steps == 0


def test_the_model_itself_is_untouched(folder, model):
    assert (folder / "model.safetensors").read_bytes() == (model / "model.safetensors").read_bytes()
    ours, theirs = (json.loads((each / "config.json").read_text()) for each in (folder, model))
    assert ours["recipe"] == theirs["recipe"]
    drafts = ours["facts"].pop("drafts")
    assert ours["facts"] == theirs["facts"]
    assert drafts["steps"] == 100
    assert drafts["scores"]["validation tokens per step"]["score"] > 1.2
    assert DRAFT in manifest.verify(folder, [DRAFT])


def test_the_draft_decoder_is_read_when_it_is_needed(folder, model):
    opened = open_artifact(folder, "cpu")
    assert opened._draft is None
    assert isinstance(opened.draft, DraftDecoder)
    assert opened.draft is opened.draft
    assert open_artifact(model, "cpu").draft is None


def test_a_draft_decoder_that_does_not_fit_is_refused(folder, tmp_path):
    wrong = shutil.copytree(folder, tmp_path / "m", ignore=shutil.ignore_patterns("training", "distilled"))
    config = json.loads((wrong / "config.json").read_text())
    config["recipe"]["model"]["decoder_self"] = "ssru"
    (wrong / "config.json").write_text(json.dumps(config))
    manifest.write(wrong, list(manifest.verify(folder, [])))
    with pytest.raises(InputError, match=r"draft.safetensors cannot be of this model: its decoder has no self-attention"):
        open_artifact(wrong, "cpu")
    (wrong / DRAFT).write_bytes(b"broken")
    with pytest.raises(InputError, match=DRAFT):
        open_artifact(wrong, "cpu")


def test_on_the_command_line(folder, model, run, tmp_path):
    text = tmp_path / "in"
    text.write_text("".join(f"{source}\n" for source, _ in sentences(30, seed=9)))
    plain, drafted = (run("translate", folder, text, "--beam", "1", "--draft", draft) for draft in ("0", "4"))
    assert (plain.code, drafted.code, drafted.out) == (0, 0, plain.out)
    assert "tokens in a step" in drafted.err
    assert "tokens in a step" not in plain.err
    assert "drafts of 4" in drafted.err
    without = run("translate", model, text, "--beam", "1", "--draft", "4")
    assert without.out == plain.out
    assert "--draft: this model has none" in without.err
    assert "undivided distill MODEL --drafts" in without.err
    wrong = run("translate", folder, text, "--beam", "4", "--draft", "4")
    assert (wrong.code, wrong.out) == (2, "")
    assert "greedy search alone" in wrong.err


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"preset": "tiny"}, "shaped like the model's own layers; leave out preset"),
        ({"model": {"d_ff": 8}}, "leave out model.d_ff"),
        ({"train": {"pull": 1.0, "out": "x"}}, "no draft decoder is trained with train.pull"),
        ({"data": {"train": [["none.en", "none.de"]]}, "train": {"out": "x"}}, "none.en: no such file"),
    ],
)
def test_settings_that_cannot_be(model, values, said):
    with pytest.raises(InputError, match=said):
        distill_drafts(model, values, QUIET)


def test_drafts_are_a_setting_of_a_run_that_starts_from_a_model():
    with pytest.raises(InputError, match=r"train.drafts: a setting of fine-tuning"):
        build_recipe({"train": {"drafts": True}})
    assert build_recipe({"search": {"draft": 4, "beam_size": 4}}).search.draft == 4


def test_a_log_probability_is_summed_as_greedy_search_sums_it():
    """In float32, one token after the other, so that both scores are equal to the last bit."""
    score = -1 / 3
    *_, ((found,),) = draft_search([TEXT], Scripted([TEXT]), 4, score=score)
    total = np.float32(0)
    for _ in range(10):
        total = np.float32(total + np.float32(score))
    assert found.log_probability == float(total)
    assert BOS not in found.tokens
