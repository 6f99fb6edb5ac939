"""What a training will cost, before anything runs: parameters, FLOPs, memory, time. [paper 5.2, 6.1, Table 2]"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

import torch

from undivided.config import ModelConfig, Recipe, TrainConfig
from undivided.config.model import SINGLE_STACK
from undivided.core.console import duration, plural
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.data.batches import make_batch
from undivided.models import make_model
from undivided.nn.backend import bfloat16_products, choose_precision
from undivided.nn.loss import smoothed_loss
from undivided.training.schedule import make_optimizer

PAPER_VOCABULARY = 37_000
PAPER_GPUS = 8
PAPER_GPU = 9.5e12
"""Sustained FLOP/s of the paper's GPU, a P100. [paper 6.1, footnote 5]"""
PAPER_SECONDS = {"base": 12 * 3600.0, "big": 3.5 * 86400.0}
"""How long the paper trained on eight of them. [paper 5.2]"""

SUSTAINED = 0.4
"""The share of a GPU's half-precision peak that training is taken to reach; not measured here."""

PEAKS = {"T4": 65e12, "V100": 125e12, "RTX 3090": 71e12, "RTX 4090": 165e12, "A100": 312e12, "H100": 989e12}
"""FLOP/s that the makers name for dense half-precision products."""

GPUS = {"P100 (paper)": PAPER_GPU} | {name: SUSTAINED * peak for name, peak in PEAKS.items()}


@dataclass(frozen=True)
class Cost:
    """Multiplications and additions of the matrix products in one forward pass, and what is kept for the backward pass."""

    per_source_token: float
    per_target_token: float
    bytes_per_source_token: float
    bytes_per_target_token: float

    def step_flops(self, source_tokens: float, target_tokens: float) -> float:
        """Forward and backward: the backward pass has two products for each of the forward pass."""
        return 3 * (source_tokens * self.per_source_token + target_tokens * self.per_target_token)


def model_cost(model: ModelConfig, tgt_vocab: int, length: int) -> Cost:
    """The cost of a token in sentences of some length, counted from the shapes of the layers. [paper Table 1]"""
    d, f, h = model.d_model, model.d_ff, model.n_heads
    keys, values = h * model.key_width, h * model.value_width
    inner = f * (2 if model.activation == "swiglu" else 1)
    reach = min(length, model.window + 1) if model.window else length
    project = 2 * d * (2 * keys + 2 * values)
    attend, attend_across = 2 * reach * (keys + values), 2 * length * (keys + values)
    feed = 2 * d * inner + 2 * f * d
    encoder = project + attend + feed
    # The decoder reads keys and values of the memory for each source token, and asks and joins for each target token.
    decoder = encoder + 2 * d * (keys + values) + attend_across
    read = 2 * d * (keys + values)
    # Of each sub-layer its input, its dropout mask and the input of its norm; of attention Q, K, V, weights and heads.
    gates = 0 if inner == f else inner
    kept = 4.0 * (6 * d + 2 * keys + 2 * values + h * reach + f + gates)
    kept_across = kept + 4.0 * (3 * d + keys + values + h * length)
    return Cost(
        model.encoder_layers * encoder + model.decoder_layers * read,
        model.decoder_layers * decoder + 2 * d * tgt_vocab,
        model.encoder_layers * kept + model.decoder_layers * 4.0 * (keys + values),
        model.decoder_layers * kept_across,
    )


@dataclass(frozen=True)
class Plan:
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


def make_plan(recipe: Recipe, length: int = 25) -> Plan:
    """Count what a recipe asks for, without allocating it; sentences are taken to have `length` tokens."""
    if recipe.model.kind in SINGLE_STACK:
        raise InputError(f"plan counts sequence-to-sequence models; model.kind is {recipe.model.kind}")
    vocabulary = recipe.tokens.vocab_size or PAPER_VOCABULARY
    with torch.device("meta"):
        model = make_model(recipe.model, vocabulary, vocabulary)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return Plan(recipe, vocabulary, parameters, model_cost(recipe.model, vocabulary, length), length)


@dataclass(frozen=True)
class Speed:
    """What this machine does, measured."""

    product_flops: float
    """FLOP/s of a large matrix product."""
    training_flops: float
    """FLOP/s of training steps of this very model, small ones."""
    half: bool = False
    """Whether those steps have products in bfloat16."""


