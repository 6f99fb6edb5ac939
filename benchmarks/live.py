# ruff: noqa: E501  (a report is written as it is)
"""A model in a live page, in a real Chromium, beside PyTorch and sentencepiece: subwords, numbers, translations, BLEU, and the main thread.

    python benchmarks/live.py [--model DIR] [--minutes 12] [--count 200] [--only float32|float16|int8|choices] [--report docs/live.md]

Without a model, one is trained on Multi30k for some minutes first, with the settings that the demo would have (`UNDIVIDED_CORPORA`). The report's table is written at its end;
with `--only` a part is measured, and the other rows of the table stay.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import sacrebleu
import torch
from playwright.sync_api import Page, sync_playwright

from undivided.artifact import Artifact, load_artifact
from undivided.config import SearchConfig, build_recipe
from undivided.data.batches import make_batch
from undivided.data.subwords import to_one_line
from undivided.inference.search import search
from undivided.look.capture import record_pass
from undivided.look.live import STORED, Stored, render_live
from undivided.models import make_model

ROOT = Path(__file__).resolve().parents[1]
CORPUS = Path(os.environ.get("UNDIVIDED_CORPORA", ROOT.parent / "shared" / "corpora")) / "multi30k"
SETTINGS = ("beam_size", "length_penalty", "length_norm", "max_extra", "no_repeat_ngram", "temperature")
RANGES = [(0x20, 0x7E), (0, 0x1F), (0xA0, 0x6FF), (0x900, 0x97F), (0x1100, 0x11FF), (0x2000, 0x24FF), (0x2580, 0x259F), (0x3000, 0x30FF),
          (0x4E00, 0x4FFF), (0xAC00, 0xAD00), (0xFB00, 0xFFEF), (0x1D400, 0x1D7FF), (0x1F300, 0x1F6FF), (0xE0000, 0xE007F)]  # fmt: skip

START = """async () => {
    const text = (id) => document.getElementById(id).textContent;
    const worker = new Worker(URL.createObjectURL(new Blob([text('live-engine')], { type: 'text/javascript' })));
    let asked = 0;
    window.ask = (ask, about) => new Promise((finish, fail) => {
        const id = ++asked, parts = [];
        worker.addEventListener('message', ({ data }) => {
            if (data.id !== id) return;
            if (data.error) fail(new Error(data.error));
            else if (data.part === 'done') finish(parts);
            else parts.push([performance.now(), data.value]);
        });
        worker.postMessage({ id, ask, ...about });
    });
    await ask('load', { about: JSON.parse(text('live-about')), weights: window.weights });
}"""

CLICK = "(element) => element.dispatchEvent(new MouseEvent('click', { bubbles: true }))"
SCROLL = "document.scrollingElement"
CHOICES = {
    "the page scrolled to its end for the first time": (SCROLL, 0),
    "another head": (".multiples button", 11),
    "another layer": (".attention .controls fieldset:nth-child(2) input", 1),
    "another use": (".attention .controls fieldset:first-child input", 0),
    "another step": (".stepper button", 1),
    "a branch of the tree": (".tree .node", 30),
    "another position of one head": (".one-head .positions button", 9),
    "a key of one head": (".one-head .keys button", 3),
    "a box of the picture": (".box.attention", 0),
    "a head switched off, and all views built again": (".off-grid button", 3),
    "a letter typed, and all views built again": ("#live-text", 0),
}
"""What is clicked: the number of an element among those of a selector."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    options.add_argument("--model", type=Path, default=ROOT / ".venv" / "live-model")
    options.add_argument("--minutes", type=float, default=12)
    options.add_argument("--count", type=int, default=200)
    options.add_argument("--only", choices=(*STORED, "choices"))
    options.add_argument("--report", type=Path, default=ROOT / "docs" / "live.md")
    chosen = options.parse_args()
    if not (chosen.model / "config.json").exists():
        train(chosen.model, chosen.minutes)
    torch.set_num_threads(1)
    artifact = load_artifact(chosen.model)
    lines, references = (
        (CORPUS / f"test_2016_flickr.{language}").read_text(encoding="utf-8").splitlines()[: chosen.count]
        for language in ("en", "de")
    )
    with sync_playwright() as running, tempfile.TemporaryDirectory() as scratch:
        browser = running.chromium.launch(executable_path="/usr/bin/chromium", args=[] if os.getuid() else ["--no-sandbox"])
        rows = []
        for stored in STORED[::-1]:
            if chosen.only in (None, stored):
                rows += prove(browser, Path(scratch), artifact, stored, lines, references)
        if chosen.only in (None, "choices"):
            rows += measure_choices(browser, Path(scratch), artifact, lines)
        browser.close()
    text, _, before = chosen.report.read_text(encoding="utf-8").partition("\n## Measured\n")
    known = dict(re.findall(r"^\| (.+?) \| (.+?) \|$", before, flags=re.MULTILINE)) if chosen.only else {}
    known.pop("what", None)
    table = write_table(list((known | dict(rows)).items()), artifact, len(lines))
    chosen.report.write_text(f"{text.rstrip()}\n\n## Measured\n\n{table}", encoding="utf-8")


