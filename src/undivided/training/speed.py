"""How fast this machine trains a model: tried on made-up sentences, by the same workers that training has."""

from __future__ import annotations

import statistics
import time

import numpy as np
import torch

from undivided.config import Recipe
from undivided.core.ids import EOS
from undivided.data.batches import PairBatch, make_batch
from undivided.models import make_model
from undivided.nn.device import choose_device, one_thread
from undivided.nn.loss import smoothed_loss
from undivided.training.distributed import Group
from undivided.training.gradients import GradientWorkers
from undivided.training.schedule import make_optimizer
from undivided.training.tasks.contract import BatchLoss

FILL = 0.85
"""Target tokens in a batch of real sentences for each in one of made-up sentences, which are all of one length."""

MOST_TOKENS = 2048
"""Of a batch that is tried; larger ones take longer and are not slower per token."""


class MadeUpPairs:
    """A task whose sentences are random subwords, all of one length."""

    def __init__(self, recipe: Recipe, vocabulary: int, length: int, device: torch.device) -> None:
        self.recipe, self.vocabulary, self.length, self.device = recipe, vocabulary, length, device
        with torch.random.fork_rng(devices=[]):
            self.model = make_model(recipe.model, vocabulary, vocabulary).to(device).train()

    def load(self, draws: np.ndarray) -> PairBatch:
        """As many sentences as there are numbers, made of them."""
        words = np.random.default_rng(int(draws[0])).integers(EOS + 1, self.vocabulary, (len(draws), self.length - 1))
        rows = [[*row, EOS] for row in words.tolist()]
        return make_batch(rows, rows)

    def loss(self, batch: PairBatch) -> BatchLoss:
        """As in the training of translators."""
        batch = batch.to(self.device)
        factors = self.model.loss_factors(self.model.decode(self.model.encode(batch.src, None), batch.tgt_in))
        loss = smoothed_loss(*factors, batch.tgt_out, self.recipe.train.label_smoothing)
        return BatchLoss(*loss, batch.tgt_out.numel())


class Probe:
    """A model that is trained for some steps and thrown away."""

    def __init__(self, recipe: Recipe, vocabulary: int, length: int) -> None:
        device = choose_device(recipe.train.device)
        task = MadeUpPairs(recipe, vocabulary, length, device)
        self.workers = GradientWorkers(recipe, task, Group(device=device))  # type: ignore[arg-type]
        self.parameters = list(task.model.parameters())
        self.optimizer = make_optimizer(task.model, recipe.train)
        tokens = min(recipe.batches.tokens * recipe.batches.accumulate, MOST_TOKENS)
        self.draws = np.arange(max(1, tokens // length))
        self.steps: list[float] = []

    @property
    def tokens(self) -> int:
        """Target tokens of a step."""
        return len(self.draws) * self.workers.task.length  # type: ignore[attr-defined]

    def step(self) -> None:
        """Take a step and note its seconds."""
        began = time.monotonic()
        total = self.workers.gradient(len(self.steps) + 1, [self.draws], 0)
        for parameter, gradient in zip(self.parameters, total.gradients, strict=True):
            parameter.grad = gradient
        with one_thread():
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        self.steps.append(time.monotonic() - began)

    def seconds_a_step(self) -> float:
        """The time of a step that other programs did not hold up; the first also allocates what the others reuse."""
        steps = sorted(self.steps[1:])
        return statistics.median(steps[: len(steps) // 2 + 1])


def tokens_per_second(recipe: Recipe, vocabulary: int, length: int, seconds: float = 1.5) -> float:
    """Target tokens a second that training will see, tried for some seconds."""
    probe = Probe(recipe, vocabulary, length)
    end = time.monotonic() + seconds
    while len(probe.steps) < 3 or (time.monotonic() < end and len(probe.steps) < 200):
        probe.step()
    return FILL * probe.tokens / probe.seconds_a_step()
