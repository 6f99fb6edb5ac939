"""The questions learners ask: every claim holds of the numbers that are computed, and the pages show those numbers."""

import functools
import math
import re
from pathlib import Path

import pytest
import torch

from undivided.cli import main
from undivided.nn.attention import attention
from undivided.paper.faq import ANSWERS, QUESTIONS, decoding, depth, distance, norms, order, padding, pages, scaling, trial
from undivided.paper.faq.question import format_magnitude, format_spread, format_tiny

FAQ = Path(__file__).parents[3] / "docs" / "faq"
NAMES = [question.name for question in QUESTIONS]
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?")


@functools.cache
def compute_once(name):
    """The numbers of a page at full size."""
    (question,) = (each for each in QUESTIONS if each.name == name)
    return question.compute(False)


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
    found = compute_once("shifted-right")
    assert found.tgt_in == ["<s>", "a", "a", "b", "b", "c", "c"]
    assert found.tgt_out == ["a", "a", "b", "b", "c", "c", "</s>"]
    for place, row in enumerate(found.influence):
        assert row[place + 1 :] == [0.0] * (6 - place)
        assert row[place] > 0
    assert found.losses[1] < found.losses[0]
    assert found.right == (1.0, 0.0)


def test_one_call_says_what_many_steps_say():
    found = decoding.compute_speed(quick=True)
    assert [each.calls for each in found] == [(1, 4), (1, 8), (1, 16)]
    assert all(each.difference < 1e-4 for each in found)
    assert len({each.chains[0] for each in found}) == 1
    assert found[-1].chains[1] - found[-2].chains[1] == 2 * (found[-2].chains[1] - found[-3].chains[1])


def test_source_and_target_have_their_own_lengths():
    found = compute_once("lengths")
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


def test_the_sum_is_a_case_of_concatenation():
    assert order.difference_from_sum() < 1e-6
    found = order.compute_joined(quick=True)
    assert found.parameters["concatenate"] - found.parameters["add"] == 2 * 32 * 32


def test_attention_alone_is_linear_in_its_values():
    found = depth.compute(quick=True).unmixed
    assert max(found["none"]) < 1e-5
    assert max(found["linear"]) < 1e-5
    assert min(found["relu"]) > 0.05


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
    assert format_spread([0.5, 1.0]) == "0.75 (0.50–1.00)"
    assert [format_tiny(0.0), format_tiny(1e-7), format_tiny(0.0123)] == ["0", "< 0.00001", "0.012"]
    assert [format_magnitude(0.5), format_magnitude(3e-7)] == ["0.50", "3e-07"]


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


def test_the_index_lists_what_is_there(tmp_path):
    assert main(["paper", "faq", "--out", str(tmp_path), "--quick", "-q", "--only", "sqrt-dk"]) == 0
    for ending in (".md", ".ko.md"):
        linked = re.findall(r"\]\(([\w.-]+)\)", (tmp_path / f"README{ending}").read_text(encoding="utf-8"))
        assert f"sqrt-dk{ending}" in linked
        assert not {f"{name}{ending}" for name in NAMES if name != "sqrt-dk"} & set(linked)


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


TRAINED = ("sum-or-concatenate", "positions", "non-linearity")
"""Of minutes with all their seeds: one seed is trained again, and must lie in the range that the page shows."""
TIMES = {"parallel": ("ratio", 3), "padding": ("slower", 3)}
"""A field and a column that are times, which no seed fixes: they are never compared, only what is claimed of them."""


CHAOTIC = ("stretched", "`tanh, U × 3`")
"""A field and a row of `gradients`: in a chaotic network the last bit of a product decides, so only what is claimed is compared."""


def like(ours, theirs):
    """Whether two shown numbers are the same up to rounding on another CPU; powers of ten up to their last digit."""
    one, other = float(ours), float(theirs)
    if "e" in ours + theirs:
        return abs(math.log10(one) - math.log10(other)) < 0.31
    return one == pytest.approx(other, rel=0.05, abs=0.011)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in TRAINED])
def test_the_numbers_in_docs_are_those_of_today(name):
    (question,) = (each for each in QUESTIONS if each.name == name)
    field, column = TIMES.get(name, ("", None))
    now, then = question.summarise(compute_once(name)), pages.read_answers(FAQ / ANSWERS)[name]
    assert now.fields.keys() == then.fields.keys()
    for answer in (now, then):
        answer.fields.pop(field, None)
        answer.fields.pop(CHAOTIC[0], None)
        answer.rows[:] = [row for row in answer.rows if row[0] != CHAOTIC[1]]
        for row in answer.rows if column else ():
            del row[column]
    for ours, theirs in zip(all_of(now), all_of(then), strict=True):
        assert NUMBER.sub("#", ours) == NUMBER.sub("#", theirs)
        assert all(like(*pair) for pair in zip(NUMBER.findall(ours), NUMBER.findall(theirs))), (ours, theirs)