def train(model: Path, minutes: float) -> None:
    files = [str(CORPUS / name) for name in ("train.en", "train.de", "val.en", "val.de")]
    settings = ["--train", *files[:2], "--valid", *files[2:], "--out", str(model), "--minutes", f"{minutes:g}"]
    languages = ["--source-lang", "en", "--target-lang", "de"]
    subprocess.run([str(Path(sys.executable).with_name("undivided")), "train", *settings, *languages], check=True)


def open_page(browser: Any, folder: Path, text: str) -> Page:
    """A live page with its weights kept for the worker of this script."""
    keep = '<script>window.weights = document.getElementById("live-weights").textContent</script>\n<script type="module">'
    (folder / "page.html").write_text(text.replace('<script type="module">', keep), encoding="utf-8")
    page: Page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.set_default_timeout(600_000)
    page.goto((folder / "page.html").as_uri())
    return page


def ask(page: Page, name: str, **about: Any) -> list[Any]:
    return page.evaluate("([name, about]) => ask(name, about)", [name, about])


def prove(
    browser: Any, folder: Path, artifact: Artifact, stored: Stored, lines: list[str], references: list[str]
) -> list[tuple[str, str]]:
    """What a page with the weights stored so gives, beside PyTorch."""
    greedy, beam = (dataclasses.replace(artifact.recipe.search, beam_size=size) for size in (1, 4))
    text = render_live(artifact, "", stored)
    page = open_page(browser, folder, text)
    page.evaluate(START)
    rows = [(f"size of the page, {stored}", f"{len(text.encode()) / 1e6:.2f} MB")]
    if stored == "float32":
        rows += [check_subwords(page, artifact, lines), check_numbers(page, artifact, lines)]
        rows.append(compare(page, "greedy, float32", greedy, lines, by_torch(artifact, lines, greedy))[0])
    ours = by_torch(artifact, lines, beam)
    row, translated, milliseconds, spent = compare(page, f"beam 4, {stored}", beam, lines, ours)
    rows += [row, (f"milliseconds a sentence, beam 4, {stored} (median)", f"{milliseconds:.0f}")]
    rows.append((f"milliseconds of CPU time a sentence, beam 4, {stored} (mean)", f"{spent:.0f}"))
    rows.append((f"BLEU of {len(lines)} held-out sentences, PyTorch", f"{bleu([text for _, text in ours], references):.2f}"))
    rows.append((f"BLEU of {len(lines)} held-out sentences, {stored} page", f"{bleu(translated, references):.2f}"))
    page.close()
    print(rows, flush=True)
    return rows


def by_torch(artifact: Artifact, lines: list[str], config: SearchConfig) -> list[tuple[list[int], str]]:
    found = [
        each[0].tokens for each in search(artifact.model, artifact.tokenizer.source.encode(lines), config, torch.device("cpu"))
    ]
    return [(tokens, to_one_line(text)) for tokens, text in zip(found, artifact.tokenizer.target.decode(found), strict=True)]


def bleu(texts: list[str], references: list[str]) -> float:
    return float(sacrebleu.corpus_bleu(texts, [references]).score)


def compare(page: Page, name: str, config: SearchConfig, lines: list[str], wanted: list[tuple[list[int], str]]) -> Any:
    settings = {key: getattr(config, key) for key in SETTINGS}
    browser = page.context.browser
    assert browser is not None
    browser.start_tracing(page=page, categories=["toplevel"])
    answers = ask(page, "translate", texts=lines, settings=settings)
    spent = sum(cpu_times(json.loads(browser.stop_tracing()), "DedicatedWorker thread")) / len(lines)
    texts = [value["text"] for _, value in answers]
    same = sum(value["tokens"] == tokens for (_, value), (tokens, _) in zip(answers, wanted, strict=True))
    times = [after[0] - before[0] for before, after in pairwise(answers)]
    return (f"translations identical to PyTorch's, {name}", f"{same} of {len(lines)}"), texts, statistics.median(times), spent


def odd_lines(lines: list[str], count: int) -> Iterator[str]:
    """Random Unicode, and sentences with odd letters, forms and spaces."""
    chance = random.Random(7)
    for number in range(count):
        line, letters = chance.choice(lines), [chr(chance.randint(*chance.choice(RANGES))) for _ in range(chance.randint(1, 40))]
        odd = "".join(letters).replace("\n", " ").replace("\r", " ")
        at = chance.randint(0, len(line))
        form = unicodedata.normalize(chance.choice(["NFD", "NFKD"]), line).replace(" ", chance.choice(["  ", "\u3000", "\t", " ▁"]))
        yield (odd, line[:at] + odd[:3] + line[at:], form, f"  {line} ")[number % 4]


def check_subwords(page: Page, artifact: Artifact, lines: list[str]) -> tuple[str, str]:
    texts = list(odd_lines(lines, 10_000))
    [[_, rows]] = ask(page, "encode", texts=texts)
    same = sum(row == right for row, right in zip(rows, artifact.tokenizer.source.encode(texts), strict=True))
    return "lines of odd Unicode with the ids of sentencepiece", f"{same:,} of {len(texts):,}"


