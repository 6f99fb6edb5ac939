"""Training speed: ours and the peers on the same batches of the same data with the same weights to begin with.

    python benchmarks/train.py [--sizes tiny small base] [--rounds 5] [--peers huggingface fairseq …] [--dropout 0.1]

Every side trains the same batches in interleaved rounds; one works at a time, the others sleep. Dropout is where the paper has
it for all: on sub-layer outputs and on embeddings + positions, nowhere else. Before the first step each side's likelihood of the
first batch shows that it is the same model. FLOPs are those of the matrix products for the real tokens, padding not counted.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
from measure import CORES, OURS, PRE_NORM_ONLY, ROOT, Piece, Series, Worker, table

from undivided.core.console import Console
from undivided.data.batches import StreamPosition
from undivided.models.cost import model_cost
from undivided.training.loop import Trainer
from undivided.training.prepare import prepare

STEPS = {"tiny": 8, "small": 3, "base": 1}
"""Steps of one measured piece: some seconds each."""
PEERS = ["huggingface", "opennmt", "joeynmt", "fairseq", "torch", "pymarian"]
EXACT = "undivided, float32"
"""Ours with all products in float32, where its default rounds their factors to bfloat16."""
SAME_MODEL = 0.01
"""Largest difference of the likelihoods, in nats per token, between sides that claim to be the same model."""


class Contest:
    """One size: the data and weights that all share, and what a piece of work is."""

    def __init__(self, size: str, home: Path, options: argparse.Namespace) -> None:
        files = measure.some_text(home, options.pairs)
        self.steps = options.steps or STEPS[size]
        count = self.steps * (options.rounds + 1)
        self.recipe: dict[str, Any] = {
            "preset": size,
            "data": {"train": [files]},
            "tokens": {"vocab_size": options.vocabulary},
            "batches": {"tokens": options.tokens},
            # All peers have biases in their projections.
            "model": {"dropout": options.dropout, "attention_bias": True},
            "train": {"out": str(home / "run"), "threads": options.threads},
        }
        console = Console(quiet=True, stream=io.StringIO())
        with prepare(self.recipe, console) as prepared:
            trainer = Trainer(prepared, console)
        task, self.model = trainer.task, prepared.recipe.model
        self.vocabulary = len(task.tokenizer.target)
        measure.export_weights(trainer.model, home / "weights.npz")
        stream = task.stream.plans()
        places = [next(stream)[0] for _ in range(count)]
        task.stream.place = StreamPosition()
        rows = [[[row.tolist() for row in task.store.rows(side, place)] for side in (0, 1)] for place in places]
        batches = [{"sources": sources, "targets": targets} for sources, targets in rows]
        (home / "batches.json").write_text(json.dumps(batches))
        self.sizes = [[sum(map(len, side)) for side in pair] for pair in rows]
        self.rows = [len(pair[0]) for pair in rows]
        self.job = {
            "model": measure.shape_of(self.model),
            "vocabulary": self.vocabulary,
            "batches": str(home / "batches.json"),
            "weights": str(home / "weights.npz"),
            "recipe": self.recipe,
            "threads": options.threads,
            "smoothing": 0.1,
        }

    def exact_job(self) -> dict[str, Any]:
        """The same for ours in float32, in a folder of its own."""
        exact = {"out": self.recipe["train"]["out"] + "-float32", "precision": "float32"}
        return self.job | {"recipe": self.recipe | {"train": self.recipe["train"] | exact}}

    def piece(self, worker: Worker, number: int) -> Piece:
        """One piece of work of one side: the same batches for all."""
        first = number * self.steps
        seconds = worker.ask("train", first=first, count=self.steps)["seconds"]
        numbers = range(first, first + self.steps)
        return Piece(seconds, sum(self.sizes[each][1] for each in numbers), sum(self.flops(each) for each in numbers))

    def flops(self, number: int) -> float:
        source, target = self.sizes[number]
        length = round((source + target) / 2 / self.rows[number])
        return model_cost(self.model, self.vocabulary, length).step_flops(source, target)


def contest(size: str, options: argparse.Namespace) -> list[str]:
    """Measure one size; the lines of its section."""
    problems: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        event = Contest(size, Path(folder), options)
        exact = [(OURS, EXACT, event.exact_job())] if size in options.exact else []
        peers = [side for peer in options.peers for side in measure.in_every_way(peer, event.job, options.ways)]
        sides = [(OURS, "", event.job), *exact, *peers]
        workers = measure.start(sides, "train", problems)
        by_name = {worker.name: worker for worker in workers}
        for worker in workers:
            event.piece(worker, 0)
        series = measure.interleaved(by_name, options.rounds, lambda name, number: event.piece(by_name[name], number + 1))
        memory = {name: worker.peak_memory() for name, worker in by_name.items()}
        likelihoods = {name: worker.facts["likelihood"] for name, worker in by_name.items()}
        for worker in workers:
            worker.close()
    return section(size, event, series, memory, likelihoods, problems)


def section(
    size: str,
    event: Contest,
    series: dict[str, Series],
    memory: dict[str, float],
    likelihoods: dict[str, float],
    problems: dict[str, str],
) -> list[str]:
    ours = series[OURS]
    rows = []
    for name, each in sorted(series.items(), key=lambda item: -item[1].rate):
        same = name not in PRE_NORM_ONLY and abs(likelihoods[name] - likelihoods[OURS]) <= SAME_MODEL
        ratios = [one / other for one, other in zip(ours.shares, each.shares, strict=True)]
        rows.append(
            (
                name,
                f"{each.rate:,.0f}",
                f"{statistics.median(ratios):.2f} ×",
                f"{each.share:.1%}",
                f"{min(each.shares):.1%}–{max(each.shares):.1%}",
                f"{memory[name]:,.0f} MB",
                f"{likelihoods[name]:.4f}" + ("" if same else " (other weights)"),
            )
        )
    products = [each for one in series.values() for each in one.more["product"]]
    head = ["side", "target tokens/s", "ours is", "share of product rate", "its range", "peak memory", "first likelihood"]
    lines = [
        f"## {size}",
        "",
        f"d_model {event.model.d_model}, d_ff {event.model.d_ff}, "
        f"layers {event.model.encoder_layers} + {event.model.decoder_layers}, "
        f"vocabulary {event.vocabulary:,}, dropout {event.model.dropout}, batches of at most {event.recipe['batches']['tokens']:,} "
        f"tokens, pieces of {event.steps} steps, {len(ours.rates)} rounds. Product rate {min(products) / 1e9:.0f} to "
        f"{max(products) / 1e9:.0f} GFLOP/s, median {statistics.median(products) / 1e9:.0f}.",
        "",
        *table(head, rows),
        "",
    ]
    return [*lines, *(f"- {name} took no part: {reason}" for name, reason in problems.items()), ""]


NOTES = """\
Target tokens/s are medians over rounds. "Ours is" is the median, over rounds, of the ratio of the shares of the product rate,
which the drift of the machine does not touch. The product rate is that of 1024 × 1024 float32 matrices on all cores (by MKL or
oneDNN, whichever is faster), read before and after each piece.
All sides use all cores: the peers by torch's threads, ours by its thread pool, its default. Each peer has
its own optimizer and loss; the batches, the label smoothing and the places of dropout are the same. OpenNMT-py 3.5 has the norm
before each sub-layer and none but its own weights; its products are as many. Marian makes batches of its own of the same text,
with weights of its own; its speed is that of its log, behind the first update, and its memory, in other processes, is not
counted. The peers compute in float32, as they do by default;
those that are plain PyTorch also with PyTorch's bfloat16 autocast, with torch.compile, and with both. Ours, by default, rounds
the factors of its products to bfloat16 on a CPU that multiplies those much faster, and sums in float32;
"undivided, float32" is ours without that (not for base unless `--exact` says so: the memory of all sides together is scarce)."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", default=list(STEPS), choices=list(STEPS))
    parser.add_argument("--peers", nargs="*", default=PEERS, choices=PEERS)
    parser.add_argument("--ways", nargs="+", default=list(measure.WAYS), choices=list(measure.WAYS), help="of plain PyTorch")
    parser.add_argument("--exact", nargs="*", default=["tiny", "small"], choices=list(STEPS), help="sizes with ours in float32 too")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=0, help="steps of a measured piece; 0 is some seconds' worth")
    parser.add_argument("--tokens", type=int, default=4096)
    parser.add_argument("--pairs", type=int, default=29_000, help="how much of the corpus")
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=CORES)
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "benchmarks" / "train.md")
    options = parser.parse_args()
    data = "Multi30k English → German" if measure.multi30k("train") else "made-up text (Multi30k is not there)"
    body = [f"Data: {data}. {NOTES}", ""]
    # After each size, for all sides of the largest ask for much memory at once.
    for size in options.sizes:
        body += contest(size, options)
        measure.write_report(options.report, "Training speed", "train.py", sys.argv[1:], body)


if __name__ == "__main__":
    main()
