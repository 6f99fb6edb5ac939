"""What a training will cost, before anything runs: parameters, FLOPs, memory, time. [paper 5.2, 6.1, Table 2]"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from undivided.config import Recipe, TrainConfig
from undivided.config.model import SINGLE_STACK
from undivided.core.console import duration, plural
from undivided.core.errors import InputError
from undivided.models import make_model
from undivided.models.cost import PAPER_GPUS, PAPER_HOURS, PAPER_VOCABULARY, SUSTAINED, Cost, model_cost, paper_cost
from undivided.training.speed import FILL, Probe

GPU_EFFICIENCY = 0.4
"""The share of a GPU's half-precision peak that training is assumed to reach; not measured here."""

LEAST_STEP = 0.02
"""Seconds that a step on a GPU is assumed to last however small it is: some thousand kernels are launched for it, and its batch is
made and sent. Not measured here."""

PEAKS = {"T4": 65e12, "V100": 125e12, "RTX 3090": 71e12, "RTX 4090": 165e12, "A100": 312e12, "H100": 989e12}
"""FLOP/s of dense half-precision products, by their makers' data sheets."""

GPUS = {"P100 (paper)": SUSTAINED["P100"]} | {name: GPU_EFFICIENCY * peak for name, peak in PEAKS.items()}


@dataclass(frozen=True)
class TrainingPlan:
    """What a recipe will cost."""

    recipe: Recipe
    vocabulary: int
    parameters: int
    cost: Cost
    length: int

    @property
    def step_tokens(self) -> int:
        """Tokens of a step and a side."""
        return self.recipe.batches.tokens * self.recipe.batches.accumulate

    @property
    def step_flops(self) -> float:
        """Of all matrix products of one step."""
        return self.cost.step_flops(self.step_tokens, self.step_tokens)

    @property
    def total_flops(self) -> float:
        """Of the whole training."""
        return self.step_flops * self.recipe.train.max_steps

    @property
    def checkpoint_bytes(self) -> int:
        """Weights and Adam's two averages, and the running average where it is on."""
        return self.parameters * 4 * (4 if self.recipe.train.ema else 3)

    @property
    def sent_bytes(self) -> float:
        """What each of many processes sends in a step, and receives, to sum the gradients: about twice their size."""
        return 2 * self.parameters * 4.0

    @property
    def memory_bytes(self) -> float:
        """Weights, gradients, Adam's averages, and the activations of a full batch."""
        tokens = self.recipe.batches.tokens
        return self.parameters * 16.0 + tokens * (self.cost.bytes_per_source_token + self.cost.bytes_per_target_token)


def make_plan(recipe: Recipe, length: int = 25) -> TrainingPlan:
    """Count what a recipe asks for, without allocating it; sentences are taken to have `length` tokens."""
    if recipe.model.kind in SINGLE_STACK:
        raise InputError(f"plan counts sequence-to-sequence models; model.kind is {recipe.model.kind}")
    vocabulary = recipe.tokens.vocab_size or PAPER_VOCABULARY
    with torch.device("meta"):
        model = make_model(recipe.model, vocabulary, vocabulary)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return TrainingPlan(recipe, vocabulary, parameters, model_cost(recipe.model, vocabulary, length), length)


@dataclass(frozen=True)
class Speed:
    """What this machine does, measured."""

    product_flops: float
    """FLOP/s of a large matrix product."""
    training_flops: float
    """FLOP/s of training steps of this very model, small ones."""
    half: bool = False
    """Whether those steps have products in bfloat16."""


def measure(plan: TrainingPlan, seconds: float = 10.0) -> Speed:
    """Train the model on made-up sentences for some seconds, as training will, and multiply matrices in between."""
    probe = Probe(plan.recipe, plan.vocabulary, plan.length)
    square = torch.randn(1024, 1024)
    products: list[float] = []
    end = time.monotonic() + seconds
    while len(probe.steps) < 3 or time.monotonic() < end:
        probe.step()
        between = time.monotonic()
        square @ square
        products.append(time.monotonic() - between)
    flops = plan.cost.step_flops(probe.tokens, probe.tokens)
    half = probe.workers.precision is torch.bfloat16
    return Speed(2 * 1024**3 / statistics.median(products), FILL * flops / probe.seconds_a_step(), half)


