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
    """Project, softmax, loss and gradient of a chunk at a time, in reused buffers; products may be in half precision.

    The gradient of the logits is p − (1 − ε)·onehot − ε/V. Its last term is the same for every token, so it is left out
    of the large matrices and added to the results: ε times the mean row of the weight, and ε/V times the sum of states.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, labels: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        vocab, wide = len(weight), torch.promote_types(states.dtype, torch.float32)
        size = max(1, CHUNK_ELEMENTS // vocab)
        logits_buffer = states.new_empty(min(size, len(states)), vocab)
        scores_buffer = torch.empty_like(logits_buffer, dtype=wide)
        grad_states, grad_weight = torch.empty_like(states), torch.zeros_like(weight, dtype=wide)
        likelihood = smooth = scores_buffer.new_zeros(())
        for rows, label, grad_rows in zip(states.split(size), labels.split(size), grad_states.split(size), strict=True):
            logits, scores = logits_buffer[: len(rows)], scores_buffer[: len(rows)]
            torch.mm(rows, weight.t(), out=logits)
            torch.log_softmax(logits.to(wide), dim=-1, out=scores)
            right = scores.gather(1, label[:, None])
            likelihood = likelihood - right.sum()
            smooth = smooth - scores.sum() / vocab
            scores.exp_().scatter_add_(1, label[:, None], right.new_full(right.shape, smoothing - 1))
            slope = scores.to(states.dtype)
            torch.mm(slope, weight, out=grad_rows)
            if slope is scores:
                grad_weight.addmm_(slope.t(), rows)
            else:
                grad_weight += slope.t() @ rows
        grad_states -= smoothing * weight.mean(dim=0)
        grad_weight -= (smoothing / vocab) * states.sum(dim=0, dtype=wide)
        ctx.save_for_backward(grad_states, grad_weight)
        ctx.weight_dtype = weight.dtype
        ctx.mark_non_differentiable(likelihood)
        return (1 - smoothing) * likelihood + smoothing * smooth, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        grad_states, grad_weight = ctx.saved_tensors
        return grad_states * grads[0], (grad_weight * grads[0]).to(ctx.weight_dtype), None, None
