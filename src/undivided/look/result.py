"""What was seen: the typed, frozen result of a look into a model."""

from __future__ import annotations

import dataclasses
import unicodedata
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Numbers = NDArray[np.float32]

Use = Literal["encoder", "decoder", "cross"]

USES: dict[Use, str] = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "encoder-decoder attention",
}
"""The three uses of attention. [paper 3.2.3]"""

FATES = {
    "chosen": "the translation",
    "continued": "went on",
    "crowded out": "was in the beam, but better continuations of others took all places",
    "fell out": "was not among the best of its step and fell out of the beam",
    "ended": "ended, but another ending scored better",
    "ended too low": "would have ended here, but was not among the best of its step",
    "overtaken": "was still going when it could no longer win",
    "length limit": "had not ended when the length limit was reached",
}
"""What becomes of a branch of beam search."""

Fate = Literal[
    "chosen", "continued", "crowded out", "fell out", "ended", "ended too low", "overtaken", "length limit"
]  # fmt: skip


@dataclass(frozen=True)
class Token:
    """One subword as the subword model writes it, `▁` where a word begins, and which word it is a part of."""

    id: int
    piece: str
    word: int
    """Counted from 0 on each side; −1 for `<s>`, `</s>` and a space that belongs to no word."""


@dataclass(frozen=True)
class Candidate:
    """A token that could come next."""

    id: int
    piece: str
    probability: float


@dataclass(frozen=True)
class Lens:
    """What the model would write if a decoder layer were its last."""

    probability: float
    """Of the token that was written in the end."""
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Step:
    """One position of the decoder: what it read (shifted right), what it wrote, and what else could have come."""

    read: Token
    written: Token
    probability: float
    rank: int
    """1 if nothing was likelier."""
    candidates: tuple[Candidate, ...]
    lens: tuple[Lens, ...]
    """One for each decoder layer whose output can be read as a state; the last equals the prediction."""


@dataclass(frozen=True)
class Branch:
    """One partial translation that beam search considered: its parent's tokens and one more."""

    parent: int
    """Place of the branch it continues; −1 at the first token."""
    step: int
    """How many tokens it has."""
    id: int
    piece: str
    total: float
    """Log-probability of all its tokens."""
    score: float
    """The same over the length penalty."""
    fate: Fate
    best: bool
    """Whether the best translation has it as a part."""


@dataclass(frozen=True)
class HeadOff:
    """What becomes of the translation without one head: its weights are 0, and so is what it adds."""

    use: Use
    layer: int
    head: int
    translation: str
    score: float
    lost: float
    """By how much the log-probability of the original translation falls."""


@dataclass(frozen=True)
class Alternative:
    """What becomes of the translation if another token came at a step."""

    step: int
    """Place among the steps, from 0."""
    id: int
    piece: str
    probability: float
    translation: str
    score: float


@dataclass(frozen=True)
class Neighbour:
    """A token of the vocabulary whose vector points in nearly the same direction."""

    piece: str
    cosine: float


@dataclass(frozen=True, eq=False)
class Space:
    """Where the model puts tokens and positions before it attends to anything, and where the encoder moves them."""

    positions: Numbers | None  # P D
    source: Numbers  # S S, cosines of source embeddings
    target: Numbers  # T T, cosines of target embeddings
    across: Numbers | None  # T S, where both sides have one matrix
    memory: Numbers  # S S, cosines of the encoder's outputs
    source_neighbours: tuple[tuple[Neighbour, ...], ...]
    target_neighbours: tuple[tuple[Neighbour, ...], ...]


@dataclass(frozen=True)
class Facts:
    """Which model was looked into, and how it searched."""

    kind: str
    encoder_layers: int
    decoder_layers: int
    parameters: int
    d_model: int
    source_lang: str
    target_lang: str
    window: int
    """0 where attention is not restricted to a neighbourhood."""
    beam_size: int
    length_penalty: float


