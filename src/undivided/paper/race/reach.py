"""How far gradients reach: the effect of a source token on the last target token, by distance. [paper 4]"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from undivided.artifact import Artifact
from undivided.data.batches import make_batch

BIN = 8
"""Distances are binned by this many steps."""
SENTENCES = 100
"""Number of sentences measured: the longest ones, as only they have long distances."""


class Reach(NamedTuple):
    """The mean norm of the gradient at each distance, nearest first."""

    distances: list[int]
    """The middle of each bin, in steps of a recurrent model from the source token to the last target token."""
    sizes: list[float]


def measure_reach(artifact: Artifact, sources: Sequence[str], targets: Sequence[str]) -> Reach:
    """‖∂ log p(last token) / ∂ embedding‖ of every source token of the longest sentences, by distance."""
    order = sorted(range(len(sources)), key=lambda place: -len(sources[place]))[:SENTENCES]
    rows = zip(
        artifact.tokenizer.source.encode([sources[place] for place in order]),
        artifact.tokenizer.target.encode([targets[place] for place in order]),
        strict=True,
    )
    found: dict[int, list[float]] = defaultdict(list)
    for source, target in rows:
        sizes = gradients(artifact, source, target)
        for place, size in enumerate(sizes.tolist()):
            # The steps of a recurrent model: to the end of the source, then along the target.
            found[(len(source) - place + len(target) - 1) // BIN].append(size)
    filled = sorted(number for number, values in found.items() if len(values) >= 5) or sorted(found)
    means = [sum(found[number]) / len(found[number]) for number in filled]
    return Reach([number * BIN + BIN // 2 for number in filled], means)


def gradients(artifact: Artifact, source: list[int], target: list[int]) -> Tensor:
    """The norm of the gradient of the last target token's log-probability, for each source token: `S`."""
    model = artifact.model
    device = next(model.parameters()).device
    batch = make_batch([source], [target]).to(device)
    kept: list[Tensor] = []
    handle = model.source_embedding.register_forward_hook(lambda module, given, out: kept.append(out))
    try:
        with torch.enable_grad():
            states = model.decode(model.encode(batch.src, None), batch.tgt_in)
            last = model.logits(states[0, -1]).float().log_softmax(dim=-1)[batch.tgt_out[0, -1]]
            (slope,) = torch.autograd.grad(last, [kept[0]])
    finally:
        handle.remove()
    return slope[0].norm(dim=-1)
