"""The questions learners ask: every claim holds of the numbers that are computed, and the pages show those numbers."""

import functools
import math
import re
from pathlib import Path

import pytest
import torch

from undivided.cli import main
from undivided.nn.attention import attention
from undivided.paper.faq import (
    ANSWERS,
    QUESTIONS,
    contexts,
    decoding,
    depth,
    distance,
    edits,
    heads,
    labels,
    lookup,
    norms,
    order,
    padding,
    pages,
    places,
    recurrences,
    residual,
    scaling,
    trial,
    write_ups,
)
from undivided.paper.faq.question import format_magnitude, format_spread, format_tiny

FAQ = Path(__file__).parents[3] / "docs" / "faq"
NAMES = [question.name for question in QUESTIONS]
NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?")


@functools.cache
def compute_once(name):
    """The numbers of a page at full size."""
    return question_named(name).compute(False)


def question_named(name):
    return next(each for each in QUESTIONS if each.name == name)


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
    made = {f"{name}{ending}" for name in NAMES for ending in (".md", ".ko.md", ".png", ".ko.png")}
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
    assert len(NAMES) == 26


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


PERCENT = {"positions": {"_in": 0, "_out": 1}, "sum-or-concatenate": {"_right": 1}, "non-linearity": {"": 1}}
"""Of trained models: endings of fields that are a column of the table in percent."""
TRAINED = (*PERCENT, "heads", "projections", "contexts")
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


@pytest.mark.parametrize("name", PERCENT)
def test_what_the_text_says_of_trained_models_is_what_their_table_shows(name):
    """The sentences give the means of the table, in percent."""
    fields, rows = pages.read_answers(FAQ / ANSWERS)[name].fields, rows_of(name)
    columns = PERCENT[name]
    for row, cells in rows.items():
        for ending, column in columns.items():
            assert float(fields[row + ending]) == pytest.approx(100 * float(NUMBER.findall(cells[column])[0]), abs=1)
    for key, cells in {"norm": ("positions", "index", 2), "bent": ("non-linearity", "relu", 0)}.items():
        if cells[0] == name:
            value = float(NUMBER.findall(rows[cells[1]][cells[2]])[0])
            assert float(fields[key]) == pytest.approx(value if key == "norm" else 100 * value, abs=1)


@pytest.mark.parametrize("ending", [".png", ".ko.png"])
@pytest.mark.parametrize("name", NAMES)
def test_every_picture_is_a_small_png(name, ending):
    content = (FAQ / f"{name}{ending}").read_bytes()
    assert content.startswith(b"\x89PNG")
    assert 2_000 < len(content) < 60_000


@pytest.mark.parametrize("name", NAMES)
def test_every_page_says_what_ran(name):
    assert re.search(r"\*\*What ran:\*\*[^*]*`undivided\.", pages.template(name, "en"))


@pytest.fixture(scope="module")
def drawn():
    """The picture of every question at its quick size."""
    figure = pytest.importorskip("matplotlib.figure")
    found = {}
    for question in QUESTIONS:
        found[question.name] = figure.Figure(figsize=question.size)
        question.draw(question.compute(True), found[question.name])
    return found


def texts_of(figure):
    from matplotlib.text import Text

    # Labels of ticks that are words are there only when they are asked for.
    ticks = [label for axes in figure.axes for axis in (axes.xaxis, axes.yaxis) for label in axis.get_ticklabels()]
    found = {text.get_text() for text in [*figure.findobj(Text), *ticks]}
    return {text for text in found if re.search("[A-Za-z]", text) and not text.startswith("$")}


def test_every_label_of_a_picture_has_its_korean(drawn):
    shown = {labels.NUMBER.sub("#", text) for figure in drawn.values() for text in texts_of(figure)}
    assert shown - labels.UNCHANGED - labels.KOREAN.keys() == set()
    assert all(re.search("[가-힣]", korean) for korean in labels.KOREAN.values())
    assert all(english.count("#") == korean.count("#") for english, korean in labels.KOREAN.items())


def test_labels_are_translated_in_place(drawn):
    figure = drawn["positions"]
    labels.translate_labels(figure)
    (axes,) = figure.axes
    assert axes.get_ylabel() == "정답률: 바로 앞 단어"
    assert {text.get_text() for text in axes.get_legend().get_texts()} == {"사인파", "학습된 위치", "번호 그대로", "없음"}
    bars = drawn["projections"]
    labels.translate_labels(bars)
    bars.canvas.draw()
    assert [label.get_text() for label in bars.axes[0].get_xticklabels()] == ["없음", "하나를\n공유", "Q와 K\n공유", "셋"]
    assert labels.translate("source: n = 5 keys and values") == "소스: n = 5개의 키와 값"


def test_heads_share_what_one_cannot():
    assert heads.neighbours(torch.tensor([[0, 7, 1, 6]])).tolist() == [[1, 0, 5, 3]]
    shown = rows_of("heads")
    means = [float(NUMBER.findall(shown[str(n)][2])[0]) for n in heads.HEADS]
    assert means == sorted(means)
    assert means[-1] > means[0] + 0.15
    assert len({row[1] for row in shown.values()}) == 1, "the same number of parameters"
    # Learning is not over after these steps, so that another CPU's rounding moves a single seed far.
    one, eight = (
        sum(
            trial.accuracy(heads.train_heads(n, heads.steps_of(quick=False), seed)[0], heads.neighbours, heads.TAUGHT)
            for seed in (1, 2, 3)
        )
        / 3
        for n in (1, 8)
    )
    assert is_in_range(eight, shown["8"][2], slack=0.06)
    assert is_in_range(one, shown["1"][2], slack=0.06)
    assert eight > one + 0.1


