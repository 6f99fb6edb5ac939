"""The page of `undivided look` in a real browser, opened from disk: no error, no request, every view driven."""

import functools
import http.server
import json
import re
import shutil
import threading

import numpy as np
import pytest
import torch
from live_pages import check_with_axe

from samples import sentences
from undivided.artifact import Artifact
from undivided.config import build_recipe
from undivided.look import look, render_page, run_what_if
from undivided.look.html import PAGE, page_texts
from undivided.look.result import FATES, USES, readable_piece, to_plain_values
from undivided.models import make_model

LINES = [source for source, _ in sentences(6, seed=9)]
HOSTILE = "</script><b>&amp; \u2028 🏳️‍🌈 שלום مرحبا"


@pytest.fixture(scope="module")
def seen(translator):
    return look(translator, LINES[0], what_if=True)


@pytest.fixture(scope="module")
def large(translator):
    """40 × 40 tokens, 6 layers, 8 heads."""
    torch.manual_seed(1)
    settings = {"d_model": 32, "d_ff": 32, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6}
    recipe = build_recipe({"model": settings, "search": {"max_extra": 1, "beam_size": 4}})
    tokenizer = translator.artifact.tokenizer
    model = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval()
    artifact = Artifact(recipe, tokenizer, model)
    words = " ".join(LINES * 3).split(" ")
    text = next(t for n in range(1, 99) if len(tokenizer.source.encode([t := " ".join(words[:n])])[0]) >= 40)
    return run_what_if(artifact, look(artifact, text, text))


def texts(tab, selector):
    return tab.eval_on_selector_all(selector, "all => all.map(each => each.textContent)")


def cells(tab, part=".attention"):
    """The numbers of a heat map, None where a cell is masked."""
    tab.eval_on_selector(f"{part} details", "details => { details.open = true }")
    tab.wait_for_selector(f"{part} table.numbers tr")
    return tab.eval_on_selector(
        f"{part} table.numbers",
        "table => [...table.tBodies[0].rows].map(row => [...row.cells].slice(1).map("
        "cell => cell.classList.contains('masked') ? null : cell.textContent))",
    )


def number(text):
    return float(text.replace("−", "-")) if text else 0.0


def assert_heat(shown, weights, mask=None):
    assert np.shape(shown) == weights.shape
    for row, column in np.ndindex(weights.shape):
        if mask is not None and not mask[row, column]:
            assert shown[row][column] is None
        else:
            assert number(shown[row][column]) == pytest.approx(weights[row, column], abs=0.0051)


def choose(tab, part, value):
    tab.locator(f"{part} input[value='{value}']").first.check()


def slide(tab, value):
    tab.eval_on_selector(
        ".stepper input", "(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }", value
    )


def beyond(step):
    """What was written, where it is not among the candidates."""
    return [step.written] if step.rank > len(step.candidates) else []


def layer(tab, number):
    tab.locator(".controls fieldset").nth(1).locator(f"input[value='{number}']").check()


# The whole.


@pytest.mark.parametrize("text", [LINES[0], "a", HOSTILE], ids=["sentence", "letter", "hostile"])
def test_it_opens_and_shows_both_sentences(show, translator, text):
    result = look(translator, text)
    tab = show(render_page(result))
    assert texts(tab, ".sentence bdi") == [text, result.translation]
    assert tab.locator(".part").count() == 5
    assert tab.title().startswith(text.replace("\u2028", "")[:8])
    assert "Not computed" in tab.locator(".part").nth(2).text_content()
    assert texts(tab, ".words.right .token") == [readable_piece(token.piece) for token in result.source]
    assert texts(tab, ".words.left .token") == [readable_piece(token.piece) for token in result.tgt_out]