def check_numbers(page: Page, artifact: Artifact, lines: list[str]) -> tuple[str, str]:
    """The largest difference of any attention weight, decoder state and logit of some sentences."""
    settings = {key: getattr(artifact.recipe.search, key) for key in SETTINGS}
    worst = 0.0
    for line in lines[:10]:
        page.evaluate(
            "async ([text, settings]) => { window.seen = (await ask('look', { text, settings })).at(-1)[1]; }", [line, settings]
        )
        page.evaluate("async () => { window.tensors = (await ask('tensors', {}))[0][1]; }")
        src, tgt = (page.evaluate(f"() => window.seen.{ids}") for ids in ("source.map(t => t.id)", "steps.map(s => s.written.id)"))
        with torch.inference_mode():
            recording = record_pass(artifact.model, make_batch([src], [tgt]))
            values = {"states": recording.states[0], "logits": artifact.model.logits(recording.states[0])}
        for name, value in values.items():
            found = torch.tensor(page.evaluate("name => Array.from(window.tensors[name])", name))
            worst = max(worst, float((found - value.flatten()).abs().max()))
        for use, columns in (("encoder", len(src)), ("decoder", len(tgt)), ("cross", len(src))):
            found = torch.tensor(page.evaluate("use => Array.from(window.seen[use].data)", use))
            wanted = recording.attention(use, len(src if use == "encoder" else tgt), columns)
            worst = max(worst, float((found - torch.tensor(wanted).flatten()).abs().max()))
    return "largest difference of attention weights, decoder states and logits, 10 sentences, float32", f"{worst:.1e}"


def measure_choices(browser: Any, folder: Path, artifact: Artifact, lines: list[str]) -> list[tuple[str, str]]:
    """The longest task of the main thread for every kind of choice: 40 tokens, 6 layers of 8 heads."""
    torch.manual_seed(1)
    sizes = {"d_model": 64, "d_ff": 64, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6}
    recipe = build_recipe({"model": sizes, "search": {"beam_size": 4, "max_extra": 1}})
    made = make_model(recipe.model, len(artifact.tokenizer.source), len(artifact.tokenizer.target)).eval()
    words = " ".join(lines).split(" ")
    encode = artifact.tokenizer.source.encode
    text = next(text for n in range(1, 60) if len(encode([text := " ".join(words[:n])])[0]) >= 40)
    page = open_page(browser, folder, render_live(Artifact(recipe, artifact.tokenizer, made), text, "int8"))
    page.wait_for_selector(".embeddings .heat")
    page.wait_for_selector("[data-step=end]")
    rows = []
    for name, (selector, number) in CHOICES.items():
        browser.start_tracing(page=page, categories=["toplevel", "devtools.timeline"])
        if selector == SCROLL:
            for top in range(0, int(page.evaluate(f"{SCROLL}.scrollHeight")), 450):
                page.evaluate(f"top => {{ {SCROLL}.scrollTop = top; }}", top)
                page.wait_for_timeout(100)
        elif selector == "#live-text":
            page.locator(selector).press_sequentially("!")
        else:
            page.locator(selector).nth(number).evaluate(CLICK)
        page.wait_for_timeout(6000 if "all views" in name else 1000)
        rows.append((f"longest task of the main thread, {name}", f"{longest_task(json.loads(browser.stop_tracing())):.0f} ms"))
        print(rows[-1], flush=True)
    return rows


def longest_task(trace: dict[str, Any]) -> float:
    """CPU time in milliseconds, so that it does not count when the thread waits for a core."""
    return max(cpu_times(trace, "CrRendererMain"))


def cpu_times(trace: dict[str, Any], thread: str) -> list[float]:
    """CPU time in milliseconds of every task of the threads of a name."""
    events = trace["traceEvents"]
    wanted = {(each["pid"], each["tid"]) for each in events if each.get("args", {}).get("name") == thread}
    tasks = [each for each in events if each["name"].endswith("RunTask") and (each["pid"], each["tid"]) in wanted]
    return [each.get("tdur", 0) / 1000 for each in tasks]


def write_table(rows: list[tuple[str, str]], artifact: Artifact, count: int) -> str:
    model = artifact.recipe.model
    about = (
        f"By `make prove-live` in Chromium, on a model of {sum(each.numel() for each in artifact.model.parameters()) / 1e6:.1f} M parameters "
        f"({model.encoder_layers} + {model.decoder_layers} layers, {model.n_heads} heads, d_model {model.d_model}, {len(artifact.tokenizer.target):,} subwords) trained on Multi30k for some minutes; "
        f"the first {count} sentences of test_2016_flickr. The main thread was measured with 40 tokens, 6 + 6 layers and 8 heads; its tasks are given in CPU time, since the machine was shared.\n\n"
    )
    return about + "| what | result |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in rows)


if __name__ == "__main__":
    main()
