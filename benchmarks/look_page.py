"""How fast the page of `undivided look` answers, in Chromium: from an input to the frame painted after it.

    python benchmarks/look_page.py                 a page of 40 × 40 tokens, 6 layers, 8 heads, made here
    python benchmarks/look_page.py look.html       any page

For every way to touch the page: the median and the worst time until the next frame is painted, and how long the page's main
thread computed for it. The second depends less on what else this machine does. Clicks come four a second, as a hand makes
them. Attention of the page made here is that of an untrained model, nearly even: every cell of its map has a number, every
word a line to every other.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

TOKENS, LAYERS, HEADS = 40, 6, 8

FRAMES = """() => {
    window.frames = [];
    const channel = new MessageChannel();
    const begun = [];
    // A message sent from a frame's callback arrives when that frame has been painted.
    channel.port1.onmessage = () => window.frames.push(performance.now() - begun.shift());
    const later = (event) => { begun.push(event.timeStamp); requestAnimationFrame(() => channel.port2.postMessage(0)); };
    for (const kind of ['pointerover', 'input', 'click', 'keydown'])
        window.addEventListener(kind, (event) => { if (window.counted === kind) later(event); }, true);
}"""


def made_page() -> str:
    """The page of a sentence of so many tokens on both sides, all questions asked."""
    import torch

    from undivided.artifact import Artifact
    from undivided.config import build_recipe
    from undivided.data.subwords import Subwords, Tokenizer, learn_subwords
    from undivided.look import look, render_page, run_what_if
    from undivided.models import make_model

    torch.manual_seed(1)
    chance = random.Random(1)
    letters = "abcdefghiklmnoprstuvwz"
    words = ["".join(chance.choices(letters, k=chance.randrange(3, 9))) for _ in range(80)]
    lines = [" ".join(chance.choices(words, k=12)) for _ in range(200)]
    subwords = Subwords(learn_subwords(lines, build_recipe({}).tokens, 600, 1))
    model = {"d_model": 64, "d_ff": 128, "n_heads": HEADS, "encoder_layers": LAYERS, "decoder_layers": LAYERS}
    recipe = build_recipe({"model": model, "search": {"max_extra": 1, "beam_size": 4}})
    artifact = Artifact(recipe, Tokenizer(subwords, subwords), make_model(recipe.model, len(subwords), len(subwords)).eval())
    text = next(text for count in range(1, 99) if len(subwords.encode([text := " ".join(words[:count])])[0]) >= TOKENS)
    return render_page(run_what_if(artifact, look(artifact, text, text)))


def touches() -> dict[str, tuple[str, str, str]]:
    """Each way to touch the page: the event that counts, what is touched, and how."""
    return {
        "hover nothing": ("pointerover", ".part h2, .card h3, .card .note", "move"),
        "hover a word": ("pointerover", ".words.left button", "move"),
        "hover a row of numbers": ("pointerover", ".attention .heat .side > *", "move"),
        "choose a head": ("click", ".multiples button", "click"),
        "choose a layer": ("click", ".controls fieldset:nth-of-type(2) label:not([hidden])", "click"),
        "choose a use": ("click", ".controls fieldset:nth-of-type(1) label", "click"),
        "all heads, and one less": ("click", ".choice.heads button, .choice.heads label:nth-of-type(2)", "click"),
        "step by the slider": ("input", ".stepper input", "slide"),
        "choose a branch": ("click", ".tree .node", "click"),
        "turn a head off": ("click", ".off-grid button", "click"),
        "another word": ("click", ".others ~ .positions button, .part:nth-of-type(3) .positions button", "click"),
        "compare embeddings": ("click", ".embeddings .choice label", "click"),
    }


def points(tab: Any, selector: str) -> list[list[float]]:
    """The middles of those elements that can be seen once the first of them stands in the middle of the window."""
    return tab.evaluate(
        """selector => {
            const all = [...document.querySelectorAll(selector)];
            all[0].scrollIntoView({ block: 'center' });
            return all.map(each => each.getBoundingClientRect()).map(box => [box.x + box.width / 2, box.y + box.height / 2])
                .filter(([x, y]) => x > 5 && x < innerWidth - 25 && y > 70 && y < innerHeight - 10);
        }""",
        selector,
    )


def touch(tab: Any, how: str, places: list[list[float]], turn: int) -> None:
    """One input, as the hand would make it."""
    x, y = places[(7 * turn) % len(places)]
    if how == "move":
        tab.mouse.move(x, y)
    elif how == "click":
        tab.mouse.click(x, y)
    else:
        tab.keyboard.press("ArrowRight" if turn % 20 < 10 else "ArrowLeft")


def busy(session: Any) -> float:
    """Seconds that the main thread has computed."""
    return next(each["value"] for each in session.send("Performance.getMetrics")["metrics"] if each["name"] == "TaskDuration")


def measured(tab: Any, session: Any, way: tuple[str, str, str], turns: int) -> tuple[list[float], float]:
    """Milliseconds to each next frame, and the mean the main thread computed."""
    kind, selector, how = way
    places = points(tab, selector)
    if how == "slide":
        tab.focus(selector)
    touch(tab, how, places, 0)
    tab.wait_for_timeout(100)
    tab.evaluate("kind => { window.frames = []; window.counted = kind; }", kind)
    before = busy(session)
    for turn in range(1, turns + 1):
        touch(tab, how, places, turn)
        tab.wait_for_timeout(250 if how == "click" else 30)
    spent = 1000 * (busy(session) - before) / turns
    tab.evaluate("window.counted = ''")
    return tab.evaluate("window.frames"), spent


def rows(path: Path, turns: int) -> Iterator[str]:
    """A line of the table for each way to touch the page."""
    from playwright.sync_api import sync_playwright

    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("chromium is not installed")
    with sync_playwright() as running:
        browser = running.chromium.launch(executable_path=chromium, args=[] if os.getuid() else ["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        session = tab.context.new_cdp_session(tab)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(path.resolve().as_uri())
        tab.wait_for_selector(".look .part")
        yield f"opened: {1000 * busy(session):.0f} ms of the main thread; {browser.version}, {path.stat().st_size / 1e6:.1f} MB"
        tab.evaluate(FRAMES)
        yield f"{'':24} {'median ms':>10} {'worst ms':>10} {'computing ms':>13}"
        for name, way in touches().items():
            frames, spent = measured(tab, session, way, turns)
            yield f"{name:24} {statistics.median(frames):10.1f} {max(frames):10.1f} {spent:13.1f}"
        browser.close()


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", nargs="?", type=Path)
    parser.add_argument("--turns", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        path = options.page or Path(home) / "look.html"
        if options.page is None:
            path.write_text(made_page(), encoding="utf-8")
        for row in rows(path, options.turns):
            print(row, flush=True)


if __name__ == "__main__":
    main()
