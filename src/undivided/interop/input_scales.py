"""How large the inputs of every matrix product are, measured: engines that compute in 8 bits multiply them by a fixed scale."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from undivided.config import SearchConfig
from undivided.core.ids import BOS
from undivided.inference.search import search
from undivided.models import Seq2Seq
from undivided.nn.layers import FeedForward

SPREAD = 3.0
"""Standard deviations above the mean of the sentences' largest numbers: what is larger is cut off."""
OUTPUT = "output"
"""The name of the projection to the vocabulary."""

Largest = dict[str, list[float]]


def measure_inputs(model: Seq2Seq, sources: Sequence[Sequence[int]]) -> dict[str, float]:
    """For each projection, by its module's name, how large its inputs get along our greedy translations of sentences."""
    found: Largest = defaultdict(list)
    cpu = torch.device("cpu")
    with torch.inference_mode():
        for source in sources:
            best = search(model, [source], SearchConfig(beam_size=1, max_extra=20), cpu)[0][0].tokens
            with _hooks(model, found):
                states = model.decode(model.encode(torch.tensor([source]), None), torch.tensor([[BOS, *best]]))
            found[OUTPUT].append(float(states.abs().max()))
    sizes = {name: torch.tensor(each) for name, each in found.items()}
    return {name: float(each.mean() + SPREAD * each.std(correction=0)) for name, each in sizes.items()}


@contextmanager
def _hooks(model: Seq2Seq, found: Largest) -> Iterator[None]:
    """Within, the largest number that each projection reads is noted; a feed-forward layer may compute both of its own at once."""
    handles = []
    for name, module in cast(nn.Module, model).named_modules():
        if isinstance(module, FeedForward):
            handles.append(module.register_forward_pre_hook(_note_feed_forward(name, found)))
        elif isinstance(module, nn.Linear) and ".feed_forward." not in name:
            handles.append(module.register_forward_pre_hook(_note(name, found)))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _note(name: str, found: Largest) -> Callable[[nn.Module, Any], None]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        found[name].append(float(inputs[0].abs().max()))

    return hook


def _note_feed_forward(name: str, found: Largest) -> Callable[[nn.Module, Any], None]:
    def hook(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        layer = cast(FeedForward, module)
        inner = nn.functional.linear(inputs[0], layer.inner.weight, layer.inner.bias)
        middle = nn.functional.silu(inner) if layer.activation == "swish" else inner.relu()
        found[f"{name}.inner"].append(float(inputs[0].abs().max()))
        found[f"{name}.outer"].append(float(middle.abs().max()))

    return hook