def test_the_times_in_docs_show_what_is_claimed_of_them():
    shown = pages.read_answers(FAQ / ANSWERS)
    told = [float(row[3]) for row in shown["parallel"].rows]
    assert told == sorted(told)
    assert float(shown["parallel"].fields["ratio"]) == pytest.approx(told[-1], abs=0.5)
    assert float(shown["padding"].fields["slower"]) == pytest.approx(float(shown["padding"].rows[0][3]), abs=0.06)
    short, *_, long = decoding.compute_speed(quick=True)
    assert 1 < short.ratio < long.ratio


def test_stretched_gradients_explode_today_and_in_docs():
    found, (_, *told) = compute_once("gradients"), pages.read_answers(FAQ / ANSWERS)["gradients"].rows[1]
    today = [found.mean("tanh, U × 3", distance) for distance in (1, 10, 50, 100)]
    for ours, theirs in zip(today, map(float, told), strict=True):
        assert abs(math.log10(ours) - math.log10(theirs)) < 1.5
    assert sorted(today) == today
    assert today[-1] > 1e6 * today[0]


def rows_of(name):
    """The table of a page by the name in its first column."""
    return {row[0].strip("`"): row[1:] for row in pages.read_answers(FAQ / ANSWERS)[name].rows}


def is_in_range(value, cell, slack=0.03):
    """Whether a value is among those that a cell like `0.97 (0.95–0.99)` tells of, give or take another CPU's rounding."""
    mean, low, high = map(float, NUMBER.findall(cell))
    assert low <= mean <= high
    return low - slack <= value <= high + slack


@pytest.mark.parametrize("kind", order.KINDS)
def test_one_seed_of_the_positions_is_in_the_range_of_the_page(kind):
    torch.manual_seed(1)
    model = trial.train_tagger(trial.Tagger(order.config(kind)), trial.previous, 300, 1, order.TAUGHT).model
    taught, longest, norm = rows_of("positions")[kind]
    assert is_in_range(trial.accuracy(model, trial.previous, order.TAUGHT), taught)
    assert is_in_range(trial.accuracy(model, trial.previous, order.LENGTHS[-1]), longest)
    if kind != "none":
        assert float(model.embedding.positions.rows(order.TAUGHT)[-1].detach().norm()) == pytest.approx(float(norm), abs=0.3)


@pytest.mark.parametrize("join", ["add", "concatenate"])
def test_one_seed_of_joining_is_in_the_range_of_the_page(join):
    torch.manual_seed(1)
    run = trial.train_tagger(trial.Tagger(order.config(join=join)), trial.previous, 200, 1, order.TAUGHT)
    parameters, right, loss = rows_of("sum-or-concatenate")[join]
    assert f"{sum(part.numel() for part in run.model.parameters()):,}" == parameters
    assert is_in_range(trial.accuracy(run.model, trial.previous, order.TAUGHT), right)
    assert is_in_range(order.smooth(run.losses)[-1], loss, slack=0.02)


@pytest.mark.parametrize("variant", depth.VARIANTS)
def test_one_seed_of_the_non_linearity_is_in_the_range_of_the_page(variant):
    assert is_in_range(depth.train_variant(variant, 400, 1), rows_of("non-linearity")[variant][1])


def test_what_no_matrix_can_be_is_what_the_page_shows(monkeypatch):
    monkeypatch.setattr(depth, "train_variant", lambda *_: 0.0)
    now = {row[0].strip("`"): row[1] for row in depth.summarise(depth.compute(False)).rows}
    assert now == {variant: row[0] for variant, row in rows_of("non-linearity").items()}


@pytest.mark.parametrize("name", TRAINED)
def test_what_the_text_says_of_trained_models_is_what_their_table_shows(name):
    """The sentences give the means of the table, in percent."""
    fields, rows = pages.read_answers(FAQ / ANSWERS)[name].fields, rows_of(name)
    columns = {"positions": {"_in": 0, "_out": 1}, "sum-or-concatenate": {"_right": 1}, "non-linearity": {"": 1}}[name]
    for row, cells in rows.items():
        for ending, column in columns.items():
            assert float(fields[row + ending]) == pytest.approx(100 * float(NUMBER.findall(cells[column])[0]), abs=1)
    for key, cells in {"norm": ("positions", "index", 2), "bent": ("non-linearity", "relu", 0)}.items():
        if cells[0] == name:
            value = float(NUMBER.findall(rows[cells[1]][cells[2]])[0])
            assert float(fields[key]) == pytest.approx(value if key == "norm" else 100 * value, abs=1)


@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_a_small_png(name):
    content = (FAQ / f"{name}.png").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert 2_000 < len(content) < 60_000


@pytest.mark.parametrize("name", NAMES)
def test_every_page_says_what_ran(name):
    assert re.search(r"\*\*What ran:\*\*[^*]*`undivided\.", pages.template(name, "en"))