@pytest.mark.parametrize("way", heads.PROJECTIONS)
def test_one_seed_of_the_projections_is_in_the_range_of_the_page(way):
    itself, ahead, right = heads.measure_projections(way, heads.steps_of(quick=False), 1)
    shown = rows_of("projections")[way]
    assert is_in_range(itself, shown[0])
    assert is_in_range(ahead, shown[1], slack=0.1)
    assert is_in_range(right, shown[2], slack=0.1)


def test_shared_projections_make_scores_symmetric():
    words = heads.shuffled_alphabets(torch.Generator().manual_seed(3))[:1]
    assert heads.place_of_next(torch.tensor([[3, 4, 5, 6, 7, 0, 1, 2]])).tolist() == [[1, 2, 3, 4, 5, 6, 7, 0]]
    for way, symmetric in (("none", True), ("one shared", True), ("Q and K shared", True), ("three", False)):
        logs = heads.OneAttention(way).attend(words)[1][0].log()
        around, back = logs[0, 1] + logs[1, 2] + logs[2, 0], logs[1, 0] + logs[2, 1] + logs[0, 2]
        assert torch.allclose(around, back, atol=1e-3) == symmetric


def test_random_directions_are_nearly_at_right_angles():
    found = places.compute_angles(quick=True)
    for width, value in found.random.items():
        assert value == pytest.approx(found.expected[width], rel=0.05)
    assert max(found.between["words, positions"]) < 0.3 < min(found.between["positions, positions"])


def test_rows_of_positions_are_unique_and_turned():
    found = places.compute_rows(quick=True)
    assert found.nearest == pytest.approx(found.neighbours, rel=1e-6)
    assert [length for _, length in found.waves] == sorted(length for _, length in found.waves)
    moved = places.compute_relative(quick=True)
    assert moved.moved < 1e-4
    assert moved.turned < 1e-5
    assert moved.words_moved > 0.05
    other = places.turn(3, 16) @ places.turn(4, 16)
    torch.testing.assert_close(other, places.turn(7, 16))


def test_a_look_up_is_a_product_with_one_hot_vectors():
    found = lookup.compute_lookup(quick=True)
    assert found.difference == 0
    assert found.gradients == 0
    assert found.rows <= lookup.LENGTH
    context = lookup.compute_context(quick=True)
    assert context.weights[512] == 8 * 512 * 512 * 4 / 1e6
    assert context.weights[2048] == 16 * context.weights[512]
    assert context.states[2048] == 4 * context.states[512]


def test_residuals_keep_words_apart():
    found = residual.compute(quick=False)
    assert found.gradient[32][0] > 0.1
    assert found.gradient[32][1] < 1e-4
    assert found.alike[32][1] > 0.999
    assert found.alike[32][0] < 0.95


def test_edits_reach_as_far_as_a_model_looks():
    found = {
        name: {edit: edits.describe(values) for edit, values in each.items()} for name, each in edits.compute(True).by_word.items()
    }
    assert [found["RNN"][edit][0] for edit in edits.EDITS] == [0, edits.LENGTH - 1 - edits.MIDDLE, edits.LENGTH - edits.MIDDLE]
    assert all(changed == left for changed, left, _ in found["Transformer"].values())
    assert found["without positions"]["swapped"][0] == 0


def test_recurrences_saturate_run_away_and_vanish():
    growth = recurrences.compute_growth(quick=True)
    assert max(growth.size["tanh"]) < 1
    assert growth.size["relu"][-1] > 1e6
    found = recurrences.compute_spectrum(quick=True)
    for scale in recurrences.SCALES:
        assert found.linear[scale][50] == pytest.approx(scale**50, rel=1e-3)
        assert found.clipped[scale] == pytest.approx(min(1.0, found.whole[scale]), rel=1e-4)
    assert found.tanh[1.1][100] < found.linear[1.1][100]


def test_parameters_are_those_of_the_formulas():
    counted, formula = recurrences.compute_parameters(quick=True)
    assert counted == formula
    assert counted.keys() == recurrences.FORMULAS.keys()


def test_the_meaning_of_a_word_comes_from_its_company():
    for word, name in (("apple", "apple"), ("쓰다", "ko")):
        same, other, right = contexts.measure(word, 60, 1)
        assert (same[0], other[0]) == (pytest.approx(1, abs=1e-5), pytest.approx(1, abs=1e-5))
        assert other[-1] < 0.5 < same[-1]
        assert right == 1
        shown = rows_of("contexts")
        for layer in range(contexts.LAYERS + 1):
            cells = shown[f"{word}` `{layer}"]
            assert is_in_range(same[layer], cells[0], slack=0.06)
            assert is_in_range(other[layer], cells[1], slack=0.06)
        fields = pages.read_answers(FAQ / ANSWERS)["contexts"].fields
        assert float(fields[f"{name}_other"]) == pytest.approx(float(NUMBER.findall(shown[f"{word}` `3"][1])[0]), abs=0.006)


def test_what_write_ups_say_is_refuted():
    found = write_ups.compute(quick=True)
    assert found.waves == sorted(found.waves)
    assert found.waves[0] == pytest.approx(2 * math.pi, rel=0.01)
    *early, last = found.reads
    assert max(max(row) for row in early) == 0
    assert min(last) > 0.01
    assert found.rows < 1e-5
    assert found.columns[0] < 0.9
    assert found.columns[1] > 1.1
    assert found.future == 0
