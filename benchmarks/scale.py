"""How cost grows with size: the token store with the corpus, attention with the length, the loss with the vocabulary.

    python benchmarks/scale.py [--pairs 100000 1000000 5000000] [--lengths 500 1000 2000 4000] [--vocabularies 8000 64000]

Every figure is measured in a process of its own, so that its peak of memory is that of this figure alone. Plots beside the report.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measure
from measure import ROOT, plot, table

from undivided.config import CorpusFiles, DataConfig, Recipe, SearchConfig, build_recipe

WORDS = 30_000


def write_text(folder: Path, pairs: int) -> list[str]:
    """Made-up pairs of about 25 words a side over a vocabulary with a long tail; most sentences occur once."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 11))) for _ in range(WORDS)]
    tail = [words[int(WORDS * chance.random() ** 4)] for _ in range(1 << 20)]
    paths = [folder / f"{pairs}.a", folder / f"{pairs}.b"]
    for path in paths:
        with path.open("w", encoding="utf-8") as stream:
            for _ in range(pairs):
                start = chance.randrange(len(tail) - 40)
                stream.write(" ".join(tail[start : start + chance.randint(10, 40)]) + ".\n")
    return [str(path) for path in paths]


def peak() -> float:
    """MB that this process has had at most."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:"))


def resident() -> float:
    """Resident MB of this process now; its peak is reset if the system allows it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS:"))


def recipe_of(job: dict[str, Any]) -> Recipe:
    return build_recipe({"preset": job["preset"], "model": {"norm": "pre"}, "search": {"beam_size": 4}})


def store(job: dict[str, Any]) -> dict[str, float]:
    """Tokenise a corpus into a store."""
    from undivided.data.store import open_store
    from undivided.data.subwords import Tokenizer

    tokenizer = Tokenizer.load(Path(job["subwords"]))
    before, began, cpu = resident(), time.perf_counter(), sum(os.times()[:4])
    made = open_store(Path(job["out"]), [CorpusFiles(*job["files"])], tokenizer, DataConfig(), lambda count: None)
    seconds, spent = time.perf_counter() - began, sum(os.times()[:4]) - cpu
    return {"seconds": seconds, "cpu": spent, "before": before, "peak": peak(), "pairs": len(made)}


def one_pair(job: dict[str, Any]) -> tuple[Any, list[list[int]]]:
    import torch

    from undivided.core.ids import EOS
    from undivided.models import make_model

    torch.manual_seed(1)
    torch.set_num_threads(measure.CORES)
    size = job["vocabulary"]
    words = torch.randint(EOS + 1, size, (job["rows"], job["length"] - 1)).tolist()
    return make_model(recipe_of(job).model, size, size), [[*row, EOS] for row in words]


def training(job: dict[str, Any]) -> dict[str, float]:
    """One step forward and backward, dropout on."""
    import torch

    from undivided.data.batches import make_batch
    from undivided.nn.dropout import seeded_dropout
    from undivided.nn.loss import smoothed_loss

    model, rows = one_pair(job)
    batch = make_batch(rows, rows)
    model.train()
    before, began = resident(), time.perf_counter()
    with seeded_dropout(1):
        loss, _ = smoothed_loss(model.decode(model.encode(batch.src, None), batch.tgt_in), model.output_weight, batch.tgt_out, 0.1)
    torch.autograd.grad(loss, list(model.parameters()))
    return {"seconds": time.perf_counter() - began, "before": before, "peak": peak()}


def translating(job: dict[str, Any]) -> dict[str, float]:
    """Read a source and write as many tokens, each forced, with a beam of four."""
    import torch

    from undivided.inference.search import search

    model, rows = one_pair(job)
    model.eval()
    before, began = resident(), time.perf_counter()
    found = search(model, rows, SearchConfig(beam_size=4, max_extra=1), torch.device("cpu"), [row[:-1] for row in rows])
    assert len(found[0][0].tokens) >= job["length"] - 1
    return {"seconds": time.perf_counter() - began, "before": before, "peak": peak()}


MEASURES: dict[str, Callable[[dict[str, Any]], dict[str, float]]] = {
    "store": store,
    "training": training,
    "translating": translating,
}


