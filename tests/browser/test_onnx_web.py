"""An exported ONNX folder translates in a real browser with onnxruntime-web, as our own engine does."""

import functools
import http.server
import os
import shutil
import threading
from pathlib import Path

import pytest
import torch

from samples import sentences
from undivided.artifact import load_artifact
from undivided.config import SearchConfig
from undivided.core.console import Console
from undivided.inference.search import search
from undivided.interop.export import export_model

playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright (extra: dev)")
pytest.importorskip("onnxruntime", reason="needs onnxruntime (extra: onnx)")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
MODULES = Path(__file__).parents[2] / ".venv" / "web" / "node_modules"
if CHROMIUM is None:
    pytest.skip("needs chromium, which is not installed", allow_module_level=True)
if not (MODULES / "onnxruntime-web").is_dir():
    pytest.skip("needs onnxruntime-web: make onnxruntime-web", allow_module_level=True)


class Quiet(http.server.SimpleHTTPRequestHandler):
    extensions_map = http.server.SimpleHTTPRequestHandler.extensions_map | {".mjs": "text/javascript", ".wasm": "application/wasm"}

    def log_message(self, *_):
        pass


@pytest.fixture
def address(model, tmp_path):
    """The exported model and onnxruntime-web, served on this machine."""
    export_model(model, tmp_path / "out", "onnx", Console(quiet=True))
    (tmp_path / "out" / "node_modules").symlink_to(MODULES)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=tmp_path / "out")) as server:
        worker = threading.Thread(target=server.serve_forever, daemon=True)
        worker.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        worker.join()


def test_the_page_translates_as_we_do(model, address):
    lines = [source for source, _ in sentences(12, seed=5)] + ["", "▁ Ж?"]
    ours = load_artifact(model)
    found = search(ours.model, ours.tokenizer.source.encode(lines), SearchConfig(beam_size=1), torch.device("cpu"))
    wanted = ours.tokenizer.target.decode([each[0].tokens for each in found])
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=CHROMIUM, args=[] if os.getuid() else ["--no-sandbox"])
        page = browser.new_page()
        asked, failed = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: failed.append(str(error)))
        page.goto(address + "index.html")
        page.wait_for_function("!document.getElementById('state').textContent.startsWith('Loading')", timeout=60_000)
        assert page.text_content("#state") == "Ready."
        page.fill("#source", "\n".join(lines))
        page.click("#go")
        page.wait_for_function("!document.getElementById('go').disabled", timeout=60_000)
        assert page.evaluate("document.getElementById('target').textContent").split("\n") == wanted
        browser.close()
    assert failed == []
    assert all(url.startswith((address, "blob:")) for url in asked), asked
