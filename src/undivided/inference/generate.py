"""`Generator`: a prompt → text that continues it, or images of what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np
import torch
from torch import Tensor

from undivided.artifact import SingleStackArtifact, command_for, open_single_stack
from undivided.artifact.demand import BATCH_ROWS, check_demand
from undivided.config import DataConfig, SearchConfig
from undivided.config.settings import suggest
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD
from undivided.data.subwords import Subwords
from undivided.inference.hypothesis import NotFinite, to_perplexity
from undivided.inference.search import continue_prompts, draw_tokens, uniform_numbers
from undivided.inference.search_settings import SearchChanges, change_search, check_n_best
from undivided.models import DecoderOnly, Drawing


class Continuation(NamedTuple):
    """A text, prompt included."""

    text: str
    score: float
    finished: bool
    """Whether it ended by itself; if not, it was cut at the length limit or at the end of the context."""


class Generator:
    """A model folder of a decoder-only or a drawing model."""

    def __init__(
        self, model: str | Path | SingleStackArtifact, device: str = "auto", threads: int = 0, trust: bool = False
    ) -> None:
        self.artifact, self.device = open_single_stack(model, device, threads, trust)
        self._checked = None if trust or isinstance(model, SingleStackArtifact) else model
        kind = self.artifact.recipe.model.kind
        if not isinstance(self.artifact.model, DecoderOnly | Drawing):
            raise InputError(f"{model}: its kind ({kind}) generates nothing; use it with: undivided {command_for(kind)}")
        self.model: DecoderOnly | Drawing = self.artifact.model

    @property
    def draws(self) -> bool:
        """Whether it generates images, not text."""
        return isinstance(self.model, Drawing)

    def search_config(self, **changes: Unpack[SearchChanges]) -> SearchConfig:
        """The model's own search settings with changes."""
        config = change_search(self.artifact.recipe.search, **changes)
        if not self.draws:
            check_n_best(config)
        if self._checked is not None:
            vocabulary = len(self.artifact.text.source)
            check_demand(self._checked, self.artifact.recipe, vocabulary, config, 1 if changes else BATCH_ROWS)
        return config

    def text(self, prompts: Sequence[str], first: int = 0, **changes: Unpack[SearchChanges]) -> list[list[Continuation]]:
        """The n best, or sampled, continuations of each prompt; `first` is the number of prompts before these."""
        config, model = self.search_config(**changes), self.model
        if not isinstance(model, DecoderOnly):
            raise InputError("this model draws images; name a file for the image with -o")
        subwords, context = self.artifact.text.source, self.artifact.recipe.data.max_length
        rows = [row[:-1] for row in subwords.encode(prompts)]
        over = [f"prompt {number} has {len(row):,}" for number, row in enumerate(rows, first + 1) if len(row) >= context]
        if over:
            raise InputError(f"{'; '.join(over)} subwords, but the context of this model has {context:,}; shorten the prompt")
        size = max(1, BATCH_ROWS // (config.n_best if config.sample else config.beam_size))
        found = []
        for at in range(0, len(rows), size):
            some, keys = rows[at : at + size], range(first + at, first + len(rows))[:size]
            limits = torch.tensor([min(context, len(row) + config.max_extra) for row in some], device=self.device)
            found += continue_prompts(model, model.start(len(some)), some, config, limits, keys)
        return [[Continuation(subwords.decode([each.tokens])[0], each.score, each.finished) for each in row] for row in found]

    def perplexity(self, lines: Sequence[str]) -> float:
        """Perplexity of a text, for each of its subwords and ends of lines."""
        if not isinstance(self.model, DecoderOnly):
            raise InputError("this model draws images; it has no perplexity of a text")
        rows = [np.array(row) for row in self.artifact.text.source.encode([line for line in lines if line.strip()])]
        if not rows:
            raise InputError("nothing to score: there is no text")
        return stream_perplexity(self.model, rows, self.artifact.recipe.data, self.device)

    def images(self, texts: Sequence[str], **changes: Unpack[SearchChanges]) -> np.ndarray:
        """Images `N C Y X` as bytes, `n_best` sampled for each text; they depend on the seed alone."""
        config, model = self.search_config(**changes), self.model
        if not isinstance(model, Drawing):
            raise InputError("this model generates text; it draws no images")
        known = self.artifact.recipe.data.classes
        for name in texts:
            if known and name not in known:
                raise InputError(
                    f"{name!r} is not a class that it learned to draw{suggest(name, known)}; it knows: {', '.join(known)}"
                )
        given = captions(texts, self.artifact.text.source, self.artifact.recipe.data.max_length)
        given = given.repeat_interleave(config.n_best, dim=0).to(self.device)
        with torch.inference_mode():
            codes = _sample_codes(model, given, config)
            pixels = model.codebook.draw(codes).clamp(0, 1)
        return (pixels * 255).round().byte().cpu().numpy()


def start_lines(tokens: Tensor) -> Tensor:
    """Tokens as a decoder-only model reads them: the end of a line is the start of the next."""
    return torch.where(tokens == EOS, BOS, tokens)


def to_streams(rows: Sequence[np.ndarray], config: DataConfig) -> list[np.ndarray]:
    """Lines of ids, each closed by `</s>`, as one stream (`data.rows: stream`) or as one for each line."""
    return [np.concatenate(rows)] if config.rows == "stream" else list(rows)


def stream_perplexity(model: DecoderOnly, rows: Sequence[np.ndarray], config: DataConfig, device: torch.device) -> float:
    """Perplexity of lines of ids, for each token."""
    total = sum(stream_likelihood(model, text, config.max_length, device) for text in to_streams(rows, config))
    return to_perplexity(total, sum(map(len, rows)))


def stream_likelihood(model: DecoderOnly, stream: np.ndarray, context: int, device: torch.device) -> float:
    """Log-likelihood of a stream of ids, each token predicted once; all but the first have at least half a context before them."""
    half, total = max(1, context // 2), 0.0
    ids = torch.from_numpy(stream.astype(np.int64))
    with torch.inference_mode():
        for start in range(0, max(1, len(ids) - half), half):
            row = ids[start : start + context].to(device)
            scores = token_scores(model, row, int(ids[start - 1]) if start else EOS)
            total += float(scores.sum() if start == 0 else scores[context - half :].sum())
    return total


def token_scores(model: DecoderOnly, row: Tensor, before: int = EOS) -> Tensor:
    """Log-probability of each token of a row `T` after those before it; `before` comes before the first."""
    read = start_lines(torch.cat([row.new_tensor([before]), row[:-1]]))
    logits = model.logits(model(read[None])[0]).float()
    return logits.log_softmax(dim=-1).gather(1, row[:, None])[:, 0]


def captions(names: Sequence[str], subwords: Subwords, longest: int) -> Tensor:
    """Texts as ids `B L`, each closed by `</s>` and padded; to the model `<pad>` is a token like any other."""
    rows = subwords.encode(names)
    over = sorted({name for name, row in zip(names, rows, strict=True) if len(row) > longest})
    if over:
        shown = ", ".join(repr(name) for name in over[:3])
        raise InputError(f"longer than the {longest} subwords that this model reads (data.max_length): {shown}")
    table = torch.full((len(rows), longest), PAD)
    for number, row in enumerate(rows):
        table[number, : len(row)] = torch.tensor(row)
    return table


def _sample_codes(model: Drawing, texts: Tensor, config: SearchConfig) -> Tensor:
    """Sample codes `B N` one after the other, after texts `B L`."""
    places = model.config.n_patches
    chance = uniform_numbers(len(texts) * places, config.seed).view(len(texts), 1, places).to(texts.device)
    state = model.decoder.start(len(texts))
    logits = model.decoder.step(state, torch.full_like(texts[:, :1], BOS))
    for token in texts.split(1, dim=1):
        logits = model.decoder.step(state, token)
    codes: list[Tensor] = []
    while True:
        scores = logits[:, :, model.vocabulary :].float().log_softmax(dim=-1)
        if bool(scores.isnan().any()):
            raise NotFinite
        codes.append(draw_tokens(scores, chance[:, :, len(codes)], config))
        if len(codes) == places:
            return torch.cat(codes, dim=1)
        logits = model.decoder.step(state, codes[-1] + model.vocabulary)
