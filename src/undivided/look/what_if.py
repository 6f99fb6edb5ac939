"""What if: translations with a head turned off, or with another token at some step."""

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
from undivided.inference.search import BeamSearch, forced_scores, search, start_beam_search
from undivided.look.capture import record_pass
from undivided.look.result import USES, Alternative, HeadOff, Look, Use
from undivided.models import Seq2Seq
from undivided.nn.attention import AttentionHook, attention_hook

ALTERNATIVES = 3
"""Other tokens tried at each step."""

BATCH_SIZE = 32
"""Searches in one batch."""


@dataclasses.dataclass(frozen=True)
class Head:
    """One head of one attention module."""

    use: Use
    layer: int
    head: int
    owner: nn.Module

    def off_hook(self) -> AttentionHook:
        """An attention hook that turns the head off: its weights become 0."""

        def turn_off(owner: nn.Module, weights: Tensor) -> Tensor:
            if owner is not self.owner:
                return weights
            weights = weights.clone()
            weights[..., self.head, :, :] = 0.0
            return weights

        return turn_off


class DisableEachHead:
    """An attention hook for a batch that repeats one sentence for each head: in each row another head is off."""

    def __init__(self, heads: Sequence[Head]) -> None:
        self.heads = heads
        self.search: BeamSearch | None = None
        """Finished sentences leave the batch of a search; it knows which are still in it."""

    def __call__(self, owner: nn.Module, weights: Tensor) -> Tensor:
        """Turn off, in each row, its head if that belongs to this module."""
        rows = range(len(self.heads)) if self.search is None else self.search.sentences.tolist()
        weights = weights.clone()
        for row, sentence in enumerate(rows):
            if self.heads[sentence].owner is owner:
                weights[row][..., self.heads[sentence].head, :, :] = 0.0
        return weights


def find_heads(model: Seq2Seq, source: list[int], target: list[int]) -> list[Head]:
    """Every head of a model, found by one pass over any sentence."""
    device = next(cast(nn.Module, model).parameters()).device
    with torch.inference_mode():
        recording = record_pass(model, make_batch([source], [target]).to(device))
    return [
        Head(use, layer, head, owner)
        for use in USES
        for layer, owner in enumerate(recording.owners(use))
        for head in range(recording.weights[owner][0].shape[-3])
    ]


def run_what_if(
    artifact: Artifact, look: Look, config: SearchConfig | None = None, advance: Callable[[int], None] = lambda count: None
) -> Look:
    """The look with the translations without each head, and with other tokens at each step; `advance` reports progress."""
    config = config if config is not None else artifact.recipe.search
    off = tuple(_heads_off(artifact, look, config, advance))
    return dataclasses.replace(look, heads_off=off, alternatives=tuple(_alternatives(artifact, look, config, advance)))


def count_what_if_runs(look: Look) -> int:
    """How many translations `run_what_if` makes."""
    return sum(look.attention(use).shape[0] * look.attention(use).shape[1] for use in USES) + len(_other_candidates(look))


def _heads_off(artifact: Artifact, look: Look, config: SearchConfig, advance: Callable[[int], None]) -> Iterator[HeadOff]:
    model, subwords = artifact.model, artifact.tokenizer.target
    device = next(model.parameters()).device
    source, target = [token.id for token in look.source], [token.id for token in look.tgt_out]
    before = sum(forced_scores(model, [source], [target], device)[0])
    every = find_heads(model, source, target)
    for start in range(0, len(every), BATCH_SIZE):
        some = every[start : start + BATCH_SIZE]
        off = DisableEachHead(some)
        with torch.inference_mode(), attention_hook(off):
            left = [sum(row) for row in forced_scores(model, [source] * len(some), [target] * len(some), device)]
            off.search = start_beam_search(model, [source] * len(some), config, device)
            found = [best[0] for best in off.search.run()]
        texts = subwords.decode([best.tokens for best in found])
        for head, best, text, after in zip(some, found, texts, left, strict=True):
            yield HeadOff(head.use, head.layer, head.head, to_one_line(text), best.score, before - after)
        advance(len(some))


def _other_candidates(look: Look) -> list[tuple[int, int, str, float]]:
    """The most likely tokens that were not written, at each step: (step, id, piece, probability)."""
    result = []
    for place, step in enumerate(look.steps):
        never = {step.written.id, PAD, UNK, BOS}
        others = [each for each in step.candidates if each.id not in never][:ALTERNATIVES]
        result += [(place, each.id, each.piece, each.probability) for each in others]
    return result


def _alternatives(artifact: Artifact, look: Look, config: SearchConfig, advance: Callable[[int], None]) -> Iterator[Alternative]:
    """Translations if another token is chosen: the search continues after it."""
    model, subwords = artifact.model, artifact.tokenizer.target
    device = next(model.parameters()).device
    source, written = [token.id for token in look.source], [token.id for token in look.tgt_out]
    others = _other_candidates(look)
    for start in range(0, len(others), BATCH_SIZE):
        some = others[start : start + BATCH_SIZE]
        prefixes = [[*written[:place], token] for place, token, _, _ in some]
        found = search(model, [source] * len(some), config, device, prefixes)
        texts = subwords.decode([best[0].tokens for best in found])
        for other, best, text in zip(some, found, texts, strict=True):
            yield Alternative(*other, to_one_line(text), best[0].score)
        advance(len(some))
