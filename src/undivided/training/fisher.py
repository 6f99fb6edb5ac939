"""How much each weight matters to what a translator knows already: the diagonal of its Fisher information, for `--ewc`.

It is estimated on old pairs as the mean over sentences of the squared gradient of log p(target | source), one sentence at a time,
without dropout. The targets are those of the pairs, not drawn from the model (the empirical Fisher information). A run measures it
once and keeps it beside its checkpoints, so that it resumes bit for bit.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from undivided.artifact.weights import check_shapes, read_tensors, shapes_of, weights, write_tensors
from undivided.config import Recipe
from undivided.core import manifest
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import InputError
from undivided.core.files import build_folder
from undivided.data.batches import PairBatch, make_batch
from undivided.data.corpus import CorpusReport, Pair, corpus_name, read_pairs
from undivided.models import Seq2Seq
from undivided.nn.device import ThreadPool
from undivided.nn.loss import smoothed_loss
from undivided.training.distributed import Group
from undivided.training.old_data import old_corpora
from undivided.training.prepare import Prepared

PAIRS = 500
"""Old pairs that the Fisher information is estimated on, at most."""
FOLDER, PART = "fisher", "fisher.safetensors"


def load_or_measure_fisher(prepared: Prepared, model: Seq2Seq, group: Group, console: Console) -> list[Tensor]:
    """The Fisher information of each weight, with a mean of 1, in the order of the model's parameters.

    The main process measures it, with the weights that fine-tuning starts from; all read the same file.
    """
    folder = prepared.folder / FOLDER
    if group.is_main and not folder.is_dir():
        if any((prepared.folder / "checkpoints").glob("step-*")):
            raise InputError(f"{folder}: missing, so this run cannot resume as it began; copy it back, or start over elsewhere")
        pairs = sample_pairs(prepared.recipe)
        fisher = measure_fisher(model, _batches(pairs, prepared), prepared.recipe.batches.parts, console)
        with build_folder(folder) as building:
            write_tensors(building / PART, dict(zip(weights(model), fisher, strict=True)))
            manifest.write(building, [PART])
        console.say(f"how much each weight matters (--ewc) was measured on {plural(len(pairs), 'old pair')}")
    group.wait()
    manifest.verify(folder, [PART])
    found = read_tensors(folder / PART)
    check_shapes(shapes_of(weights(model)), shapes_of(found), str(folder / PART))
    return [found[name].to(group.device) for name in weights(model)]


def sample_pairs(recipe: Recipe) -> list[Pair]:
    """Old training pairs, drawn at random from all of them; those that the old model is validated on are not among them."""
    chance, chosen = random.Random(recipe.train.seed), list[Pair]()
    for number, pair in enumerate(_old_pairs(recipe)):
        if number < PAIRS:
            chosen.append(pair)
        elif (place := chance.randrange(number + 1)) < PAIRS:
            chosen[place] = pair
    if not chosen:
        raise InputError(
            f"--ewc {recipe.train.ewc:g}: the training data of {recipe.train.start} is not here any more; copy it back, or start "
            "over with --old-train SOURCE TARGET"
        )
    return chosen


def _old_pairs(recipe: Recipe) -> Iterator[Pair]:
    for corpus in old_corpora(recipe):
        report = CorpusReport(corpus_name(corpus.files))
        yield from read_pairs(corpus.files, recipe.data, report, frozenset(corpus.held_out))


def _batches(pairs: Sequence[Pair], prepared: Prepared) -> list[PairBatch]:
    """A batch for each pair, without those that training would leave out for their length."""
    tokenizer, longest = prepared.tokenizer, prepared.recipe.data.max_length
    assert tokenizer is not None, "pairs are prepared with subwords"
    sides = tokenizer.source.encode([pair.source for pair in pairs]), tokenizer.target.encode([pair.target for pair in pairs])
    return [make_batch([src], [tgt]) for src, tgt in zip(*sides, strict=True) if max(len(src), len(tgt)) <= longest]


def measure_fisher(model: Seq2Seq, batches: Sequence[PairBatch], parts: int, console: Console) -> list[Tensor]:
    """The mean of the squared gradients of the batches, divided by its mean over all weights.

    The batches are dealt out to `parts` sums: the result is the same for any number of threads.
    """
    if not batches:
        raise InputError("--ewc: every old pair is longer than data.max_length")
    was_training = model.training
    model.eval()
    progress = Progress(console, "measuring how much each weight matters", len(batches[::parts]))
    pool = ThreadPool(min(parts, torch.get_num_threads()) if next(model.parameters()).device.type == "cpu" else 1)
    total, *others = pool.map(
        lambda part: _sum_squares(model, batches[part::parts], None if part else progress), range(min(parts, len(batches)))
    )
    console.clear()
    for other in others:
        torch._foreach_add_(total, other)
    model.train(was_training)
    mean = sum(float(each.double().sum()) for each in total) / sum(each.numel() for each in total)
    torch._foreach_div_(total, mean or 1.0)
    return total


def _sum_squares(model: Seq2Seq, batches: Iterable[PairBatch], progress: Progress | None) -> list[Tensor]:
    parameters = list(model.parameters())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for batch in batches:
        batch = batch.to(parameters[0].device)
        states, weight = model.loss_factors(model.decode(model.encode(batch.src, None), batch.tgt_in))
        loss, _ = smoothed_loss(states, weight, batch.tgt_out, 0.0)
        gradients = torch.autograd.grad(loss, parameters)
        torch._foreach_addcmul_(total, gradients, gradients)
        if progress is not None:
            progress.advance(1)
    return total
