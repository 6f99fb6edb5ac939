"""Label-smoothed cross-entropy through the output projection, in chunks: no full logits in memory. [paper 5.4]"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from undivided.tokens import PAD

CHUNK_ELEMENTS = 1 << 21
"""Logits held at a time: 8 MB in float32, so that a chunk stays in the cache between its passes."""


def smoothed_loss(states: Tensor, weight: Tensor, tgt_out: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums over the real target tokens: the loss to descend, and the plain negative log-likelihood.

    The target distribution is (1 − ε) on the right token and ε/V on all: `F.cross_entropy(label_smoothing=ε)`.
    """
    rows, labels = _real(states, tgt_out)
    if torch.is_autocast_enabled(rows.device.type):
        dtype = torch.get_autocast_dtype(rows.device.type)
        rows, weight = rows.to(dtype), weight.to(dtype)
    loss, likelihood = _ChunkedLoss.apply(rows, weight, labels, smoothing)
    return loss, likelihood


def consistent_loss(states: Tensor, weight: Tensor, tgt_out: Tensor, smoothing: float, strength: float) -> tuple[Tensor, Tensor]:
    """The mean of `smoothed_loss` over two passes, and how much they contradict each other (R-Drop; Liang et al., 2021).

    `states` are `2B T D`: all pairs, and below them the same through other dropout. What is added is strength/2 times the
    mean of both Kullback-Leibler divergences, so that the strength means what it does in their paper.
    """
    (first, labels), (second, _) = (_real(each, tgt_out) for each in states.chunk(2))
    loss, likelihood = _ConsistentLoss.apply(first.float(), second.float(), weight.float(), labels, smoothing, strength)
    return loss, likelihood


def _real(states: Tensor, tgt_out: Tensor) -> tuple[Tensor, Tensor]:
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
        size = max(1, CHUNK_ELEMENTS // vocab)
        buffer = states.new_empty(min(size, len(states)), vocab)
        grad_states, grad_weight = torch.empty_like(states), torch.zeros_like(weight, dtype=wide)
        all_rows = weight.sum(dim=0, dtype=wide)
        normaliser = right = buffer.new_zeros((), dtype=wide)
        for rows, label, grad_rows in zip(states.split(size), labels.split(size), grad_states.split(size), strict=True):
            logits = torch.mm(rows, weight.t(), out=buffer[: len(rows)]).to(wide)
            highest = logits.amax(dim=1, keepdim=True)
            right = right + logits.gather(1, label[:, None]).sum()
            powers = logits.sub_(highest).exp_()
            total = powers.sum(dim=1, keepdim=True)
            normaliser = normaliser + (highest + total.log()).sum()
            powers.scatter_add_(1, label[:, None], (smoothing - 1) * total)
            if powers.dtype == rows.dtype:
                torch.mm(powers, weight, out=grad_rows).div_(total)
                grad_weight.addmm_(powers.t(), rows / total)
            else:
                slope = powers.div_(total).to(rows.dtype)
                torch.mm(slope, weight, out=grad_rows)
                grad_weight += slope.t() @ rows
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
    """Both passes of a chunk of tokens at a time, with the gradient."""

    @staticmethod
    def forward(
        ctx: Any, first: Tensor, second: Tensor, weight: Tensor, labels: Tensor, smoothing: float, strength: float
    ) -> tuple[Tensor, Tensor]:
        vocab = len(weight)
        size = max(1, CHUNK_ELEMENTS // 4 // vocab)
        slopes, grad_weight = (torch.empty_like(first), torch.empty_like(second)), torch.zeros_like(weight)
        loss = likelihood = first.new_zeros(())
        for start in range(0, len(labels), size):
            part = slice(start, start + size)
            label, both = labels[part, None], (first[part], second[part])
            logs = [torch.mm(rows, weight.t()).log_softmax(dim=1) for rows in both]
            shares = [log.exp() for log in logs]
            gap = logs[0] - logs[1]
            apart = [(shares[0] * gap).sum(dim=1, keepdim=True), -(shares[1] * gap).sum(dim=1, keepdim=True)]
            right = [-log.gather(1, label).sum() for log in logs]
            smooth = [-log.mean(dim=1).sum() for log in logs]
            likelihood = likelihood + sum(right) / 2
            loss = loss + ((1 - smoothing) * sum(right) + smoothing * sum(smooth)) / 2 + strength / 4 * (apart[0] + apart[1]).sum()
            for own, other, sign, distance, rows, slope in zip(shares, shares[::-1], (1, -1), apart, both, slopes, strict=True):
                # Of p − target, and of both divergences: p (log p − log q − KL) and p − q.
                wanted = torch.full_like(own, smoothing / vocab).scatter_add_(1, label, torch.full_like(distance, 1 - smoothing))
                logit = (own - wanted) / 2 + strength / 4 * (own * (sign * gap - distance) + own - other)
                torch.mm(logit, weight, out=slope[part])
                grad_weight.addmm_(logit.t(), rows)
        ctx.save_for_backward(*slopes, grad_weight)
        ctx.mark_non_differentiable(likelihood)
        return loss, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        return *(each * grads[0] for each in ctx.saved_tensors), None, None, None
