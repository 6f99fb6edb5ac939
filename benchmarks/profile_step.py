"""Where the time of a training step goes, as shares of the machine's matrix-product rate read around every step.

    python benchmarks/profile_step.py [--preset tiny] [--tokens 1024] [--rounds 5] [--operations]

One worker of the thread pool on one thread, made-up sentences of 8 to 24 tokens. CPU time of the thread is counted, so that other
programs disturb little (they still share the caches: run it alone for figures to keep).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from undivided.config import Recipe, build_recipe
from undivided.core.ids import EOS, PAD
from undivided.data.batches import PairBatch, make_batch
from undivided.models import make_model
from undivided.models.cost import model_cost
from undivided.nn.backend import bfloat16_products
from undivided.nn.dropout import seeded_dropout
from undivided.nn.loss import smoothed_loss

SQUARE = 1024


def made_up_batches(tokens: int, vocabulary: int) -> list[PairBatch]:
    """Sentences of like length together, as in training; the two sides differ by up to two tokens."""
    chance = torch.Generator().manual_seed(1)
    batches = []
    for length in range(8, 25, 2):
        sides = []
        for side in range(2):
            lengths = [length - side - int(torch.randint(0, 2, (), generator=chance)) for _ in range(tokens // length)]
            sides.append([[*torch.randint(EOS + 1, vocabulary, (size - 1,), generator=chance).tolist(), EOS] for size in lengths])
        batches.append(make_batch(*sides))
    return batches


def product_rate(square: Tensor) -> float:
    """FLOP/s of a large matrix product, now."""
    began = time.thread_time()
    for _ in range(3):
        square @ square
    return 3 * 2 * SQUARE**3 / (time.thread_time() - began)


def share(
    work: Callable[[PairBatch], object], flops: Callable[[PairBatch], float], batches: list[PairBatch], rounds: int
) -> tuple[float, float]:
    """The median share of the product rate, and the median CPU milliseconds."""
    square = torch.randn(SQUARE, SQUARE)
    shares, times = [], []
    for batch in batches:
        work(batch)
    for _ in range(rounds):
        for batch in batches:
            before = product_rate(square)
            began = time.thread_time()
            work(batch)
            spent = time.thread_time() - began
            shares.append(flops(batch) / spent / ((before + product_rate(square)) / 2))
            times.append(spent * 1e3)
    return statistics.median(shares), statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="tiny")
    parser.add_argument("--norm", default="pre")
    parser.add_argument("--vocabulary", type=int, default=6000)
    parser.add_argument("--tokens", type=int, default=1024, help="tokens of the worker's part of the batch")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rounded", action="store_true", help="products of factors rounded to bfloat16")
    parser.add_argument("--operations", action="store_true", help="also the table of torch's profiler")
    options = parser.parse_args()
    torch.set_num_threads(1)
    recipe: Recipe = build_recipe({"preset": options.preset, "model": {"norm": options.norm}})
    model = make_model(recipe.model, options.vocabulary, options.vocabulary)
    batches = made_up_batches(options.tokens, options.vocabulary)

    def states_of(batch: PairBatch) -> Tensor:
        return model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)

    def step(batch: PairBatch) -> None:
        with seeded_dropout(1), bfloat16_products(options.rounded):
            loss, _ = smoothed_loss(states_of(batch), model.output_weight, batch.tgt_out, 0.1)
        torch.autograd.grad(loss, list(model.parameters()))

    def step_flops(batch: PairBatch) -> float:
        cost = model_cost(recipe.model, 0, batch.src.shape[1])
        return cost.step_flops(batch.src.numel(), batch.tgt_out.numel()) + loss_flops(batch)

    def loss_flops(batch: PairBatch) -> float:
        return 3 * 2 * recipe.model.d_model * options.vocabulary * int((batch.tgt_out != PAD).sum())

    with torch.no_grad():
        states = {id(batch): states_of(batch) for batch in batches}

    def loss_alone(batch: PairBatch) -> None:
        given = states[id(batch)].detach().requires_grad_()
        with bfloat16_products(options.rounded):
            loss, _ = smoothed_loss(given, model.output_weight, batch.tgt_out, 0.1)
        torch.autograd.grad(loss, [given, model.output_weight])

    print(f"{options.preset}, {options.norm}-norm, vocabulary {options.vocabulary:,}, {options.tokens:,} tokens, one thread\n")
    print("| part | share of the product rate | CPU ms |\n|---|---|---|")
    model.train()
    print("| step | {:.1%} | {:.1f} |".format(*share(step, step_flops, batches, options.rounds)))
    print("| of it output and loss | {:.1%} | {:.1f} |".format(*share(loss_alone, loss_flops, batches, options.rounds)))
    model.eval()
    print("| step without dropout | {:.1%} | {:.1f} |".format(*share(step, step_flops, batches, options.rounds)))
    if options.operations:
        model.train()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            for batch in batches:
                step(batch)
        print(profile.key_averages().table(sort_by="self_cpu_time_total", row_limit=30, max_name_column_width=45))


if __name__ == "__main__":
    main()
