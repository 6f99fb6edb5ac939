"""Parallel text: teacher-forced training, validation by real decoding. [paper 3.1, 5, 6.1]"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from undivided.artifact import Artifact, save_artifact
from undivided.core.console import Console, plural
from undivided.core.ids import PAD
from undivided.data.batches import BatchStream, PairBatch, load_batch
from undivided.data.shortlist import Shortlist
from undivided.data.store import SampledStore
from undivided.inference.score import bleu, bleu_by_length, perplexity
from undivided.inference.translator import Translator
from undivided.inference.verdicts import calibrate
from undivided.models import Seq2Seq, make_model
from undivided.nn.loss import consistent_loss, smoothed_loss
from undivided.training.alignment import LinkedPair, link_pairs, measure_alignment
from undivided.training.lines import measure_lines
from undivided.training.prepare import Prepared
from undivided.training.shortlists import load_or_learn_shortlist
from undivided.training.tasks.contract import BatchLoss, Validation


class TranslationTask:
    """From source to target sentences."""

    size_unit = "tokens"

    def __init__(self, prepared: Prepared, device: torch.device, console: Console) -> None:
        assert prepared.tokenizer is not None, "pairs are prepared with subwords"
        assert prepared.store is not None, "pairs are prepared as a token store"
        self.prepared, self.tokenizer, self.store, self.device = prepared, prepared.tokenizer, prepared.store, device
        self.recipe = recipe = prepared.recipe
        seed = recipe.train.seed
        self.texts = SampledStore(self.store, self.tokenizer, recipe.tokens, seed) if recipe.tokens.dropout else self.store
        self.stream = BatchStream(self.texts, recipe.batches, seed)
        self.epoch_tokens = self.store.target_tokens
        self.model = self.make_model()
        pairs = prepared.validation_pairs()
        self.usual: dict[str, float] = {}
        """What translations are usually like, as of the last validation."""
        self._linked: list[LinkedPair] | None = None
        self.valid = [pair.source for pair in pairs], [pair.target for pair in pairs]

    def __str__(self) -> str:
        return f"{plural(len(self.store), 'pair')}, {plural(self.epoch_tokens, 'target token')}"

    def load(self, draws: np.ndarray) -> PairBatch:
        """Some pairs as ids."""
        return load_batch(self.texts, draws)

    def loss(self, batch: PairBatch) -> BatchLoss:
        """Label-smoothed loss of predicting each target token from those before it. [paper 3.1, 5.4]"""
        tokens, padding = int((batch.tgt_out != PAD).sum()), not bool(batch.src_mask.all())
        batch, config = batch.to(self.device), self.recipe.train
        passed = batch.repeat() if config.consistency else batch
        memory = self.model.encode(passed.src, passed.src_mask if padding else None)
        states, weight = self.model.loss_factors(self.model.decode(memory, passed.tgt_in))
        if config.consistency:
            found = consistent_loss(states, weight, batch.tgt_out, config.label_smoothing, config.consistency)
        else:
            found = smoothed_loss(states, weight, batch.tgt_out, config.label_smoothing)
        return BatchLoss(*found, tokens)

    def measure(self) -> Validation | None:
        """BLEU of held-out pairs by real decoding, and their perplexity."""
        if not self.valid[0]:
            return None
        config = self.recipe.train
        sources, targets = (side[: config.validate_lines] for side in self.valid)
        translator = Translator(Artifact(self.recipe, self.tokenizer, self.model))
        results = list(translator.stream(sources, beam_size=config.validate_beam, n_best=1))
        self.usual = calibrate(results)
        outputs = [result.text for result in results]
        quality = bleu(outputs, targets, self.recipe.data.target_lang)
        lengths = [len(row) for row in self.tokenizer.source.encode(sources)]
        details = bleu_by_length(lengths, outputs, targets, self.recipe.data.target_lang)
        return Validation(quality, {"perplexity": perplexity(translator, *self.valid)}, details)

    def make_model(self) -> Seq2Seq:
        """A new model with random weights."""
        return make_model(self.recipe.model, len(self.tokenizer.source), len(self.tokenizer.target)).to(self.device)

    def use(self, model: nn.Module) -> None:
        """Measure and export this model from now on."""
        self.model = cast("Seq2Seq", model)

    def facts(self) -> dict[str, Any]:
        """The vocabulary, what training lines are like, which heads align words, and the digests of the corpora."""
        if self._linked is None:
            self._linked = link_pairs(self.store, self.tokenizer)
        alignment = measure_alignment(Artifact(self.recipe, self.tokenizer, self.model, {}, self._shortlist()), self._linked)
        lines = measure_lines(self.store, self.tokenizer.source, self.recipe.data.source_lang)
        usual = {"usual": self.usual} if self.usual else {}
        return {"vocabulary": len(self.tokenizer.target), **lines, **usual, **alignment, "data": self.prepared.data_digests()}

    def export(self, out: Path, facts: dict[str, Any]) -> None:
        """Write the model folder."""
        save_artifact(Artifact(self.recipe, self.tokenizer, self.model, facts, self._shortlist()), out)

    def _shortlist(self) -> Shortlist:
        return load_or_learn_shortlist(self.store, len(self.tokenizer.source), len(self.tokenizer.target))