def test_a_given_translation_is_shown_beside_the_models_own(show, translator):
    result = look(translator, LINES[0], "das Haus")
    tab = show(render_page(result))
    assert texts(tab, ".sentence bdi") == [LINES[0], "das Haus", result.own]
    assert "this translation was given" in tab.text_content("header")


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [360, 768, 1400])
def test_nothing_is_wider_than_the_window(show, seen, width, dark):
    tab = show(render_page(seen), width, dark)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    ground = tab.evaluate("getComputedStyle(document.querySelector('.look')).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == dark
    covered = tab.evaluate(
        """() => [...document.querySelectorAll('.card')].filter(card => [...card.children].some(child => {
            const inner = child.getBoundingClientRect(), outer = card.getBoundingClientRect();
            return inner.right > outer.right + 1 || inner.left < outer.left - 1;
        })).length"""
    )
    assert covered == 0


LOW_CONTRAST = """() => {
    const parts = colour => { const found = colour.match(/[\\d.]+/g).map(Number); return [...found.slice(0, 3), found[3] ?? 1]; };
    const over = ([r, g, b, a], ground) => [r, g, b].map((value, at) => a * value + (1 - a) * ground[at]);
    const light = colour => colour.map(v => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, at) => sum + v * [0.2126, 0.7152, 0.0722][at], 0);
    const contrast = (one, other) => {
        const [a, b] = [light(one), light(other)];
        return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    };
    const ground = element => {
        const found = element ? parts(getComputedStyle(element).backgroundColor) : [255, 255, 255, 1];
        return found[3] === 1 ? found.slice(0, 3) : over(found, ground(element.parentElement));
    };
    const look = document.querySelector('.look'), low = [];
    const hatch = getComputedStyle(look).getPropertyValue('--hatch').match(/[0-9a-f]{2}/gi).map(part => parseInt(part, 16));
    const texts = document.createTreeWalker(look, NodeFilter.SHOW_TEXT);
    let count = 0;
    for (let node = texts.nextNode(); node; node = texts.nextNode()) {
        const element = node.parentElement, style = getComputedStyle(element);
        if (!node.data.trim() || !element.checkVisibility() || element.closest('.hidden, title, :disabled')) continue;
        count++;
        const box = element.closest('g')?.querySelector('rect');
        const grounds = [box ? parts(getComputedStyle(box).fill).slice(0, 3) : ground(element)];
        if (element.closest('.masked')) grounds.push(hatch);
        let opacity = 1;
        for (let at = element; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
        const ink = parts(box ? style.fill : style.color);
        for (const below of grounds) {
            const found = contrast(over([...ink.slice(0, 3), ink[3] * opacity], below), below);
            if (found < 4.5) low.push([node.data.slice(0, 20), element.className?.baseVal ?? element.className, found]);
        }
    }
    return [count, low];
}"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_text_is_readable_on_its_ground(show, seen, dark):
    """Contrast of 4.5 to 1 (WCAG AA) for every text that can be seen: plain, on weights, on hatching, in the tree."""
    tab = show(render_page(seen), dark=dark)
    for touch in (
        lambda: None,
        lambda: tab.locator(".words.left button").nth(2).hover(),
        tab.locator(".words.right button").last.hover,
        lambda: choose(tab, ".controls", "decoder"),
        lambda: tab.locator(".tree .node").nth(3).click(),
        tab.locator(".off-grid button").last.click,
        lambda: choose(tab, ".embeddings", "memory"),
    ):
        touch()
        count, low = tab.evaluate(LOW_CONTRAST)
        assert count > 200
        assert low == []


def test_a_phone(show, large):
    """390 pixels wide: every part can be reached by a finger and nothing that matters is out of sight."""
    tab = show(render_page(large), width=390)
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390
    small = tab.evaluate(
        """() => [...document.querySelectorAll('.look button, .look .choice label, .look input[type=range]')]
            .map(each => [each.className, each.getBoundingClientRect()])
            .filter(([, box]) => box.width && Math.min(box.width, box.height) < 23.5)
            .map(([name, box]) => [name, box.width, box.height])"""
    )
    assert small == []
    right = tab.eval_on_selector_all(".look nav button", "all => Math.max(...all.map(each => each.getBoundingClientRect().right))")
    assert right <= 390
    told = tab.eval_on_selector_all(
        ".beam tbody td:last-child", "all => Math.max(...all.map(each => each.getBoundingClientRect().right))"
    )
    assert told <= 390
    tab.locator(".words.left button").nth(4).click()
    assert "attends to" in tab.text_content(".lines .status")


def test_nothing_moves_under_the_pointer(show, large):
    tab = show(render_page(large))
    where = """() => [...document.querySelectorAll('.words button, .attention .heat .names > *, .strip td, .stepper button')]
        .map(each => each.getBoundingClientRect()).map(box => [box.x, box.width])"""
    before = tab.evaluate(where)
    tab.locator(".words.left button").nth(9).hover()
    assert tab.evaluate(where) == before
    tab.locator(".attention .heat canvas").hover(position={"x": 90, "y": 60})
    assert tab.evaluate(where) == before
    tab.evaluate("document.querySelector('.strip').parentElement.scrollTo = () => {}")
    slide(tab, 7)
    assert tab.evaluate(where) == before


def test_every_control_has_a_name_and_can_be_reached(show, seen):
    tab = show(render_page(seen))
    nameless = tab.evaluate(
        """() => [...document.querySelectorAll('.look button, .look input')].filter(each =>
            !(each.getAttribute('aria-label') || each.textContent.trim() || each.closest('label')?.textContent.trim())).length"""
    )
    assert nameless == 0
    unreachable = tab.evaluate(
        """() => [...document.querySelectorAll('.look .scroll')].filter(
            each => each.tabIndex !== 0 || !each.getAttribute('aria-label')).length"""
    )
    assert unreachable == 0


@pytest.mark.parametrize(("width", "dark", "language"), [(1280, True, "en"), (390, False, "ko")])
def test_axe_finds_nothing_serious(show, seen, width, dark, language):
    tab = show(render_page(seen), width, dark)
    tab.locator(f".top-line input[value={language}]").check()
    check_with_axe(tab)


# Attention.


def test_the_heat_map_has_the_numbers_of_the_look(show, seen):
    tab = show(render_page(seen))
    assert_heat(cells(tab), seen.cross[0].mean(axis=0))
    for use in USES:
        choose(tab, ".controls", use)
        for head in range(2):
            tab.locator(".multiples button").nth(head).click()
            assert_heat(cells(tab), seen.attention(use)[0, head], seen.mask(use))
            assert f"{USES[use]}, layer 1, head {head + 1}" in tab.text_content(".attention > .card h3")


def shades(tab):
    """How light each cell of the drawn map is, near its upper left corner; 0 where the ground shows through."""
    return np.array(
        tab.eval_on_selector(
            ".attention .heat",
            """heat => {
                const canvas = heat.querySelector('canvas'), ratio = window.devicePixelRatio;
                const copy = Object.assign(document.createElement('canvas'), { width: canvas.width, height: canvas.height });
                const context = copy.getContext('2d', { willReadFrequently: true });
                context.drawImage(canvas, 0, 0);
                const [columns, rows] = ['.top', '.side'].map(names => heat.querySelector(names).children.length);
                const shade = (row, column) => {
                    const [x, y] = [(column * canvas.clientWidth) / columns + 2, row * 24 + 2];
                    const { data } = context.getImageData(Math.round(x * ratio), Math.round(y * ratio), 6, 1);
                    return [3, 7, 11, 15, 19, 23].every(at => data[at] === 255) ? data[0] + data[1] + data[2] : 0;
                };
                return Array.from({ length: rows }, (_, row) => Array.from({ length: columns }, (_, column) => shade(row, column)));
            }""",
        )
    )


def test_the_drawn_map_is_as_dark_as_the_weights(show, seen):
    tab = show(render_page(seen))
    tab.set_viewport_size({"width": 1400, "height": 1800})
    for use in USES:
        choose(tab, ".controls", use)
        tab.locator(".multiples button").nth(1).click()
        tab.wait_for_function(
            "document.querySelector('.cells').clientHeight === document.querySelector('.cells canvas').clientHeight"
        )
        drawn, weights, mask = shades(tab), seen.attention(use)[0, 1], seen.mask(use)
        assert drawn.shape == weights.shape
        open_cells = np.ones_like(weights, dtype=bool) if mask is None else mask
        assert (drawn[open_cells] > 0).all()
        assert (drawn[~open_cells] == 0).all()
        order = np.argsort(weights[open_cells])
        assert (np.diff(drawn[open_cells][order]) <= 0).all()


def test_walking_the_drawn_map_with_keys(show, large):
    tab = show(render_page(large))
    tab.set_viewport_size({"width": 500, "height": 500})
    tab.focus(".attention .heat canvas")
    first = tab.eval_on_selector(".attention .heat canvas", "canvas => canvas.toDataURL()")
    for _ in range(30):
        tab.keyboard.press("ArrowDown")
    assert tab.eval_on_selector(".attention .heat .side .marked", "name => name.dataset.row") == "30"
    assert "attends to" in tab.text_content(".lines .status")
    tab.wait_for_function("document.querySelector('.attention .heat').parentElement.scrollTop > 0")
    tab.wait_for_function("before => document.querySelector('.attention .heat canvas').toDataURL() !== before", arg=first)
    tab.evaluate("document.activeElement.blur()")
    assert tab.locator(".attention .heat .marked").count() == 0


def test_pointing_at_a_word_tells_where_it_looks(show, seen):
    tab = show(render_page(seen))
    tab.locator(".multiples button").nth(1).click()
    weights = seen.cross[0, 1]
    for row in (0, len(weights) - 1):
        tab.locator(".words.left button").nth(row).hover()
        said = tab.text_content(".lines .status")
        best = int(weights[row].argmax())
        assert f"{readable_piece(seen.source[best].piece)} {round(100 * float(weights[row, best]))} %" in said
        assert "attends to" in said
    tab.locator(".words.right button").nth(0).hover()
    assert "is attended to by" in tab.text_content(".lines .status")
    tab.mouse.move(2, 2)
    assert tab.text_content(".lines .status").startswith("Point at a token")


def test_lines_are_drawn_only_for_the_word_pointed_at(show, seen):
    tab = show(render_page(seen))
    ink = """canvas => {
        const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d', { willReadFrequently: true });
        copy.drawImage(canvas, 0, 0);
        return [...copy.getImageData(0, 0, canvas.width, canvas.height).data].filter((v, at) => at % 4 === 3 && v > 20).length;
    }"""
    everything = tab.eval_on_selector(".between canvas", ink)
    tab.locator(".words.left button").nth(2).hover()
    one = tab.eval_on_selector(".between canvas", ink)
    assert 0 < one < everything


def test_a_click_pins_a_word_and_moves_the_slider(show, seen):
    tab = show(render_page(seen))
    word = tab.locator(".words.left button").nth(3)
    word.click()
    tab.mouse.move(2, 2)
    assert word.get_attribute("aria-pressed") == "true"
    assert "attends to" in tab.text_content(".lines .status")
    assert tab.input_value(".stepper input") == "4"
    tab.locator(".stepper button").last.click()
    assert tab.locator(".words.left button").nth(4).get_attribute("aria-pressed") == "true"
    tab.locator(".words.left button").nth(4).click()
    assert tab.locator(".words.left button[aria-pressed=true]").count() == 0


def test_words_can_be_walked_with_keys(show, seen):
    tab = show(render_page(seen))
    tab.locator(".words.left button").first.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowDown")
    assert f"{readable_piece(seen.tgt_out[2].piece)} attends to" in tab.text_content(".lines .status")
    tab.keyboard.press("Enter")
    assert tab.locator(".words.left button").nth(2).get_attribute("aria-pressed") == "true"
    tab.keyboard.press("ArrowRight")
    assert "is attended to by" in tab.text_content(".lines .status")
    tab.locator(".multiples button").first.focus()
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    assert tab.locator(".multiples button").nth(1).get_attribute("aria-pressed") == "true"


def test_heads_are_shown_alone_and_together(show, seen):
    tab = show(render_page(seen))
    boxes = tab.locator(".choice.heads input")
    assert [boxes.nth(head).is_checked() for head in range(2)] == [True, True]
    boxes.nth(0).uncheck()
    assert_heat(cells(tab), seen.cross[0, 1])
    boxes.nth(1).click()
    assert boxes.nth(1).is_checked()
    tab.click(".choice.heads button")
    assert_heat(cells(tab), seen.cross[0].mean(axis=0))


# Decoding.


def test_the_slider_walks_through_the_steps(show, seen):
    tab = show(render_page(seen))
    for place, step in enumerate(seen.steps):
        slide(tab, place + 1)
        assert f"Step {place + 1} of {len(seen.steps)}" in tab.text_content(".decoding .status")
        assert texts(tab, ".decoding .bars .token") == [readable_piece(each.piece) for each in step.candidates]
        chosen = texts(tab, ".decoding .bars .chosen .token")
        assert chosen == [readable_piece(step.written.piece)]
        strip = tab.eval_on_selector_all(".strip tr:nth-child(2) td", "all => all.map(each => each.className)")
        assert strip == [""] * place + ["now"] + ["masked"] * (len(seen.steps) - place - 1)
        lens = texts(tab, ".lens tbody tr .token")
        assert lens == [readable_piece(each.piece) for layer in reversed(step.lens) for each in layer.candidates[:3]]
        rows = tab.locator(".beam tbody tr").count()
        assert rows == len([branch for branch in seen.beam if branch.step == place + 1])
    assert texts(tab, ".strip tr:nth-child(2) .token") == [readable_piece(token.piece) for token in seen.tgt_in]
    assert texts(tab, ".strip tr:nth-child(3) .token") == [readable_piece(token.piece) for token in seen.tgt_out]
    assert tab.locator(".stepper button").last.is_disabled()


def test_the_beam_tree(show, seen):
    tab = show(render_page(seen))
    assert tab.locator(".tree .node").count() == len(seen.beam)
    assert tab.locator(".tree .node.best").count() == len(seen.steps)
    tab.locator(".tree .node.best").nth(2).click()
    assert tab.input_value(".stepper input") == "3"
    here = sorted((branch for branch in seen.beam if branch.step == 3), key=lambda branch: -branch.total)
    totals = [number(text) for text in texts(tab, ".beam tbody tr td:nth-child(3)")]
    assert totals == pytest.approx([branch.total for branch in here], abs=0.006)
    fates = texts(tab, ".beam tbody tr td:last-child")
    for text, branch in zip(fates, here):
        assert FATES[branch.fate] in text or branch.best


def test_what_speaks_for_a_word(show, seen):
    tab = show(render_page(seen))
    chips = tab.eval_on_selector_all(".decoding .flow .chip", "all => all.map(each => [each.textContent, each.title])")
    assert [text for text, _ in chips] == [readable_piece(token.piece) for token in (*seen.source, seen.tgt_in[0])]
    wanted = [*seen.saliency_source[0], seen.saliency_target[0, 0]]
    assert [number(title) for _, title in chips] == pytest.approx([float(value) for value in wanted], abs=0.0051)
    tab.locator(".decoding .choice input[value=attention]").check()
    chips = tab.eval_on_selector_all(".decoding .flow:not([hidden]) .chip", "all => all.map(each => each.title)")
    assert [number(title) for title in chips] == pytest.approx(seen.cross[0].mean(axis=0)[0].tolist(), abs=0.0051)


# What if.


def test_a_head_is_off(show, seen):
    tab = show(render_page(seen))
    buttons = tab.locator(".off-grid button")
    assert buttons.count() == len(seen.heads_off)
    for place, off in enumerate(seen.heads_off):
        assert number(buttons.nth(place).text_content()) == pytest.approx(off.lost, abs=0.051)
        buttons.nth(place).click()
        assert tab.text_content(".answer .translation") == off.translation
        assert f"{off.score:.2f}".replace("-", "−") in tab.text_content(".answer")
        assert_heat(cells(tab), seen.attention(off.use)[off.layer, off.head], seen.mask(off.use))


def test_another_word_comes(show, seen):
    tab = show(render_page(seen))
    for place in (0, len(seen.steps) - 1):
        tab.locator(".positions").first.locator("button").nth(place).click()
        here = [each for each in seen.alternatives if each.step == place]
        assert texts(tab, ".others .translation") == [each.translation for each in here]
        assert tab.input_value(".stepper input") == str(place + 1)
    changed = next(each for each in seen.alternatives if each.translation.split(" ")[0] != seen.translation.split(" ")[0])
    tab.locator(".positions").first.locator("button").nth(changed.step).click()
    assert changed.translation.split(" ")[0] in texts(tab, ".others mark")


# Positions and embeddings.


def test_positions(show, seen):
    tab = show(render_page(seen))
    rows, width = seen.space.positions.shape
    size = tab.eval_on_selector(".raster", "canvas => [canvas.height, canvas.width]")
    assert size == [rows, width]
    tab.locator(".raster").first.scroll_into_view_if_needed()
    box = tab.locator(".raster").first.bounding_box()
    tab.mouse.move(box["x"] + box["width"] * 2.5 / width, box["y"] + box["height"] * 7.5 / rows)
    said = tab.locator(".wide-left .status").first.text_content()
    assert said == f"Dimension 3 of {width}: {seen.space.positions[7, 2]:.2f} at position 8".replace("-", "−")
    assert tab.input_value(".dimension input") == "3"
    points = tab.get_attribute(".curve polyline", "points").split(" ")
    assert len(points) == rows
    tab.keyboard.press("Tab")
    tab.locator(".raster").first.focus()
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    said = tab.locator(".wide-left .status").first.text_content()
    assert said == f"Dimension 4 of {width}: {seen.space.positions[8, 3]:.2f} at position 9".replace("-", "−")


def test_embeddings(show, seen):
    tab = show(render_page(seen))
    part = ".part:last-child"
    for kind in ("source", "memory", "target", "across"):
        choose(tab, part, kind)
        assert_heat(cells(tab, part), getattr(seen.space, kind))
    tab.locator(f"{part} .positions").last.locator("button").nth(1).click()
    assert texts(tab, f"{part} .bars .token") == [readable_piece(each.piece) for each in seen.space.target_neighbours[1]]


# Other models.


@pytest.mark.parametrize(
    ("changes", "attends"),
    [
        ({"kind": "recurrent", "attention": "additive", "cell": "gru", "input_feeding": True}, 1),
        ({"kind": "convolutional", "decoder_layers": 3}, 3),
        ({"kind": "recurrent", "attention": "none"}, 0),
    ],
    ids=["recurrent", "convolutional", "without-attention"],
)
def test_models_other_than_the_transformer(show, translator, changes, attends):
    torch.manual_seed(1)
    recipe = build_recipe(
        {"model": {"d_model": 16, "encoder_layers": 2, "decoder_layers": 2} | changes, "search": {"max_extra": 3}}
    )
    tokenizer = translator.artifact.tokenizer
    artifact = Artifact(recipe, tokenizer, make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval())
    result = run_what_if(artifact, look(artifact, LINES[0], "das Haus"))
    tab = show(render_page(result))
    assert result.remark in tab.locator(".part").first.text_content()
    assert tab.locator(".multiples button").count() == attends
    assert tab.locator(".off-grid button").count() == attends
    for layer_number in range(attends):
        tab.locator(".multiples button").nth(layer_number).click()
        assert_heat(cells(tab), result.cross[layer_number, 0])
    slide(tab, 2)
    assert texts(tab, ".decoding .bars .token") == [
        readable_piece(each.piece) for each in [*result.steps[1].candidates, *beyond(result.steps[1])]
    ]
    lens = texts(tab, ".lens tbody tr .token")
    assert lens == [readable_piece(each.piece) for layer in reversed(result.steps[1].lens) for each in layer.candidates[:3]]
    assert tab.locator(".decoding .choice input").count() == (2 if attends else 1)
    if not attends:
        assert "has no attention" in tab.locator(".part").nth(2).text_content()
        assert tab.locator(".others li").count() > 0


# Large, and elsewhere.


def test_touching_a_large_page_does_little(show, large):
    """What is not changed is not drawn anew: no line when a word is left, no cell of the table when a head is chosen."""
    tab = show(render_page(large))
    tab.evaluate(
        """() => {
            window.strokes = 0;
            const stroke = CanvasRenderingContext2D.prototype.stroke;
            CanvasRenderingContext2D.prototype.stroke = function () { window.strokes++; return stroke.call(this); };
            window.kept = [...document.querySelectorAll('.attention .heat .names > *, .tree .node, .words button')];
        }"""
    )
    tab.locator(".multiples button").nth(11).click()
    assert tab.evaluate("window.strokes") > len(large.source)
    tab.evaluate("window.strokes = 0")
    tab.locator(".words.left button").nth(5).hover()
    assert 0 < tab.evaluate("window.strokes") <= len(large.source)
    tab.evaluate("window.strokes = 0")
    tab.mouse.move(2, 2)
    assert tab.text_content(".lines .status").startswith("Point at a token")
    assert tab.evaluate("window.strokes") == 0
    slide(tab, 9)
    assert tab.evaluate("window.kept.every(each => each.isConnected)")


def test_forty_by_forty_tokens_six_layers_eight_heads(show, large):
    assert min(large.cross.shape[2:]) >= 40
    assert large.cross.shape[:2] == (6, 8)
    text = render_page(large)
    assert len(text.encode()) < 4_000_000
    tab = show(text)
    assert tab.locator(".multiples button").count() == 48
    assert tab.locator(".off-grid button").count() == 144
    assert_heat(cells(tab), large.cross[5].mean(axis=0))
    layer(tab, 2)
    tab.locator(".multiples button").nth(2 * 8 + 7).click()
    assert_heat(cells(tab), large.cross[2, 7])
    choose(tab, ".controls", "decoder")
    assert_heat(cells(tab), large.decoder[2, 7], large.mask("decoder"))
    for row in range(0, 40, 8):
        tab.locator(".words.left button").nth(row).hover()
        assert "attends to" in tab.text_content(".lines .status")
    tab.locator(".stepper button").last.click()
    assert "Step 2 of" in tab.text_content(".decoding .status")


def test_a_server_page_can_mount_the_view_as_it_is(browser, translator, seen, tmp_path):
    """The modules as they are, plain JSON, twice on one page; and it goes away without a trace."""
    shutil.copytree(PAGE, tmp_path, dirs_exist_ok=True)
    (tmp_path / "data.json").write_text(json.dumps(to_plain_values(seen) | page_texts(seen)), encoding="utf-8")
    (tmp_path / "index.html").write_text(
        '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><link rel="stylesheet" href="look.css">'
        '<div id="one"></div><div id="two"></div><script type="module">import { mount } from "./view.js";'
        'const data = await (await fetch("data.json")).json();'
        "window.leave = ['one', 'two'].map((id) => mount(document.getElementById(id), data));</script>"
    )
    handler = functools.partial(Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        tab = browser.new_page()
        said = []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.goto(f"http://127.0.0.1:{server.server_address[1]}/index.html")
        tab.wait_for_function("window.leave")
        assert_heat(cells(tab, "#two .attention"), seen.cross[0].mean(axis=0))
        tab.locator("#one .stepper button").last.click()
        assert tab.input_value("#one .stepper input") == "2"
        assert tab.input_value("#two .stepper input") == "1"
        tab.evaluate("window.leave.forEach((undo) => undo())")
        assert tab.locator(".look").count() == 0
        tab.close()
        server.shutdown()
    assert said == []


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass
