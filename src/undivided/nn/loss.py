"""Label-smoothed cross-entropy through the output projection, in chunks: no full logits in memory. [paper 5.4]"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.core.ids import PAD
from undivided.nn.backend import kernels
from undivided.nn.backend.products import uses_bfloat16

CHUNK_ELEMENTS = 1 << 21
"""Logits held at a time: 8 MB in float32, so that a chunk stays in the cache between its passes."""
EVEN = 16
"""Chunks of bfloat16 have a multiple of so many rows."""


def smoothed_loss(states: Tensor, weight: Tensor, tgt_out: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Sums over the real target tokens: the loss to descend, and the plain negative log-likelihood.

    The target distribution is (1 − ε) on the right token and ε/V on all: `F.cross_entropy(label_smoothing=ε)`.
    """
    rows, labels = _real(states, tgt_out)
    if uses_bfloat16(rows):
        rows, weight = _even(rows) if kernels.fit(rows) else rows.bfloat16(), weight.bfloat16()
    elif torch.is_autocast_enabled(rows.device.type):
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
    if uses_bfloat16(first) and kernels.fit(first):
        first, second, weight = _even(first), _even(second), weight.bfloat16()
    else:
        first, second, weight = first.float(), second.float(), weight.float()
    loss, likelihood = _ConsistentLoss.apply(first, second, weight, labels, smoothing, strength)
    return loss, likelihood


def _even(rows: Tensor) -> Tensor:
    """Rounded, rows of zeros below: so chunks have few different lengths, for each of which a product makes and keeps a program."""
    return F.pad(rows, (0, 0, 0, -len(rows) % EVEN)).bfloat16()


def _chunk(rows: Tensor, vocab: int, buffers: int = 1) -> int:
    """How many rows are projected at a time."""
    size = max(1, CHUNK_ELEMENTS // buffers // vocab)
    return -(-size // EVEN) * EVEN if rows.dtype is torch.bfloat16 else size


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
        size = _chunk(states, vocab)
        buffer = states.new_empty(min(size, len(states)), vocab)
        grad_states, grad_weight = torch.empty_like(states), torch.zeros_like(weight, dtype=wide)
        all_rows = weight.sum(dim=0, dtype=wide)
        normaliser = right = buffer.new_zeros((), dtype=wide)
        in_one_pass, totals = kernels.fit(all_rows) and states.dtype is not torch.float16, all_rows.new_ones(len(buffer), 1)
        for rows, label, grad_rows in zip(states.split(size), labels.split(size), grad_states.split(size), strict=True):
            logits = torch.mm(rows, weight.t(), out=buffer[: len(rows)])
            if in_one_pass:
                total = totals[: len(rows)]
                sums, hits = kernels.softmax_loss(logits[: len(label)], label, smoothing, total)
                normaliser, right = normaliser + sums, right + hits
                torch.mm(logits, weight, out=grad_rows).div_(total)
                if rows.dtype is wide:
                    grad_weight.addmm_(logits.t(), rows / total)
                else:
                    grad_weight += logits.t() @ (rows / total).to(rows.dtype)
                continue
            logits = logits.to(wide)
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
    """Both passes of a chunk of tokens at a time, with the gradient, in reused buffers; products may have rounded factors.

    Smoothing's constant part is left out of the large matrices as in `_ChunkedLoss`.
    """

    @staticmethod
    def forward(
        ctx: Any, first: Tensor, second: Tensor, weight: Tensor, labels: Tensor, smoothing: float, strength: float
    ) -> tuple[Tensor, Tensor]:
        vocab, pull, wide = len(weight), strength / 4, torch.promote_types(weight.dtype, torch.float32)
        size = _chunk(first, vocab, buffers=2)
        buffers = [first.new_empty(min(size, len(first)), vocab) for _ in range(2)]
        slopes, grad_weight = (torch.empty_like(first), torch.empty_like(second)), torch.zeros_like(weight, dtype=wide)
        found = torch.zeros(3, dtype=torch.float64 if first.device.type == "cpu" else wide, device=first.device)
        gradient = kernels.consistent_loss if kernels.fit(grad_weight) and wide is torch.float32 else _contradiction
        for start in range(0, len(first), size):
            part, label = slice(start, start + size), labels[start : start + size]
            both = first[part], second[part]
            logits = [torch.mm(rows, weight.t(), out=buffer[: len(rows)]) for rows, buffer in zip(both, buffers, strict=True)]
            one, other = (each[: len(label)] for each in logits)
            found += torch.as_tensor(gradient(one, other, label, smoothing, pull)).to(found)
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
        return (1 - smoothing) * likelihood + smoothing * smooth + pull * apart, likelihood

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        first, second, weight = (each * grads[0] for each in ctx.saved_tensors)
        return first, second, weight.to(ctx.weight_dtype), None, None, None


def _contradiction(first: Tensor, second: Tensor, labels: Tensor, smoothing: float, pull: float) -> Tensor:
    """The same as `kernels.consistent_loss`, by PyTorch.

    With x and y the logits of both passes, p and q their probabilities, c the difference of their normalisers:
    KL(p, q) = p · (x − y) − c and KL(q, p) = c − q · (x − y). Their gradients for x are p (x − y − c − KL(p, q)) and p − q.
    """
    logits = first, second
    right = (first + second).gather(1, labels[:, None]).sum()
    norms = [each.logsumexp(dim=1, keepdim=True) for each in logits]
    p, q = ((each - norm).exp_() for each, norm in zip(logits, norms, strict=True))
    gap, c = first - second, norms[0] - norms[1]
    distances = torch.linalg.vecdot(p, gap)[:, None] - c, c - torch.linalg.vecdot(q, gap)[:, None]
    for out, own, other, sign, distance in zip(logits, (p, q), (q, p), (1, -1), distances, strict=True):
        torch.add(0.5 + pull * (1 - sign * c - distance), gap, alpha=sign * pull, out=out)
        out.mul_(own).sub_(other, alpha=pull)
        out.scatter_add_(1, labels[:, None], out.new_full((len(labels), 1), (smoothing - 1) / 2))
    return torch.stack([(norms[0] + norms[1]).sum(), right, (distances[0] + distances[1]).sum()])
