"""The questions learners ask: every claim holds of the numbers that are computed, and the pages show those numbers."""

import math
import re
from pathlib import Path

import pytest
import torch

from undivided.cli import main
from undivided.nn.attention import attention
from undivided.paper.faq import ANSWERS, QUESTIONS, decoding, depth, distance, norms, order, padding, pages, scaling, trial
from undivided.paper.faq.question import power, spread, tiny

FAQ = Path(__file__).parents[3] / "docs" / "faq"
NAMES = [question.name for question in QUESTIONS]
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?")


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_num_threads(before)


def test_scores_grow_with_the_width_and_silence_the_softmax():
    narrow, *_, wide = scaling.compute_scores(quick=True)
    for each in (narrow, wide):
        assert each.variance[0] == pytest.approx(each.d_k, rel=0.2)
        assert each.variance[1] == pytest.approx(1, rel=0.2)
    assert wide.largest[0] > 0.9
    assert wide.largest[1] == pytest.approx(narrow.largest[1], abs=0.05)
    assert wide.gradient[0] < narrow.gradient[0] / 3
    assert wide.gradient[1] == pytest.approx(narrow.gradient[1], rel=0.2)


def test_the_gradient_of_a_softmax_is_the_norm_of_its_jacobian():
    query, key = torch.randn(1, 6), torch.randn(5, 6)
    _, weights = attention(query, key, key)
    jacobian = torch.autograd.functional.jacobian(lambda scores: scores.softmax(-1), (query @ key.T / math.sqrt(6))[0])
    torch.testing.assert_close(scaling.softmax_gradient(weights)[0], jacobian.norm())


def test_unscaled_words_drown_in_positions():
    for each in scaling.compute_norms(quick=True):
        assert each.bare == pytest.approx(1, rel=0.1)
        assert each.scaled == pytest.approx(math.sqrt(each.d_model), rel=0.1)
        assert each.position == pytest.approx(math.sqrt(each.d_model / 2), rel=1e-4)
        assert each.alike[0] > 0.95
        assert each.alike[1] < 0.5


def test_shifted_right_shows_the_past_and_not_the_answer():
    source = [[trial.FIRST_WORD, trial.FIRST_WORD + 1]]
    batch = trial.twice(source)
    assert decoding.names(batch.tgt_in[0]) == ["<s>", "a", "a", "b", "b"]
    assert decoding.names(batch.tgt_out[0]) == ["a", "a", "b", "b", "</s>"]
    (model, loss), (peeking, its_loss) = (trial.taught_twice(shifted, 250) for shifted in (True, False))
    for place, row in enumerate(decoding.influence(model, source)):
        assert row[place + 1 :] == [0.0] * (4 - place)
        assert row[place] > 0
    assert its_loss < loss
    assert decoding.written_right(model, 20) > 0.5
    assert decoding.written_right(peeking, 20) == 0


def test_one_call_says_what_many_steps_say():
    found = decoding.compute_speed(quick=True)
    assert [each.calls for each in found] == [(1, 4), (1, 8), (1, 16)]
    assert all(each.difference < 1e-4 for each in found)
    assert len({each.chains[0] for each in found}) == 1
    assert found[-1].chains[1] - found[-2].chains[1] == 2 * (found[-2].chains[1] - found[-3].chains[1])


def test_source_and_target_have_their_own_lengths():
    found = decoding.compute_crossed(quick=True)
    for n, m, weights, states, off in found.shapes:
        assert m == 2 * (n - 1) + 1
        assert weights == (m, n)
        assert states[0] == m
        assert off < 1e-5


def test_masked_padding_is_nothing():
    found = padding.compute(quick=True)
    shuffled, in_order = found.orders
    assert in_order.padding < shuffled.padding / 2
    assert all(value == 0 for row in found.weights[0] for value in row[padding.REAL :])
    assert found.change[0] < 1e-5
    assert found.change[1] > 0.1
    assert 0 < found.on_padding[1] < 1
    assert found.on_padding[0] == 0


def test_swapped_sentences_are_one_bag_without_positions():
    for each in order.compute_bags(quick=True).values():
        assert max(each.by_word[0]) < 1e-5
        assert each.pooled[0] < 1e-5
        assert min(each.by_word[1]) > 0.01
        assert each.pooled[1] > 0.01


def test_swapped_sentences_have_the_same_words():
    for first, second in order.SENTENCES.values():
        assert first != second
        assert sorted(first.split()) == sorted(second.split())


def test_sinusoids_learn_the_word_before_and_no_positions_do_not():
    right = {}
    for kind in ("sinusoidal", "none"):
        torch.manual_seed(1)
        right[kind] = trial.accuracy(trial.learn(trial.Tagger(order.config(kind)), trial.previous, 150, 1).model, trial.previous, 8)
    assert right["sinusoidal"] > 0.8
    assert right["none"] < 0.6


