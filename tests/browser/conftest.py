"""Chromium for the tests of the pages, and a real server with a page to open in it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from live_pages import START
from waiting import wait_until

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="the tests of the pages need playwright (extra: dev)")
    if CHROMIUM is None:
        pytest.skip("the tests of the pages need chromium, which is not installed")
    with playwright.sync_playwright() as running:
        sandbox = [] if os.getuid() else ["--no-sandbox"]
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=sandbox)
        yield chromium
        chromium.close()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """Open a page from disk; at the end it must have had no error and asked for nothing but itself."""
    opened: list[tuple[Any, list[str], list[str], str]] = []

    def call(text: str, width: int = 1400, dark: bool = False, name: str = "look.html") -> Any:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light")
        tab = context.new_page()
        said: list[str] = []
        asked: list[str] = []
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


@pytest.fixture
def engine(show: Callable[..., Any]) -> Callable[..., Callable[..., Any]]:
    """Open a live page and a worker of the test's own beside that of the page: a function that asks it."""
    from undivided.look.live import Stored, render_live

    def start(artifact: Any, stored: Stored = "float32") -> Callable[..., Any]:
        text = render_live(artifact, "", stored)
        keep = '<script>window.weights = document.getElementById("live-weights").textContent</script>\n<script type="module">'
        tab = show(text.replace('<script type="module">', keep))
        tab.evaluate(START)
        return lambda ask, **about: tab.evaluate("([ask, about]) => window.ask(ask, about)", [ask, about])

    return start


@pytest.fixture(scope="session")
def serve(
    model: Path, spawn: Callable[..., subprocess.Popen[bytes]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., str]]:
    """Start a server of the tiny model, which is said to translate English, German and French; its address."""
    pytest.importorskip("fastapi", reason="the tests of the server need fastapi (extra: serve)")
    started = []

    def call(*options: str) -> str:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = tmp_path_factory.mktemp("serve") / "log"
        models = [f"{pair}={model}" for pair in ("en-de", "de-en", "de-fr")]
        command = ["serve", *models, "--port", str(port), "--engine", "torch", "--threads", "1", *options]
        with log.open("wb") as out:
            server = spawn(*command, stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        started.append(server)
        prefix = options[options.index("--url-prefix") + 1] if "--url-prefix" in options else ""
        address = f"http://127.0.0.1:{port}{prefix}/"
        for _ in range(600):
            if server.poll() is not None:
                break
            try:
                urllib.request.urlopen(f"{address}ready", timeout=5).close()
                return address
            except OSError:
                time.sleep(0.1)
        raise AssertionError(log.read_text())

    yield call
    for server in started:
        server.terminate()
    for server in started:
        server.wait(30)


@pytest.fixture(scope="session")
def address(serve: Callable[..., str]) -> str:
    """A server with the usual limits, whose page translates at once."""
    return serve("--frontend-timeout", "20")


class Opened(NamedTuple):
    """A page that was opened, with all that it must not have done."""

    tab: Any
    said: list[str]
    asked: list[str]


@pytest.fixture
def open_page(browser: Any) -> Iterator[Callable[..., Any]]:
    """Open the page of a server; at the end it must have had no error and asked nobody but its server.

    `says` is what the console may say, such as that a request was refused.
    """
    opened: list[tuple[Any, str, str, Opened]] = []

    def call(
        address: str, width: int = 1280, dark: bool = False, language: str = "en-US", says: str = "", before: Any = None
    ) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme="dark" if dark else "light",
            locale=language,
            has_touch=width < 500,
        )
        tab = context.new_page()
        found = Opened(tab, [], [])
        tab.on("console", lambda message: found.said.append(message.text))
        tab.on("pageerror", lambda error: found.said.append(str(error)))
        tab.on("dialog", lambda dialog: (found.said.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        tab.on("request", lambda asked: found.asked.append(asked.url))
        opened.append((context, address, says, found))
        if before is not None:
            before(tab)
        tab.goto(address)
        wait_until(tab, "document.getElementById('target-language').options.length > 0")
        return tab

    yield call
    for context, address, says, found in opened:
        context.close()
        assert [text for text in found.said if not (says and says in text)] == []
        assert [url for url in found.asked if not url.removeprefix("blob:").startswith(address.removesuffix("/"))] == []
