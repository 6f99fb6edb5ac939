"""Draft and verify: whether the output is that of greedy search, how many tokens a step writes, and what time that saves.

    python benchmarks/drafts.py --model models/distilled/base [--minutes 20] [--sentences 2000] [--rounds 5]

The draft decoder is trained for some minutes by `undivided distill MODEL --drafts` on what the model writes for Multi30k's training
text; the same command resumes after a stop. Then sentences that were in no training are translated by greedy search and with
drafts of several sizes: all at once, and some one at a time, in turn. Times are raw text to raw text, by one translator.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import measure
from measure import CORES, MULTI30K_TEST, ROOT, Piece, table

from undivided.artifact import DRAFT
from undivided.core.console import Console
from undivided.inference.drafts import DraftCount
from undivided.inference.engines.int8 import Int8Reader
from undivided.inference.engines.int8_model import Int8Model
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.translator import Translator

QUIET = Console(quiet=True, stream=io.StringIO())
BEAM = -1
"""Stands for the model's own beam search, without drafts."""


def train_drafts(options: argparse.Namespace, corpus: dict[str, list[str]]) -> Path:
    """The model folder with its draft decoder."""
    if (options.model / DRAFT).exists():
        return options.model
    text = ["--train", *corpus["train"], "--valid", *corpus["val"]]
    undivided = ["distill", str(options.model), "--drafts", *text, "--minutes", str(options.minutes), "--out", str(options.out)]
    measure.undivided(*undivided)
    return options.out


class Search:
    """One engine with the model, asked with drafts of any size."""

    def __init__(self, folder: Path, engine: str, threads: int) -> None:
        self.translator = Translator(folder, threads=threads, engine=engine, console=QUIET)

    def settings(self, draft: int) -> dict[str, Any]:
        """Of greedy search with drafts of a size."""
        return {} if draft == BEAM else {"beam_size": 1, "draft": draft}

    def translate(self, lines: list[str], draft: int) -> list[str]:
        """Raw text to raw text."""
        return self.translator.translate(lines, **self.settings(draft))

    def hypotheses(self, lines: list[str], draft: int) -> list[Hypothesis]:
        """What is found for each line as one piece."""
        rows = self.translator.artifact.tokenizer.source.encode(lines)
        config = self.translator.search_config(**self.settings(draft))
        found = dict(self.translator.engine.search(rows, config, [[]] * len(rows), range(len(rows))))
        return [found[place][0] for place in range(len(rows))]

    def tokens_per_step(self, lines: list[str], draft: int) -> tuple[list[Hypothesis], float]:
        """The same, and how many tokens a step of the model wrote."""
        self.translator.engine.drafts = DraftCount()
        found = self.hypotheses(lines, draft)
        count = self.translator.engine.drafts
        return found, count.per_step if count.steps else 1.0


def compare(search: Search, lines: list[str], drafts: list[int]) -> tuple[list[list[str]], dict[int, float]]:
    """For each size of drafts: how many outputs are those of greedy search, how many with the same score, tokens in a step."""
    right, _ = search.tokens_per_step(lines, 0)
    rows, steps = [], {0: 1.0}
    for draft in drafts:
        found, steps[draft] = search.tokens_per_step(lines, draft)
        same = sum(one.tokens == other.tokens for one, other in zip(right, found, strict=True))
        exact = sum(one == other for one, other in zip(right, found, strict=True))
        name = search.translator.engine.name
        rows.append([name, str(draft), f"{same:,} of {len(lines):,}", f"{exact:,} of {len(lines):,}", f"{steps[draft]:.2f}"])
    return rows, steps


def time_batches(search: Search, lines: list[str], kinds: list[int], rounds: int) -> dict[int, float]:
    """Sentences per second of all at once, in interleaved rounds."""

    def piece(name: str, number: int) -> Piece:
        began = time.perf_counter()
        search.translate(lines, int(name))
        return Piece(time.perf_counter() - began, len(lines), 0.0)

    series = measure.interleaved([str(kind) for kind in kinds], rounds, piece)
    return {kind: series[str(kind)].rate for kind in kinds}


def time_single(search: Search, lines: list[str], kinds: list[int]) -> dict[int, list[float]]:
    """Seconds of each sentence alone: every kind of search has its turn before the next sentence, the order turned each time."""
    times: dict[int, list[float]] = {kind: [] for kind in kinds}
    for number, line in enumerate(lines):
        turn = number % len(kinds)
        for kind in [*kinds[turn:], *kinds[:turn]]:
            began = time.perf_counter()
            search.translate([line], kind)
            times[kind].append(time.perf_counter() - began)
    return times


