"""A draft decoder for a model: it learns what the model writes by greedy search. The model stays as it is. [paper 7]"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from undivided.artifact import load_artifact, save_artifact
from undivided.core.console import Console, plural
from undivided.core.ids import PAD
from undivided.data.batches import BatchStream, PairBatch, load_batch
from undivided.inference.score import Score
from undivided.inference.translator import Translator
from undivided.models import DraftDecoder, Transformer
from undivided.nn.loss import smoothed_loss
from undivided.training.prepare import Prepared
from undivided.training.tasks.contract import BatchLoss, Validation

PROPOSED, MEASURED = 4, 200
"""Tokens that are proposed at each step, and most texts that are translated, where drafts are measured."""


class DraftingTask:
    """From source to the model's own translation, by one decoder layer."""

    size_unit = "tokens"

    def __init__(self, prepared: Prepared, device: torch.device, console: Console) -> None:
        assert prepared.store is not None, "pairs are prepared as a token store"
        self.recipe, self.store, self.device = prepared.recipe, prepared.store, device
        self.teacher = load_artifact(self.recipe.train.start, device)
        assert isinstance(self.teacher.model, Transformer), "only a Transformer can have a draft decoder"
        self.whole = self.teacher.model.requires_grad_(False).eval()
        self.stream = BatchStream(self.store, self.recipe.batches, self.recipe.train.seed)
        self.epoch_tokens = self.store.target_tokens
        self.model = self.make_model()
        self.sources = [pair.source for pair in prepared.validation_pairs()][: min(MEASURED, self.recipe.train.validate_lines)]

    def __str__(self) -> str:
        return f"a draft decoder from {plural(len(self.store), 'translation')}, {plural(self.epoch_tokens, 'target token')}"

    def load(self, draws: np.ndarray) -> PairBatch:
        """Some pairs as ids."""
        return load_batch(self.store, draws)

    def loss(self, batch: PairBatch) -> BatchLoss:
        """Loss of predicting each token that the model wrote from those before it; the model's own weights have no gradient."""
        tokens, padding = int((batch.tgt_out != PAD).sum()), not bool(batch.src_mask.all())
        batch = batch.to(self.device)
        with torch.no_grad():
            memory = self.whole.encode(batch.src, batch.src_mask if padding else None)
        states, weight = self.whole.loss_factors(self.model.decode(self.whole, memory, batch.tgt_in))
        return BatchLoss(*smoothed_loss(states, weight, batch.tgt_out, self.recipe.train.label_smoothing), tokens)

    def measure(self) -> Validation | None:
        """Tokens for each step of the model, by real decoding with drafts."""
        if not self.sources:
            return None
        translator = Translator(dataclasses.replace(self.teacher, draft=self.model))
        for _ in translator.stream(self.sources, beam_size=1, n_best=1, sample=False, consensus=0, draft=PROPOSED):
            pass
        count = translator.engine.drafts
        assert count is not None, "there is a draft decoder"
        signature = f"draft:{PROPOSED}|texts:{len(self.sources)}"
        return Validation(Score("tokens per step", count.per_step, signature), {})

    def make_model(self) -> DraftDecoder:
        """A draft decoder that begins like the model's last layer."""
        model = DraftDecoder(self.recipe.model)
        model.begin_like(self.whole)
        return model.to(self.device)

    def use(self, model: nn.Module) -> None:
        """Measure and export this one from now on."""
        self.model = cast("DraftDecoder", model)

    def facts(self) -> dict[str, Any]:
        """Nothing: the model's facts are known."""
        return {}

    def export(self, out: Path, facts: dict[str, Any]) -> None:
        """Write the model folder again, with the draft decoder and what was measured of it."""
        kept = ("scores", "weights", "parameters", "steps", "target_tokens", "seconds", "device", "threads", "undivided")
        drafts = {name: facts[name] for name in kept}
        save_artifact(dataclasses.replace(self.teacher, facts=self.teacher.facts | {"drafts": drafts}, draft=self.model), out)
