"""Adam's values and the learning rate of each step. [paper 5.3]"""

from __future__ import annotations

import math

import torch
from torch import nn

from undivided.config import TrainConfig

LONGEST_WARMUP = 0.1
"""The share of a time budget after which the learning rate rises no more."""


def paper_rate(step: int, d_model: int, warmup_steps: int) -> float:
    """d_model^−0.5 · min(step^−0.5, step · warmup_steps^−1.5), steps counted from 1. [paper 5.3, Eq. 3]"""
    return float(d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5))


def learning_rate(step: int, config: TrainConfig, d_model: int, seconds: float = 0.0) -> float:
    """The rate of a step, counted from 1, after so many seconds of training.

    The cosine reaches zero at `max_steps` or, where `minutes` is set and nearer, at the end of that time; then its warmup takes
    no more than a tenth of the time, however slow the machine.
    """
    warmup = config.warmup_steps
    if config.schedule == "paper":
        return config.rate * paper_rate(step, d_model, warmup)
    warm = step / warmup
    if config.schedule == "cosine" and config.minutes:
        warm = max(warm, seconds / (LONGEST_WARMUP * config.minutes * 60))
    if warm < 1:
        return config.rate * warm
    if config.schedule == "inverse_sqrt":
        return config.rate * math.sqrt(warmup / step)
    done = max(0.0, (step - warmup) / max(1, config.max_steps - warmup))
    if config.minutes:
        done = max(done, seconds / (config.minutes * 60))
    return config.rate * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Adam with β₁ = 0.9, β₂ = 0.98, ε = 10⁻⁹ by default, in one fused kernel. [paper 5.3]"""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    fused = parameters[0].device.type in ("cpu", "cuda")
    betas = (config.beta1, config.beta2)
    if config.optimizer == "adamw":
        decay = config.weight_decay
        return torch.optim.AdamW(parameters, betas=betas, eps=config.epsilon, weight_decay=decay, fused=fused)
    return torch.optim.Adam(parameters, betas=betas, eps=config.epsilon, fused=fused)