def test_the_sum_is_a_case_of_concatenation():
    assert order.same_as_sum() < 1e-6
    found = order.compute_joined(quick=True)
    assert found.parameters["concatenate"] - found.parameters["add"] == 2 * 32 * 32


def test_attention_alone_is_linear_in_its_values():
    found = depth.compute(quick=True).unmixed
    assert max(found["none"]) < 1e-5
    assert max(found["linear"]) < 1e-5
    assert min(found["relu"]) > 0.05


def test_only_a_non_linearity_learns_a_sum_modulo():
    assert depth.learned("relu", 250, 1) > depth.learned("linear", 250, 1) + 0.2


def test_layer_norm_minds_its_own_token():
    found = norms.compute(quick=True)
    assert max(value for values in found.changes["layer"] for value in values) < 1e-5
    assert min(value for values in found.changes["batch"] for value in values) > 0.05
    assert all(run[-1] < run[0] for run in found.by_size["batch"])


def test_gradients_over_distance():
    found = distance.compute(quick=True)
    near, far = 1, found.longest

    def left(name):
        return found.mean(name, far) / found.mean(name, near)

    assert left("tanh") < 1e-6
    assert left("tanh, U × 3") > 1
    assert left("LSTM, gate open") > 100 * left("LSTM")
    assert left("GRU, gate open") > 100 * left("GRU")
    assert 0.2 < left("attention") < 5


def test_numbers_are_told_as_they_are():
    assert spread([0.5, 1.0]) == "0.75 (0.50–1.00)"
    assert [tiny(0.0), tiny(1e-7), tiny(0.0123)] == ["0", "< 0.00001", "0.012"]
    assert [power(0.5), power(3e-7)] == ["0.50", "3e-07"]


def test_all_pages_pictures_and_the_index_are_written_and_one_is_rewritten(tmp_path, capsys):
    out = tmp_path / "faq"
    assert main(["paper", "faq", "--out", str(out), "--quick", "-q"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(out / f"{name}.md") for name in NAMES]
    made = {f"{name}{ending}" for name in NAMES for ending in (".md", ".ko.md", ".png")}
    assert {path.name for path in out.iterdir()} == made | {"README.md", "README.ko.md", ANSWERS}
    assert list(pages.read_answers(out / ANSWERS)) == NAMES
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    (out / "sqrt-dk.md").unlink()
    assert main(["paper", "faq", "--out", str(out), "--quick", "-q", "--only", "sqrt-dk"]) == 0
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before


def test_an_unknown_question_is_told(capsys, tmp_path):
    assert main(["paper", "faq", "--out", str(tmp_path / "new"), "--only", "nonsense"]) == 2
    said = capsys.readouterr().err
    assert all(name in said for name in ("nonsense", *NAMES))
    assert not (tmp_path / "new").exists()


def test_there_is_a_text_for_every_question_and_no_other():
    texts = {path.name.partition(".")[0] for path in pages.TEXT.glob("*.md")}
    assert texts == {*NAMES, "README", "footer"}
    assert len(NAMES) == 12


@pytest.mark.parametrize("language", pages.ENDINGS)
@pytest.mark.parametrize("name", NAMES)
def test_the_page_in_docs_is_its_text_with_its_numbers(name, language):
    page = (FAQ / f"{name}{pages.ENDINGS[language]}").read_text(encoding="utf-8")
    assert page == pages.page(name, language, pages.read_answers(FAQ / ANSWERS)[name]), "run undivided paper faq"
    assert len(page.splitlines()) < 45


@pytest.mark.parametrize("language", pages.ENDINGS)
def test_the_index_in_docs_is_that_of_the_questions(language):
    assert (FAQ / f"README{pages.ENDINGS[language]}").read_text(encoding="utf-8") == pages.index(NAMES, language)


def all_of(answer):
    return [*answer.fields.values(), *(cell for row in answer.rows for cell in row)]


@pytest.mark.parametrize("name", ["sqrt-dk", "sqrt-d-model", "bag-of-words", "layer-norm"])
def test_the_numbers_in_docs_are_those_of_today(name):
    (question,) = (each for each in QUESTIONS if each.name == name)
    now, then = question.shown(question.compute(False)), pages.read_answers(FAQ / ANSWERS)[name]
    assert now.fields.keys() == then.fields.keys()
    for ours, theirs in zip(all_of(now), all_of(then)):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        pairs = zip(NUMBER.findall(ours), NUMBER.findall(theirs))
        assert all(float(one) == pytest.approx(float(other), rel=0.05, abs=0.011) for one, other in pairs)


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_a_small_png(name):
    content = (FAQ / f"{name}.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert 2_000 < len(content) < 60_000


@pytest.mark.parametrize("name", NAMES)
def test_every_page_says_what_ran(name):
    assert re.search(r"\*\*What ran:\*\*[^*]*`undivided\.", pages.template(name, "en"))
