"""The page that shows a run learning, in a real browser: its numbers are those of the frames, and slider, keys and play work."""

import time

import pytest
from live_pages import check_with_axe

from samples import sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.look.training_page import render_training
from undivided.training.loop import train
from undivided.training.watch import watch_training

TEXT, TARGET = sentences(3, seed=4)[0]
SLIDER = ".timeline input"


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    home = tmp_path_factory.mktemp("watched")
    recipe = tiny_recipe(home / "run", write_pairs(home, "train", sentences(60)), write_pairs(home, "valid", sentences(8, seed=2)))
    recipe["model"]["positions"] = "learned"
    recipe["train"] |= {"snapshots": 8, "log_every": 5, "validate_every": 30}
    out = train(recipe, Console(quiet=True))
    return watch_training(out, TEXT, TARGET, {}, 40, Console(quiet=True))


@pytest.fixture(scope="module")
def page(history):
    return render_training(history)


def wait_for(tab, read, wanted):
    for _ in range(100):
        if (found := tab.evaluate(read)) == wanted:
            return
        time.sleep(0.1)
    assert found == wanted


def short(value):
    text = f"{abs(value):.2f}"
    return "" if text == "0.00" else "1" if text == "1.00" else text.removeprefix("0")


def test_a_step_shows_what_its_weights_compute(show, page, history):
    tab = show(page)
    tab.locator(".attention .controls fieldset").nth(1).locator("input[value='0']").check()
    tab.locator(".multiples button").first.click()
    tab.locator(".attention .card details summary").click()
    for pressed, number in enumerate((0, len(history.frames) // 2, len(history.frames) - 1), 1):
        tab.locator(SLIDER).fill(str(number))
        frame = history.frames[number]
        assert tab.locator(".sentence.target bdi").text_content() == frame.translation
        assert f"step {frame.step} of" in tab.locator(SLIDER).get_attribute("aria-valuetext")
        cells = tab.locator(".attention .numbers tbody td").all_text_contents()
        assert cells == [short(value) for value in frame.cross[0, 0].flatten()]
        chances = tab.locator(".columns .flow small").all_text_contents()
        assert [each.strip() for each in chances] == [percent(each) for each in frame.probabilities]
        marked = tab.locator(".frames tr.marked")
        assert marked.locator("th").text_content() == str(frame.step)
        label = tab.locator(".charts svg").first.get_attribute("aria-label")
        assert f"at step {frame.step}" in label
        canvas = tab.locator("section[aria-label='Learned positions'] canvas").first
        canvas.focus()
        tab.keyboard.press("ArrowRight")
        wanted = f"{frame.positions[0, pressed]:.3f}".replace("-", "−")
        assert wanted in tab.locator("section[aria-label='Learned positions'] .status").text_content()
        tab.locator(SLIDER).focus()


def percent(value):
    shown = f"{100 * value:.0f} %" if value >= 0.0995 else f"{100 * value:.1f} %" if value >= 0.00095 else "< 0.1 %"
    return shown if value > 0 else "0 %"


def test_keys_and_play_move_through_the_steps(show, page, history):
    tab = show(page)
    last = len(history.frames) - 1
    value = f"Number(document.querySelector('{SLIDER}').value)"
    tab.locator(SLIDER).focus()
    tab.keyboard.press("Home")
    assert tab.evaluate(value) == 0
    tab.keyboard.press("ArrowRight")
    assert tab.evaluate(value) == 1
    tab.locator(".timeline .play").focus()
    tab.keyboard.press("Enter")
    wait_for(tab, "document.querySelector('.timeline .play').textContent", "pause")
    wait_for(tab, f"{value} > 1", True)
    wait_for(tab, value, last)
    wait_for(tab, "document.querySelector('.timeline .play').textContent", "play")
    before = tab.locator(".chart .marker").nth(2).get_attribute("d")
    tab.locator(".frames button").first.click()
    assert tab.evaluate(value) == 0
    assert tab.locator(".chart .marker").nth(2).get_attribute("d") != before


@pytest.mark.parametrize(("width", "dark", "language"), [(1280, False, "en"), (390, True, "ko")])
def test_in_both_languages_without_anything_serious(show, page, width, dark, language):
    tab = show(page, width, dark)
    tab.locator(SLIDER).fill("1")
    tab.locator(f".top-line input[value={language}]").check()
    assert tab.locator("html").get_attribute("lang") == language
    assert tab.locator(SLIDER).input_value() == "1"
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert ("학습" in tab.locator("h1").text_content()) == (language == "ko")
    check_with_axe(tab)
