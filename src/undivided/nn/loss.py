"""Label-smoothed cross-entropy through the output projection, in chunks: no full logits in memory. [paper 5.4]"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undivided.core.ids import PAD
from undivided.nn import backend

CHUNK_ELEMENTS = 1 << 21
"""Logits held at a time: 8 MB in float32, so that a chunk stays in the cache between its passes."""


def smoothed_loss(states: Tensor, weight: Tensor, tgt_out: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums over the real target tokens: the loss to descend, and the plain negative log-likelihood.

    The target distribution is (1 − ε) on the right token and ε/V on all: `F.cross_entropy(label_smoothing=ε)`.
    """
    rows, labels = _without_padding(states, tgt_out)
    loss, likelihood = _ChunkedLoss.apply(*backend.loss_factors(rows, weight), labels, smoothing)
    return loss, likelihood


def consistent_loss(states: Tensor, weight: Tensor, tgt_out: Tensor, smoothing: float, strength: float) -> tuple[Tensor, Tensor]:
    """The mean of `smoothed_loss` over two passes, and how much they contradict each other (R-Drop; Liang et al., 2021).

    `states` are `2B T D`: all pairs, and below them the same through other dropout. What is added is strength/2 times the
    mean of both Kullback-Leibler divergences, so that the strength means what it does in their paper.
    """
    (first, labels), (second, _) = (_without_padding(each, tgt_out) for each in states.chunk(2))
    factors = backend.consistent_factors(first, second, weight)
    loss, likelihood = _ConsistentLoss.apply(*factors, labels, smoothing, strength)
    return loss, likelihood


def _chunk(rows: Tensor, vocab: int, buffers: int = 1) -> int:
    """How many rows are projected at a time."""
    return backend.round_chunk(max(1, CHUNK_ELEMENTS // buffers // vocab), rows.dtype)


def _without_padding(states: Tensor, tgt_out: Tensor) -> tuple[Tensor, Tensor]:
    """The states and labels of all tokens that are no padding."""
    real = tgt_out.flatten() != PAD
    rows, labels = states.flatten(0, 1), tgt_out.flatten()
    return (rows, labels) if bool(real.all()) else (rows[real], labels[real])


class _ChunkedLoss(torch.autograd.Function):
    """Project, softmax, loss and gradient of a chunk at a time, in one reused buffer; products may be in half precision.

    The gradient of the logits is p − (1 − ε)·onehot − ε/V. Its last term is the same for every token, so it is left out
    of the large matrices and added to the results: ε times the mean row of the weight, and ε/V times the sum of states.
    So is the division of e^logit by its sum: it scales the rows of the small matrices instead.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        vocab, wide = len(weight), torch.promote_types(states.dtype, torch.float32)
        size = _chunk(states, vocab)
        buffer = states.new_empty(min(size, len(states)), vocab)
        grad_states, grad_weight = torch.empty_like(states), torch.zeros_like(weight, dtype=wide)
        all_rows = weight.sum(dim=0, dtype=wide)
        normaliser = right = buffer.new_zeros((), dtype=wide)
        totals = all_rows.new_ones(len(buffer), 1)
        for rows, label, grad_rows in zip(states.split(size), labels.split(size), grad_states.split(size), strict=True):
            logits = torch.mm(rows, weight.t(), out=buffer[: len(rows)])
            slope = backend.softmax_slope(logits, label, smoothing, totals[: len(rows)])
            normaliser, right = normaliser + slope.normaliser, right + slope.right
            torch.mm(slope.numbers, weight, out=grad_rows)
            if slope.total is not None:
                grad_rows.div_(slope.total)
                rows = (rows / slope.total).to(rows.dtype)
            if rows.dtype is wide:
                grad_weight.addmm_(slope.numbers.t(), rows)
            else:
                grad_weight += slope.numbers.t() @ rows
        sum_of_states = states.sum(dim=0, dtype=wide)
        grad_states -= smoothing * (all_rows / vocab).to(states.dtype)
        grad_weight -= (smoothing / vocab) * sum_of_states
        ctx.save_for_backward(grad_states, grad_weight)
        ctx.weight_dtype = weight.dtype
        likelihood, smooth = normaliser - right, normaliser - sum_of_states @ all_rows / vocab
        ctx.mark_non_differentiable(likelihood)
        return (1 - smoothing) * likelihood + smoothing * smooth, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grads[0], (grad_weight * grads[0]).to(ctx.weight_dtype), None, None


class _ConsistentLoss(torch.autograd.Function):
    """Both passes of a chunk of tokens at a time, with the gradient, in reused buffers; products may have rounded factors.

    Smoothing's constant part is left out of the large matrices as in `_ChunkedLoss`.
    """

    @staticmethod
    def forward(
        ctx: Any, first: Tensor, second: Tensor, weight: Tensor, labels: Tensor, smoothing: float, strength: float
    ) -> tuple[Tensor, Tensor]:
        vocab, kl_weight, wide = len(weight), strength / 4, torch.promote_types(weight.dtype, torch.float32)
        size = _chunk(first, vocab, buffers=2)
        buffers = [first.new_empty(min(size, len(first)), vocab) for _ in range(2)]
        slopes, grad_weight = (torch.empty_like(first), torch.empty_like(second)), torch.zeros_like(weight, dtype=wide)
        found = torch.zeros(3, dtype=torch.float64 if first.device.type == "cpu" else wide, device=first.device)
        for start in range(0, len(first), size):
            part, label = slice(start, start + size), labels[start : start + size]
            both = first[part], second[part]
            logits = [torch.mm(rows, weight.t(), out=buffer[: len(rows)]) for rows, buffer in zip(both, buffers, strict=True)]
            one, other = (each[: len(label)] for each in logits)
            found += backend.consistent_slopes(one, other, label, smoothing, kl_weight).to(found)
            for rows, slope, grad in zip(both, logits, slopes, strict=True):
                torch.mm(slope, weight, out=grad[part])
                if rows.dtype is wide:
                    grad_weight.addmm_(slope.t(), rows)
                else:
                    grad_weight += slope.t() @ rows
        normaliser, right, apart = found.to(wide)
        all_rows, sum_of_states = (each.sum(dim=0, dtype=wide) for each in (weight, torch.cat([first, second])))
        for grad in slopes:
            grad -= (smoothing / 2 / vocab * all_rows).to(grad.dtype)
        grad_weight -= smoothing / 2 / vocab * sum_of_states
        ctx.save_for_backward(*slopes, grad_weight)
        ctx.weight_dtype = weight.dtype
        likelihood, smooth = (normaliser - right) / 2, (normaliser - sum_of_states @ all_rows / vocab) / 2
        ctx.mark_non_differentiable(likelihood)
        return (1 - smoothing) * likelihood + smoothing * smooth + kl_weight * apart, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        first, second, weight = (each * grads[0] for each in ctx.saved_tensors)
        return first, second, weight.to(ctx.weight_dtype), None, None, None
