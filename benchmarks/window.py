"""What restricted attention saves: time and memory over the length n and the neighbourhood r, as ratios to dense attention.

    python benchmarks/window.py [--lengths 512 1024 2048 4096] [--windows 16 64 256] [--quality MINUTES]

Training, reading and writing by one model with dense attention, with blocks (`model.window`), and with a mask over all scores;
the speeds of one length take turns in one process, each peak of memory is of a process of its own. `--quality` adds the
perplexity of language models of running text (the articles of craft-trees) with each window, each trained that long.
What was measured is kept in `--out`; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measure
import torch
from measure import CORPORA, ROOT, plot, table
from scale import peak, resident

from undivided.config import ModelConfig
from undivided.models import DecoderOnly
from undivided.nn import local

VOCABULARY, SHAPE = 512, {"d_model": 128, "d_ff": 512, "n_heads": 4, "decoder_layers": 2}
"""A small vocabulary, so that attention is what is measured."""
DENSE = "dense"
WAYS = ("training", "reading", "writing")


def names(windows: list[int]) -> list[str]:
    """Dense attention, and each window in blocks and masked."""
    return [DENSE, *(f"r = {window}{how}" for window in windows for how in ("", ", masked"))]


def make(name: str) -> DecoderOnly:
    """The model of a name: all have the same weights."""
    torch.manual_seed(1)
    window = 0 if name == DENSE else int(name.split(",", maxsplit=1)[0].removeprefix("r = "))
    return DecoderOnly(ModelConfig(kind="decoder_only", norm="pre", window=window, **SHAPE), VOCABULARY)  # type: ignore[arg-type]


@contextmanager
def blocks_allowed(name: str) -> Any:
    """A window is a mask over all scores where it is so called."""
    before = local.WORTH
    local.WORTH = 10**9 if name.endswith("masked") else before
    try:
        yield
    finally:
        local.WORTH = before


def train(model: DecoderOnly, tokens: torch.Tensor) -> None:
    """Forward and backward."""
    model.train().zero_grad()
    model.logits(model(tokens)).logsumexp(dim=-1).sum().backward()


def read(model: DecoderOnly, tokens: torch.Tensor) -> None:
    """Forward without gradients."""
    with torch.inference_mode():
        model.eval()(tokens)


def write(model: DecoderOnly, tokens: torch.Tensor) -> None:
    """One cached step after the other."""
    model.eval()
    with torch.inference_mode():
        state = model.start(len(tokens))
        for place in range(tokens.shape[1]):
            model.step(state, tokens[:, place : place + 1])


ACTIONS: dict[str, Callable[[DecoderOnly, torch.Tensor], None]] = dict(zip(WAYS, (train, read, write), strict=True))


def speeds(job: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Seconds of each way and model at one length: medians over rounds in which all take turns."""
    torch.set_num_threads(job["threads"])
    tokens = torch.randint(5, VOCABULARY, (1, job["length"]), generator=torch.Generator().manual_seed(1))
    models = {name: make(name) for name in names(job["windows"])}
    found: dict[str, dict[str, list[float]]] = {way: {name: [] for name in models} for way in WAYS}
    for number in range(job["rounds"] + 1):
        for way, action in ACTIONS.items():
            # Writing has no mask over all scores: a step reads its window alone.
            for name in (each for each in models if way != "writing" or not each.endswith("masked")):
                with blocks_allowed(name):
                    began = time.perf_counter()
                    action(models[name], tokens)
                    if number:
                        found[way][name].append(time.perf_counter() - began)
    return {way: {name: statistics.median(taken) for name, taken in each.items() if taken} for way, each in found.items()}


def memory(job: dict[str, Any]) -> float:
    """MB above what the model takes, at the most of one training step."""
    torch.set_num_threads(job["threads"])
    model, tokens = make(job["name"]), torch.randint(5, VOCABULARY, (1, job["length"]))
    train(model, tokens[:, :16])
    before = resident()
    with blocks_allowed(job["name"]):
        train(model, tokens)
    return peak() - before