def measured(kind: str, job: dict[str, Any]) -> dict[str, float]:
    """In a process of its own."""
    command = [sys.executable, "-W", "ignore", __file__, "--measure", kind, json.dumps(job)]
    done = subprocess.run(command, env=measure.our_environment(), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{kind} {job}: {done.stderr}")
    print(f"{kind} {job}: {done.stdout.strip()}", file=sys.stderr)
    return json.loads(done.stdout)


def stores(options: argparse.Namespace, picture: Path) -> list[str]:
    from undivided.data.subwords import Tokenizer

    rows, peaks = [], []
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "subwords").mkdir()
        lines = [Path(path).read_text(encoding="utf-8").splitlines() for path in write_text(home, min(20_000, *options.pairs))]
        Tokenizer.learn(
            lambda: zip(*lines, strict=True), build_recipe({"tokens": {"vocab_size": options.subwords}}).tokens, len(lines[0]), 1
        ).save(home / "subwords")
        for pairs in options.pairs:
            files = write_text(home, pairs)
            size = sum(Path(path).stat().st_size for path in files) / 1e6
            found = measured("store", {"files": files, "subwords": str(home / "subwords"), "out": str(home / f"run{pairs}")})
            peaks.append(found["peak"])
            rates = [f"{size / found['seconds']:.1f}", f"{size / found['cpu']:.1f}"]
            rows.append([f"{pairs:,}", f"{size:,.0f}", *rates, f"{found['before']:,.0f}", f"{found['peak']:,.0f}"])
            for path in files:
                Path(path).unlink()
    plot(picture, "pairs", {"peak": (options.pairs, peaks)}, "MB")
    head = ["pairs", "MB of text", "MB/s", "MB/s per core at work", "MB before", "peak MB"]
    note = (
        "Building the token store from raw text: cleaning, tokenising, writing. Memory mapped pages of the store are not touched."
    )
    return ["## Token store", "", note, "", *table(head, rows), "", f"![peak memory]({picture.name})", ""]


def lengths(options: argparse.Namespace, picture: Path) -> list[str]:
    heads = build_recipe({"preset": options.preset}).model.n_heads
    grown: dict[str, tuple[list[int], list[float]]] = {kind: ([], []) for kind in ("training", "translating")}
    matrix = [heads * length**2 * 4 / 1e6 for length in options.lengths]
    rows = []
    for length, one in zip(options.lengths, matrix, strict=True):
        job = {"preset": options.preset, "length": length, "rows": 1, "vocabulary": 8000}
        row = [f"{length:,}", f"{one:,.0f}"]
        for kind, (places, values) in grown.items():
            found = measured(kind, job)
            places.append(length)
            values.append(found["peak"] - found["before"])
            row += [f"{values[-1]:,.0f}", f"{found['seconds']:.1f}"]
        rows.append(row)
    plot(picture, "tokens", grown | {"one score matrix for each head of one layer": (options.lengths, matrix)}, "MB")
    head = ["tokens", "a matrix per head, MB", "training, MB more", "seconds", "translating, MB more", "seconds"]
    note = (
        f"One pair of sequences through the `{options.preset}` preset, pre-norm: memory above that of the model. The second column "
        "is what one layer's scores would take if they were held for all heads; training by plain products would hold it for "
        "every attention."
    )
    return ["## Length", "", note, "", *table(head, rows), "", f"![memory against length]({picture.name})", ""]


def vocabularies(options: argparse.Namespace, picture: Path) -> list[str]:
    rows, values, tokens = [], [], 128 * 32
    for size in options.vocabularies:
        found = measured("training", {"preset": options.preset, "length": 32, "rows": 128, "vocabulary": size})
        values.append(found["peak"] - found["before"])
        rows.append([f"{size:,}", f"{tokens * size * 4 / 1e6:,.0f}", f"{values[-1]:,.0f}", f"{found['seconds']:.1f}"])
    logits = [tokens * size * 4 / 1e6 for size in options.vocabularies]
    plot(picture, "vocabulary", {"training": (options.vocabularies, values), "all logits": (options.vocabularies, logits)}, "MB")
    head = ["vocabulary", "all logits, MB", "training, MB more", "seconds"]
    note = f"One step of {tokens:,} tokens; a loss that holds all logits and their gradient needs the second column at least twice."
    return ["## Vocabulary", "", note, "", *table(head, rows), "", f"![memory against vocabulary]({picture.name})", ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, nargs="*", default=[100_000, 300_000, 1_000_000, 2_000_000, 5_000_000])
    parser.add_argument("--subwords", type=int, default=16_000)
    parser.add_argument("--lengths", type=int, nargs="*", default=[250, 500, 1000, 2000, 4000])
    parser.add_argument("--vocabularies", type=int, nargs="*", default=[4000, 8000, 16_000, 32_000, 64_000])
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "scale.md")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        sys.stdout, answer = io.StringIO(), sys.stdout
        answer.write(json.dumps(MEASURES[options.measure[0]](json.loads(options.measure[1]))) + "\n")
        return
    home = options.report.parent
    body = [f"Product rate at the beginning: {measure.product_rate() / 1e9:.0f} GFLOP/s.", ""]
    if options.pairs:
        body += stores(options, home / "scale-store.svg")
    if options.lengths:
        body += lengths(options, home / "scale-length.svg")
    if options.vocabularies:
        body += vocabularies(options, home / "scale-vocabulary.svg")
    measure.write_report(options.report, "Scale", "scale.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