@dataclass(frozen=True, eq=False)
class Look:
    """One sentence seen on its way through a model. Arrays are read-only; S source tokens, T decoder positions."""

    text: str
    translation: str
    forced: bool
    """Whether the translation was given and not found by the model."""
    own: str
    """The model's own translation; the same unless the translation was given."""
    score: float
    log_probability: float
    finished: bool
    """Whether the model's own translation ended by itself."""
    source: tuple[Token, ...]  # S, closed by `</s>`
    steps: tuple[Step, ...]  # T
    encoder: Numbers  # L H S S
    decoder: Numbers  # L H T T
    cross: Numbers  # L H T S
    beam: tuple[Branch, ...]
    saliency_source: Numbers  # T S, gradient × input of each written token's log-probability
    saliency_target: Numbers  # T T, the same over what the decoder had read
    space: Space
    facts: Facts
    heads_off: tuple[HeadOff, ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    @property
    def tgt_in(self) -> tuple[Token, ...]:
        """What the decoder reads: the output shifted right behind `<s>`. [paper 3.1]"""
        return tuple(step.read for step in self.steps)

    @property
    def tgt_out(self) -> tuple[Token, ...]:
        """What the decoder writes."""
        return tuple(step.written for step in self.steps)

    def attention(self, use: Use) -> Numbers:
        """The weights of one use, `L H rows columns`; a model without that use has no layers of it."""
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[use]

    @property
    def remark(self) -> str:
        """What a model other than the Transformer lacks, said once for all that show a look; empty if nothing."""
        if not self.cross.size:
            return "This model has no attention: all that its decoder knows of the source is the encoder's final state."
        if not self.encoder.size:
            instead = {"Recurrent": "recurrences", "Convolutional": "convolutions"}.get(self.facts.kind, "other layers")
            return f"This model attends from decoder to encoder alone: {instead} stand where a Transformer has self-attention."
        return ""

    def mask(self, use: Use) -> NDArray[np.bool_]:
        """Which cells of a use may attend: True as everywhere."""
        rows, columns = self.attention(use).shape[-2:]
        distance = np.arange(rows)[:, None] - np.arange(columns)
        allowed = np.ones((rows, columns), dtype=bool)
        if use == "decoder":
            allowed &= distance >= 0
        if use != "cross" and self.facts.window:
            allowed &= abs(distance) <= self.facts.window // 2
        return allowed

    def labels(self, use: Use) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """The tokens that look (rows) and the tokens that are looked at (columns).

        A row of encoder-decoder attention is named by the token that its position writes, of self-attention by the one it reads.
        """
        if use == "cross":
            return self.tgt_out, self.source
        return (self.source, self.source) if use == "encoder" else (self.tgt_in, self.tgt_in)

    def _repr_html_(self) -> str:
        """In a notebook: the whole page, in a frame of its own."""
        from undivided.look.html import frame

        return frame(self)


def frozen(tensor: Tensor) -> Numbers:
    """A tensor as an array that nobody can change."""
    array = tensor.detach().float().cpu().numpy().copy()
    array.setflags(write=False)
    return array


def plain(value: Any, digits: int = 6) -> Any:
    """A result as plain values for JSON; numbers have so many digits behind the point."""
    if dataclasses.is_dataclass(value):
        return {item.name: plain(getattr(value, item.name), digits) for item in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return np.round(value.astype(np.float64), digits).tolist()
    if isinstance(value, tuple | list):
        return [plain(each, digits) for each in value]
    return round(value, digits) if isinstance(value, float) else value


def readable(piece: str) -> str:
    """A subword for people: without `▁` where it begins a word, behind `·` where it goes on with one; signs as they are."""
    if piece.startswith("▁"):
        return piece[1:] or "␣"
    return f"·{piece}" if piece[:1].isalnum() or unicodedata.category(piece[:1] or " ").startswith("M") else piece
