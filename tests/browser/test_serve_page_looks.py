"""How the page of `undivided serve` looks: pictures kept with the test's output, and what can be measured of them."""

from pathlib import Path

import pytest
from waiting import wait_until

AXE = Path(__file__).parents[2] / ".venv" / "web" / "node_modules" / "axe-core" / "axe.min.js"
needs_axe = pytest.mark.skipif(not AXE.exists(), reason="axe-core is not installed: make axe-core (needs npm)")
TEXT = "The old horse finds a tree in the rain.\nMy bird likes the river today.\nПривет, как твои дела сегодня?"
VIEWS = [(width, dark, language) for width in (1280, 390) for dark in (False, True) for language in ("en-US", "ko-KR")]
VIEW_NAMES = [f"{width}-{'dark' if dark else 'light'}-{language[:2]}" for width, dark, language in VIEWS]

TOO_SMALL = """() => [...document.querySelectorAll('button, select, .zone label, a, .own input')]
    .map(each => [each.textContent.slice(0, 20), each.getBoundingClientRect()])
    .filter(([, box]) => box.width && (box.width < 24 || box.height < 24))
    .map(([name, box]) => [name, box.width, box.height])"""
CUT = """() => [...document.querySelectorAll('button, label, h2, h3, .hint, .problem, .state')]
    .filter(each => each.checkVisibility() && each.scrollWidth > each.clientWidth + 1 && !each.closest('.unseen'))
    .map(each => each.textContent.slice(0, 40))"""


def fill(tab):
    """The page with everything on it: a translation, a word's card, a document, a history."""
    tab.select_option("#source-language", "en")
    tab.fill("#text", TEXT)
    tab.wait_for_selector("#output .check")
    tab.wait_for_selector("#history li")
    tab.set_input_files("#file", [{"name": "notes.txt", "mimeType": "text/plain", "buffer": b"The dog sees the house.\n"}])
    tab.wait_for_selector(".jobs .ready")
    tab.locator("#output .word").nth(3).click()
    tab.wait_for_selector(".sources li")
    wait_until(tab, "!document.querySelector('.choices .loading')")


@pytest.mark.parametrize(("width", "dark", "language"), VIEWS, ids=VIEW_NAMES)
def test_everything_can_be_seen_and_reached(open_page, address, tmp_path, width, dark, language):
    tab = open_page(address, width, dark, language)
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(ground[:3]) < 200) == dark
    tab.screenshot(path=tmp_path / "empty.png", full_page=True)
    fill(tab)
    tab.screenshot(path=tmp_path / "full.png", full_page=True)
    assert tab.evaluate("document.documentElement.scrollWidth") <= width
    assert tab.evaluate(TOO_SMALL) == []
    assert tab.evaluate(CUT) == []
    assert tab.evaluate("document.querySelector('.top').getBoundingClientRect().height") < 80
    check_with_axe(tab)
    tab.locator(".read .quiet").click()
    tab.wait_for_selector("#inside .heat canvas")
    tab.screenshot(path=tmp_path / "inside.png")


@needs_axe
def test_axe_finds_nothing_serious_in_an_empty_page_and_in_the_inside(open_page, address):
    tab = open_page(address)
    check_with_axe(tab)
    fill(tab)
    tab.locator(".read .quiet").click()
    tab.wait_for_selector("#inside .heat canvas")
    check_with_axe(tab)


@needs_axe
def test_axe_would_notice(open_page, address):
    tab = open_page(address)
    tab.evaluate("document.querySelector('label[for=text]').remove()")
    with pytest.raises(AssertionError, match="label"):
        check_with_axe(tab)


def check_with_axe(tab):
    """No violation that is more than minor; nothing where axe-core is not installed, which the other tests say."""
    if not AXE.exists():
        return
    tab.evaluate(AXE.read_text(encoding="utf-8"))
    found = tab.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    assert len(found["passes"]) > 10
    faults = [
        (fault["id"], fault["impact"], [node["html"][:120] for node in fault["nodes"][:3]])
        for fault in found["violations"]
        if fault["impact"] in ("serious", "critical", "moderate")
    ]
    assert faults == []
