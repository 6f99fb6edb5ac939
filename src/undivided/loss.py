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
    real = tgt_out.flatten() != PAD
    rows, labels = states.flatten(0, 1), tgt_out.flatten()
    if not bool(real.all()):
        rows, labels = rows[real], labels[real]
    if torch.is_autocast_enabled(rows.device.type):
        dtype = torch.get_autocast_dtype(rows.device.type)
        rows, weight = rows.to(dtype), weight.to(dtype)
    loss, likelihood = _ChunkedLoss.apply(rows, weight, labels, smoothing)
    return loss, likelihood


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
