"""A look as page, JSON, picture, text, and in a notebook; and what if."""

import base64
import html
import json
import re
import sys
import unicodedata
from itertools import pairwise

import numpy as np
import pytest

from samples import sentences, write_lines
from undivided import InputError
from undivided.inference.search import forced_scores, search
from undivided.look import (
    View,
    count_what_if_runs,
    look,
    look_pieces,
    output_format,
    render_page,
    run_what_if,
    save_look,
    summarize,
)
from undivided.look.html import MODULES, embed_json, inline_module, pack, read_part
from undivided.look.text import fit_token, pad_to_width, terminal_width
from undivided.look.what_if import find_heads
from undivided.nn.attention import attention_hook

LINES = [source for source, _ in sentences(6, seed=9)]
HOSTILE = "</script><script>alert(1)</script> %data% \u2028 & 'x' \"y\" 🏳️‍🌈 שלום"


@pytest.fixture(scope="module")
def asked(translator):
    return look(translator, LINES[0], what_if=True)


def data_of(text):
    [found] = re.findall(r'<script type="application/json" id="look-data">(.*?)</script>', text, re.DOTALL)
    return json.loads(found)


def unpacked(value):
    levels = np.frombuffer(base64.b64decode(value["levels"]), dtype="<u2").astype(np.float64)
    return (value["low"] + levels * (value["high"] - value["low"]) / 65534).reshape(value["shape"])


# What if.


def test_every_head_is_turned_off_in_turn(translator, asked):
    places = [(each.use, each.layer, each.head) for each in asked.heads_off]
    assert places == [(use, 0, head) for use in ("encoder", "decoder", "cross") for head in range(2)]
    assert count_what_if_runs(asked) == len(asked.heads_off) + len(asked.alternatives)
    model, device = translator.artifact.model, translator.device
    source, target = [token.id for token in asked.source], [token.id for token in asked.tgt_out]
    before = sum(forced_scores(model, [source], [target], device)[0])
    for head, off in zip(find_heads(model, source, target), asked.heads_off):
        with attention_hook(head.off_hook()):
            assert translator.translate(LINES[0]) == off.translation
            best = search(model, [source], translator.search_config(), device)[0][0]
            after = sum(forced_scores(model, [source], [target], device)[0])
        assert off.score == pytest.approx(best.score, abs=1e-4)
        assert off.lost == pytest.approx(before - after, abs=1e-3)
    assert max(abs(off.lost) for off in asked.heads_off) > 0.1


def test_a_head_that_is_off_adds_nothing(translator):
    """The same as zero rows of W^O for its part."""
    model = translator.artifact.model
    source, target = (side.encode([LINES[0]])[0] for side in (translator.artifact.tokenizer.source,) * 2)
    head = next(head for head in find_heads(model, source, target) if head.use == "cross" and head.head == 1)
    with attention_hook(head.off_hook()):
        off = forced_scores(model, [source], [target], translator.device)[0]
    weight = model.decoder[0].cross_attention.output.weight
    width = weight.shape[1] // 2
    kept = weight.detach().clone()
    try:
        weight.data[:, width:] = 0.0
        assert forced_scores(model, [source], [target], translator.device)[0] == pytest.approx(off, abs=1e-5)
    finally:
        weight.data.copy_(kept)


