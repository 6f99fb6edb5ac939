"""Attribution: how much each token read contributes to each token written, by gradient × input."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

import torch
from torch import Tensor, nn

from undivided.data.batches import PairBatch
from undivided.look.result import Numbers, to_readonly_array
from undivided.models import Seq2Seq


class EmbeddingLeaves:
    """Outputs of embeddings as leaves of the graph, so that gradients end there."""

    def __init__(self) -> None:
        self.leaves: list[Tensor] = []
        self.words: list[Tensor] = []

    def hook(self, module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        """Replace the output of an embedding by a leaf, and keep its part without the position (a forward hook)."""
        leaf = output.detach().requires_grad_()
        self.leaves.append(leaf)
        positions = getattr(module, "positions", None)
        # Positions are added, or concatenated and projected: both linear, so subtracting them leaves the token.
        self.words.append(output.detach() if positions is None else (output - positions(torch.zeros_like(output))).detach())
        return leaf


def compute_saliency(model: Seq2Seq, batch: PairBatch) -> tuple[Numbers, Numbers]:
    """`T S` and `T T`: the gradient of each written token's log-probability × the embedding of each token read.

    To first order, how much that log-probability falls if the embedding is scaled to zero; positive supports the token.
    """
    module, leaves = cast(nn.Module, model), EmbeddingLeaves()
    embeddings = {module.get_submodule(name) for name in ("source_embedding", "target_embedding")}
    with ExitStack() as stack:
        for embedding in embeddings:
            stack.callback(embedding.register_forward_hook(leaves.hook).remove)
        stack.enter_context(torch.inference_mode(mode=False))
        stack.enter_context(torch.enable_grad())
        # cuDNN computes gradients of recurrent layers only in training mode.
        stack.enter_context(torch.backends.cudnn.flags(enabled=False))
        states = model.decode(model.encode(batch.src, None), batch.tgt_in)[0]  # T D
    length = len(states)
    by_source = torch.zeros(length, batch.src.shape[1])
    by_target = torch.zeros(length, length)
    for place, written in enumerate(batch.tgt_out[0].tolist()):
        with torch.inference_mode(mode=False), torch.enable_grad():
            score = model.logits(states[place]).float().log_softmax(dim=-1)[written]
        gradients = torch.autograd.grad(score, leaves.leaves, retain_graph=True, allow_unused=True)
        parts = [
            torch.zeros(word.shape[1]) if gradient is None else (gradient * word)[0].sum(dim=-1).cpu()
            for gradient, word in zip(gradients, leaves.words, strict=True)
        ]
        by_source[place], by_target[place] = parts[0], torch.cat(parts[1:])
    return to_readonly_array(by_source), to_readonly_array(by_target)
