"""The pictures of the README and of docs/serving.md, made from a real model.

    python tools/pictures.py --model DIR                  write docs/pictures/terminal.svg, look.png, live.png and serve.png
    python tools/pictures.py --model DIR --only serve     write only that one
    python tools/pictures.py --model DIR --minutes 25     train the model on Multi30k first, if the folder has none

The terminal picture is what the commands in `SESSION` really print, in a terminal of 100 columns. The pages are opened by
Debian's chromium, as their tests do. Needs the extra `dev` and the corpus (`UNDIVIDED_CORPORA`) for training.
"""

from __future__ import annotations

import argparse
import html
import os
import pty
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs" / "pictures"
CORPORA = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora"))

COLUMNS = 100
SENTENCE = "A black dog jumps into the water."
SESSION = [
    f'echo "{SENTENCE}" | undivided translate my-model --n-best 3 --scores',
    f'undivided look my-model "{SENTENCE}"',
]
PAGE = "A little girl in a pink dress is playing with a dog in the garden."
WORD = 5
"""The word of its translation that is selected."""
VIEW = {"width": 1180, "height": 800}

INK, PAPER, PROMPT, COMMAND = "#d7dce2", "#16191d", "#7cc48b", "#ffffff"
CELL, LINE, SIZE, MARGIN = 8.4, 20, 14, 20


def train_model(model: Path, minutes: float) -> None:
    """Train the model of the pictures, unless the folder holds one."""
    if (model / "config.json").exists():
        return
    corpus = CORPORA / "multi30k"
    files = [str(corpus / name) for name in ("train.en", "train.de", "val.en", "val.de")]
    recipe = str(ROOT / "recipes" / "multi30k-en-de.yaml")
    settings = ["--train", *files[:2], "--valid", *files[2:], "--out", str(model), "--minutes", f"{minutes:g}", "--average", "1"]
    subprocess.run([str(command()), "train", recipe, *settings], check=True)


def command() -> Path:
    """The command `undivided` of the Python that runs this."""
    return Path(sys.executable).with_name("undivided")


def run_in_terminal(line: str, folder: Path) -> list[str]:
    """Run a line of shell in a pseudo-terminal; the lines that are left on the screen."""
    leader, follower = pty.openpty()
    settings = os.environ | {"COLUMNS": str(COLUMNS), "TERM": "xterm", "PATH": f"{command().parent}:{os.environ['PATH']}"}
    with subprocess.Popen(["sh", "-c", line], cwd=folder, env=settings, stdout=follower, stderr=follower) as running:
        os.close(follower)
        text = b"".join(iter(lambda: read_some(leader), b"")).decode()
    os.close(leader)
    if running.returncode:
        raise SystemExit(f"{line}: exit code {running.returncode}\n{text}")
    return on_screen(text)


def read_some(leader: int) -> bytes:
    """What a terminal shows next; nothing when its program has ended, which Linux reports as an error."""
    try:
        return os.read(leader, 1 << 16)
    except OSError:
        return b""


def on_screen(text: str) -> list[str]:
    """The lines of a terminal, without colours and without status lines that were taken away again."""
    text = re.sub(r"\x1b\[[\d;]*m", "", text).replace("\r\n", "\n")
    return [re.split(r"\r(?:\x1b\[2K)?", line)[-1] for line in text.rstrip("\n").split("\n")]


