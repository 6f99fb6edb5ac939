"""Greedy search with drafts in PyTorch: the model and its draft decoder read rows of several tokens. [paper 7]"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from undivided.config import SearchConfig
from undivided.core.ids import BOS, PAD, UNK
from undivided.inference.drafts import DraftCount, DraftSearch
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.search import encode_sources
from undivided.models import DraftDecoder, Transformer
from undivided.models.draft import SlotDecoder, slot_decoders


class TorchReader:
    """A decoder of a model that reads tokens at any positions, between its embeddings and its output layer."""

    def __init__(self, model: Transformer, decoder: SlotDecoder, device: torch.device) -> None:
        self.model, self.decoder, self.device = model, decoder, device

    def read(
        self, sentences: Sequence[int], starts: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> tuple[list[int], Sequence[float]]:
        """Tokens of some sentences → after each the most likely next one and its log-probability."""
        longest = max(map(len, rows))
        # Shorter rows repeat their last token where it stands: it is read again, and counts once.
        tokens = torch.tensor([[*row, *[row[-1]] * (longest - len(row))] for row in rows], device=self.device)
        places = [
            min(start + place, start + len(row) - 1) for start, row in zip(starts, rows, strict=True) for place in range(longest)
        ]
        at = torch.tensor(places, device=self.device).view_as(tokens)
        states = self.decoder.read(self.model.target_embedding(tokens, at), torch.tensor(sentences, device=self.device), at)
        real = torch.tensor([place < len(row) for row in rows for place in range(longest)], device=self.device)
        scores = self.model.logits(states.flatten(0, 1)[real]).float().log_softmax(dim=-1)
        scores[:, [PAD, UNK, BOS]] = -math.inf
        best = scores.max(dim=-1)
        return best.indices.tolist(), best.values.tolist()


def search_with_drafts(
    model: Transformer,
    draft: DraftDecoder,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    device: torch.device,
    count: DraftCount,
) -> list[list[Hypothesis]]:
    """The greedy translation of each source."""
    with torch.inference_mode():
        memory, limits = encode_sources(model, sources, config, device)
        own, drafter = (TorchReader(model, each, device) for each in slot_decoders(model, draft, memory))
        return DraftSearch(own, drafter, limits.tolist(), config, count).run()
