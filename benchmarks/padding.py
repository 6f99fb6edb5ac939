"""How much of a training batch is text, with subword sampling: batches made by the sampled lengths, or by the plain ones.

    python benchmarks/padding.py MODEL [--batches 60]

MODEL is the folder of a training run, whose recipe, subwords and token store are taken.
"""

from __future__ import annotations

import argparse
from itertools import islice

import torch

from undivided.core.console import Console
from undivided.core.ids import PAD
from undivided.data.batches import BatchStream, load_batch
from undivided.data.store import SampledStore
from undivided.training.prepare import prepare
from undivided.training.tasks.translation import TranslationTask


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--batches", type=int, default=60)
    options = parser.parse_args()
    console = Console(quiet=True)
    with prepare({"train": {"out": options.model}}, console) as prepared:
        recipe, task = prepared.recipe, TranslationTask(prepared, torch.device("cpu"), console)
    sampled = SampledStore(task.store, task.tokenizer, recipe.tokens, recipe.train.seed)
    print(f"subword dropout {recipe.tokens.dropout}, batches of {recipe.batches.tokens:,} tokens\n")
    print("| batches made by | target tokens a batch | of it text | source tokens a batch | of it text |\n|---|---|---|---|---|")
    for name, made_by in (("sampled lengths", sampled), ("plain lengths", task.store)):
        places = [0, 0, 0, 0]
        for plan, _ in islice(BatchStream(made_by, recipe.batches, recipe.train.seed).plans(), options.batches):
            batch = load_batch(sampled, plan)
            for number, side in enumerate((batch.tgt_out, batch.src)):
                places[2 * number] += int((side != PAD).sum())
                places[2 * number + 1] += side.numel()
        target, target_places, source, source_places = places
        cells = [f"{target / options.batches:,.0f}", f"{target / target_places:.1%}"]
        cells += [f"{source / options.batches:,.0f}", f"{source / source_places:.1%}"]
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
