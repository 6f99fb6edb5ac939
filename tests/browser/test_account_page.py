"""The account of a translation as a page for reviewers: worst first, sortable, one verdict alone, without a network."""

import pytest

from undivided.inference.report import open_account
from undivided.inference.translation import Translation
from undivided.inference.verdicts import Verdict

ROWS = [("ok", -0.2), ("looped", -0.1), ("ok", -0.9), ("truncated", -2.0), ("copied", -0.5), ("kept", 0.0)]
HOSTILE = '</td></tr></table><script>document.title = "harmed"</script><img src="https://example.org/x">'


@pytest.fixture
def tab(browser, tmp_path):
    path = tmp_path / "account.html"
    with open_account(str(path)) as account:
        for number, (name, confidence) in enumerate(ROWS, 1):
            found = Translation(HOSTILE, f"{number} {HOSTILE}", -1.0, True, confidence=confidence)
            account.add(number, found.source, found.text, Verdict(name, HOSTILE), found)
    context = browser.new_context()
    asked, said = [], []
    opened = context.new_page()
    opened.on("request", lambda request: asked.append(request.url))
    opened.on("console", lambda message: said.append(message.text))
    opened.on("pageerror", lambda error: said.append(str(error)))
    opened.goto(path.as_uri())
    yield opened
    assert (asked, said) == ([path.as_uri()], [])
    context.close()


def order(tab):
    return tab.evaluate(
        "[...document.querySelectorAll('tbody tr')].filter(row => !row.hidden).map(row => Number(row.cells[0].textContent))"
    )


def test_reviewers_see_the_worst_first_and_sort_and_choose(tab):
    assert order(tab) == [4, 2, 3, 5, 1, 6]
    tab.get_by_role("button", name="segment").click()
    assert order(tab) == [1, 2, 3, 4, 5, 6]
    tab.get_by_role("button", name="segment").click()
    assert order(tab) == [6, 5, 4, 3, 2, 1]
    tab.get_by_role("button", name="verdict", exact=True).click()
    assert [ROWS[number - 1][0] for number in order(tab)] == sorted(name for name, _ in ROWS)
    tab.get_by_role("button", name="ok 2").click()
    assert sorted(order(tab)) == [1, 3]
    tab.get_by_role("button", name="all 6").click()
    assert len(order(tab)) == 6
    assert tab.title() == "Account of a translation"
    assert tab.locator("tbody tr").first.locator(".source").inner_text() == HOSTILE