def paper_flops(preset: str) -> float:
    """What the paper says it spent on a preset. [paper 6.1, Table 2]"""
    return paper_cost(PAPER_HOURS[preset], PAPER_GPUS, SUSTAINED["P100"])


def report(plan: TrainingPlan, speed: Speed | None) -> str:
    """The plan for people to read."""
    config, steps = plan.recipe.train, expected_steps(plan, speed)
    assumed = "" if plan.recipe.tokens.vocab_size else " (assumed: the paper's; set tokens.vocab_size)"
    lines = [
        f"parameters        {plan.parameters / 1e6:,.1f} M, vocabulary {plan.vocabulary:,}{assumed}",
        f"a step            {plan.step_tokens:,} tokens a side, {plan.step_flops:.2e} FLOPs (sentences of {plan.length} tokens)",
        f"training          {steps:,} steps, {plan.step_flops * steps:.2e} FLOPs{_ends_earlier(config, steps)}",
        f"memory            {_bytes(plan.memory_bytes)}: weights, gradients, Adam, activations of one batch of "
        f"{plan.recipe.batches.tokens:,} tokens",
        f"a checkpoint      {_bytes(plan.checkpoint_bytes)}; {max(config.keep_last, config.average)} are kept",
    ]
    if speed is not None:
        rate = speed.training_flops / plan.cost.step_flops(1, 1)
        share = speed.training_flops / speed.product_flops
        lines += [
            f"this machine      {_time(plan.step_flops * steps / speed.training_flops)}, at {rate:,.0f} target tokens/s: "
            f"{speed.training_flops / 1e9:,.0f} GFLOP/s, {share:.0%} of its float32 products' {speed.product_flops / 1e9:,.0f}"
            f"{'; its own products are in bfloat16' if speed.half else ''}",
        ]
    lines.append(
        "on GPUs           arithmetic from their data sheets, not measured; a step is taken to last at least "
        f"{1000 * LEAST_STEP:g} ms, for launching kernels and feeding data:"
    )
    for name, rate in GPUS.items():
        one, eight = (max(LEAST_STEP, plan.step_flops / rate / count) for count in (1, 8))
        lines.append(
            f"{name:<18}{_time(steps * one)} on one at {plan.step_tokens / one:,.0f} target tokens/s, "
            f"{_time(steps * eight)} on eight"
        )
    lines.append(f"several processes {_bytes(plan.sent_bytes)} sent and received by each in a step, for the sum of the gradients")
    preset = plan.recipe.preset
    if preset in PAPER_HOURS:
        theirs = paper_flops(preset)
        lines.append(
            f"the paper's count {theirs:.1e} FLOPs for {preset}: {_time(3600 * PAPER_HOURS[preset])} of {PAPER_GPUS} GPUs at "
            f"{SUSTAINED['P100'] / 1e12:.1f} TFLOP/s, used or not; the products alone are {plan.total_flops / theirs:.0%} of it"
        )
    return "\n".join(lines)


def expected_steps(plan: TrainingPlan, speed: Speed | None) -> int:
    """The steps that training will take: those that fit into its minutes where the machine was measured, else all."""
    config = plan.recipe.train
    if not config.minutes or speed is None:
        return config.max_steps
    return max(1, min(config.max_steps, round(config.minutes * 60 * speed.training_flops / plan.step_flops)))


def _ends_earlier(config: TrainConfig, steps: int) -> str:
    """The limits under which a training may end before the steps of a plan."""
    limits = [f"{config.minutes:g} minutes"] if config.minutes and steps == config.max_steps else []
    limits += [plural(config.max_epochs, "epoch")] if config.max_epochs else []
    limits += [f"{plural(config.patience, 'validation')} without a better BLEU"] if config.patience else []
    return f"; stops before that after {' or '.join(limits)}" if limits else ""


def _bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _time(seconds: float) -> str:
    return f"{seconds / 86400:.1f} days" if seconds > 2 * 86400 else duration(seconds)