@contextmanager
def stopwatch(spent: dict[str, float]) -> Iterator[None]:
    """Within, the time of the engine of 8 bits is taken apart."""
    read, encode = Int8Reader.read, Int8Model.encode_for

    def timed(name: str, call: Any, *arguments: Any) -> Any:
        began = time.perf_counter()
        found = call(*arguments)
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - began
        return found

    def timed_read(self: Int8Reader, *arguments: Any) -> Any:
        return timed("draft decoder" if self.stack is self.model.draft else "decoder", read, self, *arguments)

    def timed_encode(self: Int8Model, *arguments: Any) -> Any:
        return timed("encoder", encode, self, *arguments)

    with patch.object(Int8Reader, "read", timed_read), patch.object(Int8Model, "encode_for", timed_encode):
        yield


def profile(search: Search, lines: list[str], draft: int) -> list[str]:
    """Where the time of single sentences goes."""
    if search.translator.engine.name != "int8":
        return []
    spent: dict[str, float] = {}
    with stopwatch(spent):
        began = time.perf_counter()
        for line in lines:
            search.translate([line], draft)
        whole = time.perf_counter() - began
    spent["everything else"] = whole - sum(spent.values())
    rows = [[name, f"{1000 * seconds / len(lines):.2f} ms", f"{seconds / whole:.0%}"] for name, seconds in spent.items()]
    title = f"## Where the time of one sentence goes, drafts of {draft}"
    return [title, "", *table(["part", "a sentence", "share"], rows), ""]


def percentile(times: list[float], share: float) -> float:
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def section(search: Search, steps: dict[int, float], lines: list[str], options: argparse.Namespace) -> list[str]:
    """Times of one engine."""
    kinds = [0, *options.drafts, BEAM]
    search.translate(lines[:8], 0)
    rates = time_batches(search, lines[: options.batch], kinds, options.rounds)
    times = time_single(search, lines[: options.single], kinds)
    rows = []
    for kind in kinds:
        faster = statistics.median(one / other for one, other in zip(times[0], times[kind], strict=True))
        name = "the model's own search" if kind == BEAM else "greedy" if kind == 0 else f"greedy, drafts of {kind}"
        per_step = "" if kind == BEAM else f"{steps[kind]:.2f}"
        single = [f"{1000 * percentile(times[kind], share):.1f} ms" for share in (0.5, 0.95)]
        rows.append([name, per_step, *single, f"{faster:.2f} ×", f"{rates[kind]:.1f}", f"{rates[kind] / rates[0]:.2f} ×"])
    head = ["search", "tokens a step", "one sentence, p50", "p95", "as fast as greedy", "all at once, sentences/s", "as fast"]
    return [f"## Engine {search.translator.engine.name}", "", *table(head, rows), ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--model", type=Path, required=True, help="a trained model folder, English → German, with drafts or without"
    )
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "drafts", help="where the model with its draft decoder goes")
    parser.add_argument("--minutes", type=float, default=20, help="of training steps of the draft decoder")
    parser.add_argument("--drafts", type=int, nargs="+", default=[1, 2, 3, 4, 6, 8], help="tokens that are proposed")
    parser.add_argument("--engines", nargs="+", default=["auto", "torch"])
    parser.add_argument("--sentences", type=int, default=2000, help="sentences whose outputs are compared")
    parser.add_argument("--batch", type=int, default=1000, help="sentences that are translated at once")
    parser.add_argument("--single", type=int, default=200, help="sentences that are translated one at a time")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=CORES)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "drafts.md")
    options = parser.parse_args()
    corpus = measure.whole_multi30k()
    folder = train_drafts(options, corpus)
    files = [corpus[MULTI30K_TEST][0], corpus["val"][0]]
    texts = [line.strip() for name in files for line in Path(name).read_text(encoding="utf-8").splitlines()]
    lines = list(dict.fromkeys(line for line in texts if line))[: options.sentences]
    facts = json.loads((folder / "config.json").read_text(encoding="utf-8"))["facts"]
    drafts = facts.get("drafts", {})
    compared, sections = [], []
    for engine in options.engines:
        search = Search(folder, engine, options.threads)
        rows, steps = compare(search, lines, options.drafts)
        compared += rows
        sections += section(search, steps, lines, options)
        sections += profile(search, lines[: options.single], options.drafts[len(options.drafts) // 2])
    own = f"{drafts.get('parameters', 0) / 1e6:.1f} M of its own, trained for {drafts.get('seconds', 0) / 60:.0f} minutes"
    body = [
        f"The model has {facts.get('parameters', 0) / 1e6:.1f} M parameters, its draft decoder {own} ({drafts.get('steps', 0):,} "
        f"steps) on what the model writes by greedy search. {NOTES}",
        "",
        "## The same output",
        "",
        *table(
            ["engine", "drafts of", "same tokens as greedy search", "and the same score to the last bit", "tokens a step"], compared
        ),
        "",
        *sections,
    ]
    measure.write_report(options.report, "Draft and verify", "drafts.py", sys.argv[1:], body)


NOTES = """\
Sentences are those of test_2016 and val, in no training. "As fast as greedy" is the median, over sentences, of the ratio of the
times of the same sentence, one right after the other; "all at once" are medians over interleaved rounds."""


if __name__ == "__main__":
    main()