def record_session(model: Path) -> list[tuple[str, list[str]]]:
    """Run the commands of the session on the model, in a folder of their own; each with what it printed."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "my-model").symlink_to(model.resolve())
        run_in_terminal(SESSION[0], folder)  # converts the model for CTranslate2, which is done once
        return [(line, run_in_terminal(line, folder)) for line in SESSION]


def draw_terminal(session: list[tuple[str, list[str]]]) -> str:
    """A session as SVG. Every line has its width written down, so that any monospaced font of the reader fits."""
    rows: list[str] = []
    for line, printed in session:
        if rows:
            rows.append("")
        rows.append(f'<tspan fill="{PROMPT}">$</tspan> <tspan fill="{COMMAND}">{html.escape(line)}</tspan>')
        rows += [html.escape(each) for each in printed]
    height = MARGIN * 2 + LINE * len(rows)
    width = MARGIN * 2 + round(CELL * COLUMNS)
    drawn = []
    for number, row in enumerate(rows):
        length = len(html.unescape(re.sub(r"<[^>]*>", "", row)))
        if length:
            place = f'x="{MARGIN}" y="{MARGIN + LINE * number + SIZE}" textLength="{CELL * length:.1f}"'
            drawn.append(f'<text {place} xml:space="preserve">{row}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
            f'<rect width="{width}" height="{height}" rx="8" fill="{PAPER}"/>',
            f'<g font-family="ui-monospace, Menlo, Consolas, \'DejaVu Sans Mono\', monospace" font-size="{SIZE}" fill="{INK}">',
            *drawn,
            "</g>",
            "</svg>",
            "",
        ]
    )


@contextmanager
def open_tab() -> Iterator[Any]:
    """A tab of chromium."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        raise SystemExit("no chromium on this machine: install it (Debian: apt-get install chromium)")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=[] if os.getuid() else ["--no-sandbox"])
        yield browser.new_page(viewport=VIEW, color_scheme="light", locale="en-US")
        browser.close()


def photograph_look(model: Path, picture: Path) -> None:
    """Write the look page of a sentence, and take a picture of what a reader sees first."""
    with tempfile.TemporaryDirectory() as scratch, open_tab() as tab:
        page = Path(scratch) / "look.html"
        subprocess.run([str(command()), "look", str(model), PAGE, "-o", str(page)], check=True)
        tab.goto(page.as_uri())
        tab.wait_for_selector(".look .part")
        tab.screenshot(path=str(picture))


def photograph_live(model: Path, picture: Path) -> None:
    """Write the live page of a sentence, and take a picture of one head, step by step."""
    with tempfile.TemporaryDirectory() as scratch, open_tab() as tab:
        page = Path(scratch) / "live.html"
        subprocess.run([str(command()), "look", str(model), SENTENCE, "-o", str(page), "--live"], check=True)
        tab.goto(page.as_uri())
        tab.wait_for_selector("[data-step=end]")
        tab.wait_for_selector(".embeddings .heat")
        tab.locator(".box[data-name=cross]").click()
        tab.locator(".one-head .positions button").nth(2).click()
        tab.wait_for_timeout(1000)
        tab.locator("section.part:has(.one-head)").evaluate("part => part.scrollIntoView()")
        tab.screenshot(path=str(picture))


def photograph_serve(model: Path, picture: Path) -> None:
    """Serve the model, type a sentence, and select a word of its translation."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with subprocess.Popen([str(command()), "serve", f"en-de={model}", "--port", str(port)]) as server, open_tab() as tab:
        try:
            for _ in range(300):
                with suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/ready", timeout=5).close()
                    break
                time.sleep(0.2)
            tab.goto(f"http://127.0.0.1:{port}/")
            tab.fill("#text", PAGE)
            tab.wait_for_selector("#output .word")
            tab.locator("#output .word").nth(WORD).click()
            tab.wait_for_selector(".sentences li")
            tab.screenshot(path=str(picture))
        finally:
            server.terminate()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True, help="a model folder, English to German")
    parser.add_argument("--minutes", type=float, default=0.0, help="train it so long where there is none")
    parser.add_argument("--only", choices=("terminal", "look", "live", "serve"), help="make one picture instead of all")
    options = parser.parse_args()
    if options.minutes:
        train_model(options.model, options.minutes)
    PICTURES.mkdir(parents=True, exist_ok=True)
    if options.only in (None, "terminal"):
        (PICTURES / "terminal.svg").write_text(draw_terminal(record_session(options.model)), encoding="utf-8")
    if options.only in (None, "look"):
        photograph_look(options.model, PICTURES / "look.png")
    if options.only in (None, "live"):
        photograph_live(options.model, PICTURES / "live.png")
    if options.only in (None, "serve"):
        photograph_serve(options.model, PICTURES / "serve.png")
    for path in sorted(PICTURES.iterdir()):
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