def measured(options: argparse.Namespace, kind: str, job: dict[str, Any]) -> Any:
    """In a process of its own, or as it was measured before."""
    path = options.out / f"{kind}-{'-'.join(str(value) for value in job.values()).replace(' ', '')}.json"
    if not path.exists():
        command = [sys.executable, "-W", "ignore", __file__, "--measure", kind, json.dumps(job)]
        done = subprocess.run(command, env=measure.our_environment(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{kind} {job}: {done.stderr}")
        print(f"{kind} {job}: {done.stdout.strip()}", file=sys.stderr)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(done.stdout)
    return json.loads(path.read_text())


def cost(options: argparse.Namespace) -> list[str]:
    """Tables and pictures over n and r."""
    lines, ratios = [], {name: [] for name in names(options.windows) if name != DENSE}
    for length in options.lengths:
        job = {"length": length, "windows": options.windows, "rounds": options.rounds, "threads": options.threads}
        found = measured(options, "speeds", job)
        peaks = {
            name: measured(options, "memory", {"length": length, "name": name, "threads": options.threads})
            for name in names(options.windows)
        }
        rows = []
        for name in names(options.windows):
            row = [name]
            for way in WAYS:
                seconds, dense = found[way].get(name), found[way][DENSE]
                row += ["–", "–"] if seconds is None else [f"{1000 * seconds:,.1f}", f"{dense / seconds:.2f}"]
            rows.append([*row, f"{peaks[name]:,.0f}", f"{peaks[DENSE] / max(peaks[name], 0.1):.2f}"])
            if name != DENSE:
                ratios[name].append(found["training"][DENSE] / found["training"][name])
        head = [
            "n = " + f"{length:,}",
            *(cell for way in WAYS for cell in (f"{way}, ms", "× as fast")),
            "training, MB more",
            "× less",
        ]
        lines += [*table(head, rows), ""]
    picture = options.report.with_name(f"{options.report.stem}-speed.svg")
    plot(picture, "n", {name: (options.lengths, values) for name, values in ratios.items()}, "training, × as fast as dense")
    return [*lines, f"![speed against length]({picture.name})", ""]


def articles(options: argparse.Namespace) -> dict[str, Path]:
    """The words of the treebank's articles in order, one sentence a line."""
    from undivided.paper.parsing.trees import read_training_trees, words

    home, found = CORPORA / "craft-trees", {}
    for part in ("train", "dev", "test"):
        found[part] = options.out / f"{part}.txt"
        if not found[part].exists():
            trees, _ = read_training_trees(home / f"{part}.mrg")  # a few lines are no trees
            found[part].write_text("".join(" ".join(words(tree)) + "\n" for tree in trees), encoding="utf-8")
    return found


def quality(options: argparse.Namespace) -> list[str]:
    """Perplexity of held-out articles over r, with equal minutes and a context of 512 subwords."""
    from undivided.inference.generate import Generator

    if not (CORPORA / "craft-trees").is_dir():
        return ["## Quality: left out", "", "The treebank's articles are not there (set UNDIVIDED_CORPORA)."]
    text, rows, curve = articles(options), [], []
    wanted = [*sorted(options.quality_windows), 0]
    print(f"{len(wanted)} trainings of {options.quality:g} minutes: {len(wanted) * options.quality:.0f} minutes", file=sys.stderr)
    for window in wanted:
        model = options.out / f"language-{window}-{options.quality:g}"
        command = ["train", "recipes/language-articles.yaml", "--train", str(text["train"]), "--valid", str(text["dev"])]
        command += ["--model.window", str(window), "--minutes", f"{options.quality:g}", "--threads", str(options.threads)]
        log = model / "training" / "log.jsonl"
        if not log.exists() or '"final"' not in log.read_text():
            subprocess.run([sys.executable, "-m", "undivided", *command, "--out", str(model)], cwd=ROOT, check=True)
        facts = json.loads((model / "config.json").read_text(encoding="utf-8"))["facts"]
        value = Generator(model).perplexity(text["test"].read_text(encoding="utf-8").splitlines())
        curve.append(value)
        rows.append(
            [f"r = {window}" if window else DENSE, f"{facts['steps']:,}", f"{facts.get('target_tokens', 0):,}", f"{value:.2f}"]
        )
    picture = options.report.with_name(f"{options.report.stem}-quality.svg")
    plot(
        picture, "r", {"perplexity": (wanted[:-1], curve[:-1]), f"dense ({curve[-1]:.1f})": ([], [])}, "perplexity of test articles"
    )
    shown = "undivided train recipes/language-articles.yaml --train train.txt --valid dev.txt"
    return [
        "## Quality over r on long text", "",
        f"`{shown} --model.window r --minutes {options.quality:g} --threads {options.threads}`: biomedical articles as one stream, "
        "contexts of 512 subwords, seed 1. Perplexity of a subword of the test articles.", "",
        *table(["attention", "steps", "tokens seen", "perplexity"], rows), "", f"![perplexity over r]({picture.name})", "",
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 512, 1024, 2048, 4096])
    parser.add_argument("--windows", type=int, nargs="+", default=[16, 64, 256])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--quality", type=float, default=0.0, metavar="MINUTES", help="of each language model's training; 0 = none")
    parser.add_argument("--quality-windows", type=int, nargs="+", default=[8, 32, 128])
    parser.add_argument("--out", type=Path, default=ROOT / "models" / "local-attention")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "local-attention.md")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        kind, job = options.measure
        print(json.dumps({"speeds": speeds, "memory": memory}[kind](json.loads(job))))
        return
    note = (
        f"A decoder of {SHAPE['decoder_layers']} layers, d_model {SHAPE['d_model']}, {SHAPE['n_heads']} heads, one sequence, "
        f"{options.threads} thread(s); medians of {options.rounds} rounds in which all take turns. *r* restricts a token to "
        "r/2 tokens before it. Ratios are to dense attention in the same run, by "
        "PyTorch's fused attention where that is faster. *masked*: "
        "the same window as a mask over all scores."
    )
    body = [note, "", "## Cost over n and r", "", *cost(options)]
    body += quality(options) if options.quality else []
    measure.write_report(options.report, "Local attention: O(r·n·d)", "window.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
