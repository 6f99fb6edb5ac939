"""Copy and reverse: every model with attention learns them, and a fixed context is not enough for long sequences."""

import functools
import random

import pytest
import torch

from undivided.config import SearchConfig, build_recipe
from undivided.core.ids import EOS
from undivided.data.batches import make_batch
from undivided.inference.search import search
from undivided.models import make_model
from undivided.nn.loss import smoothed_loss
from undivided.training.schedule import learning_rate, make_optimizer

LETTERS = range(EOS + 1, EOS + 11)
TASKS = {"copy": lambda row: row, "reverse": lambda row: row[::-1]}
RECURRENT = [
    {"kind": "recurrent", "cell": cell, "attention": attention}
    for cell in ("rnn", "lstm", "gru")
    for attention in ("additive", "multiplicative")
]
FED = {"kind": "recurrent", "cell": "gru", "attention": "additive", "input_feeding": True}
CONVOLUTIONAL = {"kind": "convolutional", "encoder_layers": 3, "decoder_layers": 3}


def named(model):
    return "-".join(str(value) for value in model.values() if isinstance(value, str))


def rows(chance, count, shortest, longest):
    return [[chance.choice(LETTERS) for _ in range(chance.randint(shortest, longest))] for _ in range(count)]


def pairs(task, letters):
    return [[*row, EOS] for row in letters], [[*TASKS[task](row), EOS] for row in letters]


@functools.cache
def taught(task, model, longest, steps, rate, width=48):
    """A model after so many steps on rows that it has never seen before."""
    torch.manual_seed(1)
    settings = {"d_model": width, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0} | dict(model)
    train = {"schedule": "cosine", "rate": rate, "warmup_steps": 50, "max_steps": steps, "clip": 1.0}
    recipe = build_recipe({"model": settings, "train": train})
    network = make_model(recipe.model, EOS + 11, EOS + 11).train()
    optimizer, chance = make_optimizer(network, recipe.train), random.Random(1)
    for step in range(1, steps + 1):
        batch = make_batch(*pairs(task, rows(chance, 64, 2, longest)))
        states = network.decode(network.encode(batch.src, batch.src_mask), batch.tgt_in)
        loss, _ = smoothed_loss(states, network.output_weight, batch.tgt_out, 0.0)
        optimizer.zero_grad()
        (loss / 500).backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe.train, recipe.model.d_model)
        optimizer.step()
    return network.eval()


def share_right(network, task, shortest, longest, count=300):
    """Of fresh rows, how many greedy search writes without a fault."""
    sources, targets = pairs(task, rows(random.Random(2), count, shortest, longest))
    found = search(network, sources, SearchConfig(beam_size=1), torch.device("cpu"))
    return sum(best[0].tokens == target[:-1] for best, target in zip(found, targets)) / count


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("model", [*RECURRENT, FED, CONVOLUTIONAL], ids=named)
def test_every_model_with_attention_learns(task, model):
    # Slowest to get the last letters right are the plain tanh cell, and dot products without a hidden layer.
    steps = 800 if model.get("cell") == "rnn" or model.get("attention") == "multiplicative" else 500
    assert share_right(taught(task, tuple(model.items()), 6, steps, 0.006), task, 2, 6) >= 0.99


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_fixed_context_fails_with_length_and_attention_does_not(cell):
    """As Bahdanau et al. (2015) and Cho et al. (2014) found: what one vector holds is used up by long sequences."""
    fixed, attending = (
        taught("copy", (("kind", "recurrent"), ("cell", cell), ("attention", attention)), 16, 600, 0.008, 32)
        for attention in ("none", "additive")
    )
    short, long = share_right(fixed, "copy", 2, 3), share_right(fixed, "copy", 14, 16)
    whole = share_right(attending, "copy", 14, 16)
    print(f"{cell}: fixed context {short:.2f} of 2 to 3 letters, {long:.2f} of 14 to 16; attention {whole:.2f}")
    assert short >= long + 0.5
    assert whole >= long + 0.5
