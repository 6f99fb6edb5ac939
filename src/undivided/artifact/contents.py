"""A trained model in memory: the recipe, the tokenizer, the weights and what was measured.

Importing this must not import torch, which takes longer than a short translation by CTranslate2.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.config import Recipe
from undivided.data.shortlist import Shortlist
from undivided.data.subwords import Tokenizer

if TYPE_CHECKING:
    import torch

    from undivided.models import DraftDecoder, Seq2Seq, SingleStack


@dataclass(eq=False)
class Artifact:
    """A trained translator with everything it needs to turn text into text."""

    recipe: Recipe
    tokenizer: Tokenizer
    model: Seq2Seq = field(repr=False)
    facts: dict[str, Any] = field(default_factory=dict)
    """What was measured: scores with signatures, digests of the data, cost of training."""
    shortlist: Shortlist | None = None
    """The likely target subwords of each source subword; older model folders have none."""
    seal: str = ""
    """sha256 of the manifest of the folder that it was read from."""
    untrusted: tuple[tuple[str | Path, Recipe], ...] = ()
    """Folders of an ensemble with their settings, which may ask for too much memory."""
    draft: DraftDecoder | None = field(default=None, repr=False)
    """What proposes tokens to the model; most model folders have none."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.model.parameters()).device


class LazyArtifact(Artifact):
    """A translator whose weights are read when they are first needed: CTranslate2 has its own."""

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Tokenizer,
        read: Callable[[], Seq2Seq],
        facts: dict[str, Any],
        shortlist: Shortlist | None,
        seal: str,
        read_draft: Callable[[], DraftDecoder] | None = None,
    ) -> None:
        self.recipe, self.tokenizer, self.facts, self.shortlist, self.seal = recipe, tokenizer, facts, shortlist, seal
        self._read, self._read_draft, self._lock = read, read_draft, threading.Lock()
        self._model: Seq2Seq | None = None
        self._draft: DraftDecoder | None = None

    @property
    def model(self) -> Seq2Seq:  # type: ignore[override]
        """The model, read at the first use."""
        with self._lock:
            if self._model is None:
                self._model = self._read()
            return self._model

    @property
    def draft(self) -> DraftDecoder | None:  # type: ignore[override]
        """The draft decoder, if the folder has one, read at the first use."""
        with self._lock:
            if self._draft is None and self._read_draft is not None:
                self._draft = self._read_draft()
            return self._draft


@dataclass
class SingleStackArtifact:
    """A trained single-stack model (GPT, BERT, ViT, drawing); one that reads only images has no tokenizer."""

    recipe: Recipe
    tokenizer: Tokenizer | None
    model: SingleStack
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> Tokenizer:
        """The tokenizer of a model that has one."""
        if self.tokenizer is None:
            raise TypeError(f"{self.recipe.model.kind} models have no text")
        return self.tokenizer
