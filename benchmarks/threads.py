"""How the CPU threads of training should share the work, alone on the machine and beside another busy program.

    python benchmarks/threads.py [--steps 30] [--rounds 3]

Three ways, interleaved: torch splits every operation among threads that spin while they wait, or that sleep; or a thread pool
of single-threaded workers has a part of the batch each. Prints the median target tokens/s of each.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

WAYS = {
    "every operation split, threads spin": ("1", "ACTIVE"),
    "every operation split, threads sleep": ("1", "PASSIVE"),
    "a thread pool, each thread with a micro-batch": (str(os.cpu_count()), "PASSIVE"),
}


def made_up_corpus(folder: Path, pairs: int = 20_000) -> tuple[str, str]:
    """Sentences of the length of image captions, over a vocabulary with a long tail."""
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=chance.randint(2, 9))) for _ in range(6000)]
    paths = folder / "text.a", folder / "text.b"
    for path in paths:
        lines = (
            " ".join(words[int(len(words) * chance.random() ** 3)] for _ in range(chance.randint(6, 18))) for _ in range(pairs)
        )
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(paths[0]), str(paths[1])


def measure(folder: str, pool: int, steps: int) -> None:
    """In a process of its own: train some steps and print target tokens/s."""
    import torch

    from undivided.core.console import Console
    from undivided.nn.device import ThreadPool
    from undivided.training.loop import Trainer
    from undivided.training.prepare import prepare

    files = [f"{folder}/text.a", f"{folder}/text.b"]
    # A micro-batch for each worker, as where nothing is set.
    batches = {"tokens": 2048, "parts": pool}
    values = {"preset": "tiny", "data": {"train": [files]}, "batches": batches, "train": {"out": f"{folder}/run-{pool}"}}
    console = Console(quiet=True, stream=open(os.devnull, "w"))  # noqa: SIM115
    with prepare(values, console) as prepared:
        trainer = Trainer(prepared, console)
    trainer.run.workers.pool = ThreadPool(pool)
    trainer.model.train()
    plans = trainer.task.stream.plans()
    for _ in range(5):
        trainer._step(plans)
    began, before = time.monotonic(), trainer.state.target_tokens
    for _ in range(steps):
        trainer._step(plans)
    assert torch.isfinite(trainer.model.output_weight).all()
    print((trainer.state.target_tokens - before) / (time.monotonic() - began))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure[0], int(options.measure[1]), options.steps)
        return
    rates: dict[tuple[str, bool], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        made_up_corpus(Path(folder))
        for _ in range(options.rounds):
            for busy in (False, True):
                for way, (pool, policy) in WAYS.items():
                    other = subprocess.Popen([sys.executable, "-c", "while True: pass"]) if busy else None
                    command = [sys.executable, __file__, "--steps", str(options.steps), "--measure", folder, pool]
                    environment = os.environ | {"OMP_WAIT_POLICY": policy}
                    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                    if other is not None:
                        other.kill()
                        other.wait()
                    rates.setdefault((way, busy), []).append(float(done.stdout))
    print(f"target tokens/s, median of {options.rounds} rounds, {os.cpu_count()} cores, preset tiny, batches of 2,048 tokens\n")
    print("| way | alone | beside a busy program |\n|---|---|---|")
    for way in WAYS:
        alone, beside = (statistics.median(rates[way, busy]) for busy in (False, True))
        print(f"| {way} | {alone:,.0f} | {beside:,.0f} |")


if __name__ == "__main__":
    main()