def test_other_words_are_followed_by_search(translator, asked):
    assert {each.step for each in asked.alternatives} == set(range(len(asked.steps)))
    target = translator.artifact.tokenizer.target
    written = [token.id for token in asked.tgt_out]
    for each in asked.alternatives[:: max(1, len(asked.alternatives) // 6)]:
        assert each.id != written[each.step]
        candidate = next(c for c in asked.steps[each.step].candidates if c.id == each.id)
        assert each.probability == candidate.probability
        prefix = [*written[: each.step], each.id]
        source = [token.id for token in asked.source]
        best = search(translator.artifact.model, [source], translator.search_config(), translator.device, [prefix])[0][0]
        assert target.decode([best.tokens])[0] == each.translation
        assert each.score == pytest.approx(best.score, abs=1e-4)


def test_progress_is_told_of_every_question(translator):
    seen, told = look(translator, LINES[1]), []
    run_what_if(translator.artifact, seen, advance=told.append)
    assert sum(told) == count_what_if_runs(seen)


# The page.


def test_the_page_holds_the_numbers_of_the_look(asked):
    data = data_of(render_page(asked))
    for name in ("encoder", "decoder", "cross", "saliency_source", "saliency_target"):
        array = getattr(asked, name)
        np.testing.assert_allclose(unpacked(data[name]), array, atol=np.abs(array).max() / 65000)
        assert (unpacked(data[name])[array == 0] == 0).all()
    np.testing.assert_allclose(unpacked(data["cross"]).sum(-1), 1.0, atol=1e-4)
    assert data["translation"] == asked.translation
    assert [step["written"]["piece"] for step in data["steps"]] == [token.piece for token in asked.tgt_out]
    assert len(data["heads_off"]) == len(asked.heads_off)


def test_text_cannot_break_out_of_the_page(translator):
    result = look(translator, HOSTILE, "</title><img src=x onerror=alert(1)> %script%")
    text = render_page(result)
    data = data_of(text)
    assert data["text"] == HOSTILE
    assert data["translation"] == result.translation
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert "<img" not in text
    assert "\u2028" not in text[text.index("</title>") :]


def test_the_page_needs_nothing_from_elsewhere(asked):
    text = render_page(asked)
    assert "default-src 'none'" in text
    without = text.replace("http://www.w3.org/2000/svg", "")
    assert not re.findall(r"https?://|//cdn|@import|\bfetch\(|XMLHttpRequest|WebSocket|import\(", without)
    assert not re.search(r"^(?:import|export) ", text, re.MULTILINE)


def test_modules_come_after_what_they_import():
    for place, name in enumerate(MODULES):
        found = re.findall(r'^import \{[^}]*\} from "\./([a-z]+\.js)";$', read_part(name), re.MULTILINE)
        assert set(found) <= set(MODULES[:place])
        assert not re.search(r"^import (?!\{[^}]*\} from \"\./)", read_part(name), re.MULTILINE)


def test_modules_share_no_names():
    names = [
        name
        for module in MODULES
        for name in re.findall(r"^(?:const|let|class|function) (\w+)", inline_module(read_part(module)), re.MULTILINE)
    ]
    assert len(names) == len(set(names)), {name for name in names if names.count(name) > 1}


def test_embedded_json_is_json():
    assert json.loads(embed_json({"a": HOSTILE})) == {"a": HOSTILE}
    with pytest.raises(ValueError, match="not JSON compliant"):
        embed_json(float("nan"))


def test_packed_arrays_of_all_shapes():
    for array in (np.zeros((0, 0, 3, 3)), np.zeros((2, 2)), np.array([[-3.0, 0.0, 1.5]]), np.array([[0.25, 0.75]])):
        value = pack(array.astype(np.float32))
        np.testing.assert_allclose(unpacked(value), array, atol=1e-4)
        assert (unpacked(value)[array == 0] == 0).all()


def test_a_notebook_shows_the_page_in_a_frame(asked):
    text = asked._repr_html_()
    [inside] = re.findall(r'srcdoc="([^"]*)"', text)
    assert html.unescape(inside) == render_page(asked)
    assert 'sandbox="allow-scripts"' in text


# Text.


def test_repr_is_one_short_line(asked):
    assert repr(asked) == f"<Look {LINES[0]!r} → {asked.translation!r}, score {asked.score:.4f}>"


def test_summary(translator):
    result = look(translator, LINES[0])
    lines = summarize(result).splitlines()
    assert lines[0] == f"en  {LINES[0]}"
    assert lines[1] == f"de  {result.translation}"
    assert f"{result.score:.4f}" in lines[2]
    rows = lines[5:]
    assert len(rows) == len(result.steps)
    mean = result.cross.mean(axis=(0, 1))
    for row, step, weights in zip(rows, result.steps, mean):
        assert row.split()[0] == fit_token(step.written.piece)
        assert f"{fit_token(result.source[int(weights.argmax())].piece)} {weights.max():.0%}" in row


def test_summary_is_straight_for_wide_letters(translator):
    rows = summarize(look(translator, "東京 a \x07", "東京 x")).splitlines()
    assert "\x07" not in "".join(rows)
    assert any(line.startswith("model") for line in rows)
    assert terminal_width("東京") == 4
    assert terminal_width("e\u0301") == 1
    assert pad_to_width("東", 4) == "東  "
    assert all(unicodedata.category(letter)[0] != "C" for letter in "".join(rows))


# Files.


def test_json_is_the_look(translator, tmp_path, asked):
    save_look(asked, tmp_path / "look.json")
    values = json.loads((tmp_path / "look.json").read_text(encoding="utf-8"))
    assert values["format"] == "undivided look"
    np.testing.assert_allclose(values["cross"], asked.cross, atol=1e-6)
    np.testing.assert_allclose(np.array(values["decoder"]).sum(-1), 1.0, atol=1e-4)
    assert len(values["beam"]) == len(asked.beam)


@pytest.mark.parametrize("name", ["look.gif", "look", "look.html.gz", "look.txt"])
def test_unknown_kinds_of_file(name, tmp_path):
    with pytest.raises(InputError, match=r"written as \.html, \.json, \.pdf, \.png, \.svg"):
        output_format(tmp_path / name)


def test_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(InputError, match="no such directory"):
        output_format(tmp_path / "none" / "look.html")


def test_without_matplotlib_it_is_said_how_to_get_it(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match="pip install matplotlib"):
        output_format(tmp_path / "look.png")


STARTS = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-"}


@pytest.mark.parametrize("kind", STARTS)
@pytest.mark.parametrize("view", [View(), View("encoder", 1, 2), View("decoder", grid=True)], ids=["mean", "head", "grid"])
def test_pictures_are_what_their_names_say(asked, tmp_path, kind, view):
    pytest.importorskip("matplotlib", reason="pictures need the extra `look`")
    path = tmp_path / f"picture.{kind}"
    assert save_look(asked, path, view) == []
    first = path.read_bytes()
    assert first.startswith(STARTS[kind])
    save_look(asked, path, view)
    assert path.read_bytes() == first
    assert [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_picture_of_signs_that_mean_something_elsewhere(translator, tmp_path):
    pytest.importorskip("matplotlib", reason="pictures need the extra `look`")
    result = look(translator, "$x_1$ & \\frac < > 東 \U0010fffd", "$ % #")
    missing = save_look(result, tmp_path / "picture.svg")
    assert all(len(letter) == 1 for letter in missing)


def test_the_numbers_of_a_picture(asked):
    pytest.importorskip("matplotlib", reason="pictures need the extra `look`")
    from undivided.look.picture import heat_map

    axes = heat_map(asked, View("cross", 1, 2)).axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), asked.cross[0, 1], atol=1e-6)
    texts = {(round(text.get_position()[1]), round(text.get_position()[0])): text.get_text() for text in axes.texts}
    for (row, column), text in texts.items():
        assert float(text) == pytest.approx(asked.cross[0, 1, row, column], abs=0.0051)
    assert [label.get_text() for label in axes.get_yticklabels()][-1] == "</s>"


@pytest.mark.parametrize(
    ("view", "said"),
    [(View(layer=9), "no layer 9"), (View(head=3), "no head 3"), (View(layer=-1, head=-2), "no layer -1.*no head -2")],
)
def test_layers_and_heads_that_are_not_there(asked, view, said):
    with pytest.raises(InputError, match=said):
        view.check(asked)


# The command.


def test_command_writes_text_page_and_json(run, model, tmp_path):
    result = run("look", model, LINES[0], "--threads", "1")
    assert result.code == 0
    assert result.out.startswith(f"en  {LINES[0]}\n")
    made = run("look", model, LINES[0], "-o", tmp_path / "look.html", "--beam-size", "2")
    assert (made.code, made.out) == (0, "")
    data = data_of((tmp_path / "look.html").read_text(encoding="utf-8"))
    assert data["facts"]["beam_size"] == 2
    assert data["heads_off"]
    assert run("look", model, LINES[0], "--fast", "--target", "das Haus", "-o", tmp_path / "look.json", "-q").err == ""
    values = json.loads((tmp_path / "look.json").read_text(encoding="utf-8"))
    assert values["heads_off"] == []
    assert values["translation"] == "das Haus"


def test_command_reads_a_line_of_stdin(spawn, model):
    out, _ = spawn("look", model, "-").communicate(f"{LINES[0]}\n".encode())
    assert out.decode().startswith(f"en  {LINES[0]}\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "give either a text or --corpus"),
        (["a", "--corpus", "x.tsv"], "give either a text or --corpus"),
        (["a", "-o", "look.gif"], "look.gif: a look is written as"),
        (["a", "--layer", "7"], "no layer 7"),
        (["", "--target", ""], "the text is empty"),
        (["a", "--sample"], "sampling"),
        (["--corpus", "a", "--lines", "-1", "-o", "x.html"], "x.html: .*--lines: -1 .*--corpus: a has no target"),
        (["--corpus", "none.en", "none.de"], "none.en: no such file"),
    ],
)
def test_command_with_bad_input(run, model, arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run("look", model, *arguments)
    assert result.code == 2
    assert re.search(said, result.err)
    assert "Traceback" not in result.err
    assert list(tmp_path.iterdir()) == []


def test_steps_of_the_page_are_shifted(asked):
    steps = data_of(render_page(asked))["steps"]
    assert all(left["written"]["id"] == right["read"]["id"] for left, right in pairwise(steps))


def test_command_on_a_corpus(run, model, tmp_path):
    pairs = sentences(12, seed=4)
    files = [write_lines(tmp_path / f"c.{side}", [pair[at] for pair in pairs]) for at, side in enumerate(("en", "de"))]
    result = run("look", model, "--corpus", *files, "--lines", "6", "--alignments", tmp_path / "c.align", "--threads", "1")
    assert result.code == 0, result.err
    assert "encoder-decoder attention" in result.out
    assert "BLEU lost" in result.out
    lines = (tmp_path / "c.align").read_text().splitlines()
    assert len(lines) == 6
    assert all(re.fullmatch(r"\d+-\d+( \d+-\d+)*", line) for line in lines)
    assert run("look", model, "--corpus", *files, "--lines", "2", "-o", tmp_path / "h.json").code == 0
    values = json.loads((tmp_path / "h.json").read_text())
    assert len(values["heads"]) == 6
    assert values["lines"] == 2


def test_a_long_line_is_looked_at_as_it_is_translated(run, model, translator, tmp_path):
    """Sentence by sentence, each by itself; a page shows one of them."""
    text = " ".join(LINES[:2])
    assert translator.split(text) == LINES[:2]
    ran = run("look", model, text, "--fast")
    assert ran.code == 0
    assert [line.strip() in ran.out for line in LINES[:2]] == [True, True]
    assert "this line is translated in 2 pieces" in ran.err
    wanted = [each.translation for each in look_pieces(translator, text)]
    assert wanted == [translator.translate(line) for line in LINES[:2]]
    ran = run("look", model, text, "--fast", "--piece", "2", "-o", tmp_path / "look.json")
    assert json.loads((tmp_path / "look.json").read_text())["translation"] == wanted[1]
    assert "piece 2 is shown (--piece N for another)" in ran.err
    assert run("look", model, text, "--piece", "3").code == 2
    assert run("look", model, " ".join(LINES * 40), "--fast").code == 0, "longer than training allows"
