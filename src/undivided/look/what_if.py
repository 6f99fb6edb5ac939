"""What if: the translation without one head, or with another word at some place."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.core.ids import BOS, PAD, UNK
from undivided.data.batches import make_batch
from undivided.data.subwords import to_one_line
from undivided.inference.search import BeamSearch, begin_beam_search, forced_scores, search
from undivided.look.capture import passed
from undivided.look.result import USES, Alternative, HeadOff, Look, Use
from undivided.models import Seq2Seq
from undivided.nn.attention import AttentionHook, attention_hook

OTHERS = 3
"""Other words tried at each step."""

TOGETHER = 32
"""Searches in one batch."""


@dataclasses.dataclass(frozen=True)
class Head:
    """One head of one attention."""

    use: Use
    layer: int
    head: int
    owner: nn.Module

    def off(self) -> AttentionHook:
        """A watcher under which the head adds nothing: its weights are 0."""

        def see(owner: nn.Module, weights: Tensor) -> Tensor:
            if owner is not self.owner:
                return weights
            weights = weights.clone()
            weights[..., self.head, :, :] = 0.0
            return weights

        return see


class EachOff:
    """A watcher of a batch that holds one sentence once for each head: in each row another head adds nothing."""

    def __init__(self, heads: Sequence[Head]) -> None:
        self.heads = heads
        self.search: BeamSearch | None = None
        """Sentences leave a search when they are done: it knows which are still there."""

    def __call__(self, owner: nn.Module, weights: Tensor) -> Tensor:
        """Turn off, in each row, what belongs to this attention."""
        rows = range(len(self.heads)) if self.search is None else self.search.sentences.tolist()
        weights = weights.clone()
        for row, sentence in enumerate(rows):
            if self.heads[sentence].owner is owner:
                weights[row][..., self.heads[sentence].head, :, :] = 0.0
        return weights


def heads(model: Seq2Seq, source: list[int], target: list[int]) -> list[Head]:
    """Every head of a model, by one pass over any sentence."""
    device = next(cast(nn.Module, model).parameters()).device
    with torch.inference_mode():
        seen = passed(model, make_batch([source], [target]).to(device))
    return [
        Head(use, layer, head, owner)
        for use in USES
        for layer, owner in enumerate(seen.owners(use))
        for head in range(seen.weights[owner][0].shape[-3])
    ]


def what_if(
    artifact: Artifact, seen: Look, config: SearchConfig | None = None, advance: Callable[[int], None] = lambda count: None
) -> Look:
    """The same look with every head turned off in turn, and with other words at every step. `advance` is told of each."""
    config = config if config is not None else artifact.recipe.search
    off = tuple(_heads_off(artifact, seen, config, advance))
    return dataclasses.replace(seen, heads_off=off, alternatives=tuple(_alternatives(artifact, seen, config, advance)))


def questions(seen: Look) -> int:
    """How many translations `what_if` makes."""
    return sum(seen.attention(use).shape[0] * seen.attention(use).shape[1] for use in USES) + len(_others(seen))


def _heads_off(artifact: Artifact, seen: Look, config: SearchConfig, advance: Callable[[int], None]) -> Iterator[HeadOff]:
    model, subwords = artifact.model, artifact.tokenizer.target
    device = next(model.parameters()).device
    source, target = [token.id for token in seen.source], [token.id for token in seen.tgt_out]
    before = sum(forced_scores(model, [source], [target], device)[0])
    every = heads(model, source, target)
    for start in range(0, len(every), TOGETHER):
        some = every[start : start + TOGETHER]
        off = EachOff(some)
        with torch.inference_mode(), attention_hook(off):
            left = [sum(row) for row in forced_scores(model, [source] * len(some), [target] * len(some), device)]
            off.search = begin_beam_search(model, [source] * len(some), config, device)
            found = [best[0] for best in off.search.run()]
        texts = subwords.decode([best.tokens for best in found])
        for head, best, text, after in zip(some, found, texts, left, strict=True):
            yield HeadOff(head.use, head.layer, head.head, to_one_line(text), best.score, before - after)
        advance(len(some))


def _others(seen: Look) -> list[tuple[int, int, str, float]]:
    """The likeliest tokens that were not written, at each step: (step, id, piece, probability)."""
    result = []
    for place, step in enumerate(seen.steps):
        never = {step.written.id, PAD, UNK, BOS}
        others = [each for each in step.candidates if each.id not in never][:OTHERS]
        result += [(place, each.id, each.piece, each.probability) for each in others]
    return result


def _alternatives(artifact: Artifact, seen: Look, config: SearchConfig, advance: Callable[[int], None]) -> Iterator[Alternative]:
    """What follows if another token comes: the search goes on behind it."""
    model, subwords = artifact.model, artifact.tokenizer.target
    device = next(model.parameters()).device
    source, written = [token.id for token in seen.source], [token.id for token in seen.tgt_out]
    others = _others(seen)
    for start in range(0, len(others), TOGETHER):
        some = others[start : start + TOGETHER]
        prefixes = [[*written[:place], token] for place, token, _, _ in some]
        found = search(model, [source] * len(some), config, device, prefixes)
        texts = subwords.decode([best[0].tokens for best in found])
        for other, best, text in zip(some, found, texts, strict=True):
            yield Alternative(*other, to_one_line(text), best[0].score)
        advance(len(some))
