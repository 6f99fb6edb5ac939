"""A real browser for the tests of the pages of `undivided look`."""

import os
import shutil

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="session")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="the tests of the page need playwright (extra: dev)")
    if CHROMIUM is None:
        pytest.skip("the tests of the page need chromium, which is not installed")
    with playwright.sync_playwright() as running:
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser, tmp_path):
    """Open a page from disk; at the end it must have had no error and asked for nothing but itself."""
    opened = []

    def call(text, width=1400, dark=False, name="look.html"):
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
        tab = context.new_page()
        said, asked = [], []
        tab.on("console", lambda message: said.append(message.text))
        tab.on("pageerror", lambda error: said.append(str(error)))
        tab.on("request", lambda request: asked.append(request.url))
        opened.append((context, said, asked, path.as_uri()))
        tab.goto(path.as_uri())
        tab.wait_for_selector(".look .part")
        return tab

    yield call
    for context, said, asked, address in opened:
        context.close()
        assert said == []
        # A worker made from a blob is a part of the page.
        assert [url for url in asked if not url.startswith("blob:")] == [address]