def measure(plan: Plan, seconds: float = 10.0) -> Speed:
    """Train the model on made-up sentences for some seconds, and multiply matrices in between."""
    torch.manual_seed(1)
    tokens = min(plan.recipe.batches.tokens, 1000)
    words = torch.randint(EOS + 1, plan.vocabulary, (max(1, tokens // plan.length), plan.length - 1))
    rows = [[*row, EOS] for row in words.tolist()]
    batch = make_batch(rows, rows)
    model = make_model(plan.recipe.model, plan.vocabulary, plan.vocabulary).train()
    optimizer = make_optimizer(model, plan.recipe.train)
    half = choose_precision(plan.recipe.train.precision, torch.device("cpu")) is torch.bfloat16
    square = torch.randn(1024, 1024)
    steps: list[float] = []
    products: list[float] = []
    end = time.monotonic() + seconds
    while len(steps) < 2 or time.monotonic() < end:
        began = time.monotonic()
        with bfloat16_products(half):
            states = model.decode(model.encode(batch.src, None), batch.tgt_in)
            loss, _ = smoothed_loss(states, model.output_weight, batch.tgt_out, plan.recipe.train.label_smoothing)
        (loss / batch.tgt_out.numel()).backward()
        optimizer.step()
        optimizer.zero_grad()
        between = time.monotonic()
        square @ square
        steps.append(between - began)
        products.append(time.monotonic() - between)
    flops = plan.cost.step_flops(batch.src.numel(), batch.tgt_out.numel())
    # The first step also allocates what the others reuse.
    return Speed(2 * 1024**3 / statistics.median(products), flops / statistics.median(steps[1:]), half)


def paper_flops(preset: str) -> float:
    """Training FLOPs as the paper counts them: time × GPUs × sustained FLOP/s. [paper 6.1, Table 2]"""
    return PAPER_SECONDS[preset] * PAPER_GPUS * PAPER_GPU


def report(plan: Plan, speed: Speed | None) -> str:
    """The plan for people to read."""
    config = plan.recipe.train
    assumed = "" if plan.recipe.tokens.vocab_size else " (assumed: the paper's; set tokens.vocab_size)"
    lines = [
        f"parameters        {plan.parameters / 1e6:,.1f} M, vocabulary {plan.vocabulary:,}{assumed}",
        f"a step            {plan.step_tokens:,} tokens a side, {plan.step_flops:.2e} FLOPs (sentences of {plan.length} tokens)",
        f"training          {config.max_steps:,} steps, {plan.total_flops:.2e} FLOPs{_ends_earlier(config)}",
        f"memory            {_bytes(plan.memory_bytes)}: weights, gradients, Adam, activations of one batch of "
        f"{plan.recipe.batches.tokens:,} tokens",
        f"a checkpoint      {_bytes(plan.checkpoint_bytes)}; {max(config.keep_last, config.average)} are kept",
    ]
    if speed is not None:
        rate = speed.training_flops / plan.cost.step_flops(1, 1)
        share = speed.training_flops / speed.product_flops
        lines += [
            f"this machine      {_time(plan.total_flops / speed.training_flops)}, at {rate:,.0f} target tokens/s: "
            f"{speed.training_flops / 1e9:,.0f} GFLOP/s, {share:.0%} of its float32 products' {speed.product_flops / 1e9:,.0f}"
            f"{'; its own products are in bfloat16' if speed.half else ''}",
        ]
    lines.append("on GPUs           reckoned from what their makers name, not measured:")
    for name, rate in GPUS.items():
        tokens = rate / plan.cost.step_flops(1, 1)
        lines.append(
            f"{name:<18}{_time(plan.total_flops / rate)} on one at {tokens:,.0f} target tokens/s, "
            f"{_time(plan.total_flops / rate / 8)} on eight"
        )
    lines.append(f"several processes {_bytes(plan.sent_bytes)} sent and received by each in a step, for the sum of the gradients")
    preset = plan.recipe.preset
    if preset in PAPER_SECONDS:
        theirs = paper_flops(preset)
        lines.append(
            f"the paper's count {theirs:.1e} FLOPs for {preset}: {_time(PAPER_SECONDS[preset])} of {PAPER_GPUS} GPUs at "
            f"{PAPER_GPU / 1e12:.1f} TFLOP/s, used or not; the products alone are {plan.total_flops / theirs:.0%} of it"
        )
    return "\n".join(lines)


def _ends_earlier(config: TrainConfig) -> str:
    """The limits under which a training may end before its last step; the times of a plan are those of all steps."""
    limits = [f"{config.minutes:g} minutes"] if config.minutes else []
    limits += [plural(config.max_epochs, "epoch")] if config.max_epochs else []
    limits += [f"{plural(config.patience, 'validation')} without a better BLEU"] if config.patience else []
    return f"; stops before that after {' or '.join(limits)}" if limits else ""


def _bytes(count: float) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _time(seconds: float) -> str:
    return f"{seconds / 86400:.1f} days" if seconds > 2 * 86400 else duration(seconds)
