"""The result of a look into a model: typed and immutable."""

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
    "continued": "kept in the beam",
    "crowded out": "was in the beam, but continuations of other branches took every place",
    "fell out": "pruned: not among the best of its step",
    "ended": "finished, but another translation scored better",
    "ended too low": "would have finished here, but was not among the best of its step",
    "overtaken": "unfinished when it could no longer win",
    "length limit": "unfinished at the length limit",
}
"""What happened to a branch of beam search."""

Fate = Literal[
    "chosen", "continued", "crowded out", "fell out", "ended", "ended too low", "overtaken", "length limit"
]  # fmt: skip


@dataclass(frozen=True)
class Token:
    """One subword as sentencepiece writes it, with `▁` where a word starts, and the word it belongs to."""

    id: int
    piece: str
    word: int
    """Counted from 0 on each side; −1 for `<s>`, `</s>` and a space that belongs to no word."""


@dataclass(frozen=True)
class Candidate:
    """A possible next token."""

    id: int
    piece: str
    probability: float


@dataclass(frozen=True)
class Lens:
    """The prediction if a decoder layer were the last (logit lens)."""

    probability: float
    """Of the token that is finally written."""
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True)
class Step:
    """One position of the decoder: the token it reads (shifted right), the token it writes, and other candidates."""

    read: Token
    written: Token
    probability: float
    rank: int
    """1 if no token was more likely."""
    candidates: tuple[Candidate, ...]
    lens: tuple[Lens, ...]
    """One for each decoder layer whose output can be used for a prediction; the last equals the prediction."""


@dataclass(frozen=True)
class Branch:
    """One partial translation in beam search: the tokens of its parent and one more."""

    parent: int
    """Index of the branch it continues; −1 at the first token."""
    step: int
    """How many tokens it has."""
    id: int
    piece: str
    total: float
    """Log-probability of all its tokens."""
    score: float
    """`total` divided by the length penalty."""
    fate: Fate
    best: bool
    """Whether it is a prefix of the best translation."""


@dataclass(frozen=True)
class HeadOff:
    """The translation with one head turned off: its weights are 0, so it adds nothing."""

    use: Use
    layer: int
    head: int
    translation: str
    score: float
    lost: float
    """How much the log-probability of the original translation falls."""


@dataclass(frozen=True)
class Alternative:
    """The translation if another token is chosen at a step."""

    step: int
    """Index of the step, from 0."""
    id: int
    piece: str
    probability: float
    translation: str
    score: float


@dataclass(frozen=True)
class Neighbour:
    """A token of the vocabulary whose embedding points in a similar direction."""

    piece: str
    cosine: float


@dataclass(frozen=True, eq=False)
class Space:
    """Embeddings of tokens and positions before any attention, and of tokens after the encoder."""

    positions: Numbers | None  # P D
    source: Numbers  # S S, cosines of source embeddings
    target: Numbers  # T T, cosines of target embeddings
    across: Numbers | None  # T S, if both sides share one embedding matrix
    memory: Numbers  # S S, cosines of the encoder's outputs
    source_neighbours: tuple[tuple[Neighbour, ...], ...]
    target_neighbours: tuple[tuple[Neighbour, ...], ...]


@dataclass(frozen=True)
class Facts:
    """Facts of the model and of the search."""

    kind: str
    encoder_layers: int
    decoder_layers: int
    parameters: int
    d_model: int
    source_lang: str
    target_lang: str
    window: int
    """Width of restricted self-attention; 0 = not restricted."""
    beam_size: int
    length_penalty: float


@dataclass(frozen=True, eq=False)
class Look:
    """One sentence followed through a model. Arrays are read-only; S source tokens, T decoder positions."""

    text: str
    translation: str
    forced: bool
    """Whether the translation was given instead of found by the model."""
    own: str
    """The model's own translation; the same as `translation` unless that was given."""
    score: float
    log_probability: float
    finished: bool
    """Whether the model's own translation ended before the length limit."""
    source: tuple[Token, ...]  # S, ending with `</s>`
    steps: tuple[Step, ...]  # T
    encoder: Numbers  # L H S S
    decoder: Numbers  # L H T T
    cross: Numbers  # L H T S
    beam: tuple[Branch, ...]
    saliency_source: Numbers  # T S, gradient × input for the log-probability of each written token
    saliency_target: Numbers  # T T, the same for the tokens that the decoder reads
    space: Space
    facts: Facts
    heads_off: tuple[HeadOff, ...] = ()
    alternatives: tuple[Alternative, ...] = ()

    @property
    def tgt_in(self) -> tuple[Token, ...]:
        """What the decoder reads: the output shifted right, after `<s>`. [paper 3.1]"""
        return tuple(step.read for step in self.steps)

    @property
    def tgt_out(self) -> tuple[Token, ...]:
        """What the decoder writes."""
        return tuple(step.written for step in self.steps)

    def attention(self, use: Use) -> Numbers:
        """The weights of one use, `L H rows columns`; no layers if the model has no such attention."""
        return {"encoder": self.encoder, "decoder": self.decoder, "cross": self.cross}[use]

    @property
    def remark(self) -> str:
        """What a model other than the Transformer lacks, for every kind of output; empty if nothing."""
        return describe_lack(self.facts.kind.lower(), bool(self.cross.size), bool(self.encoder.size))

    def mask(self, use: Use) -> NDArray[np.bool_]:
        """Which cells of a use may attend: True, as in every mask."""
        rows, columns = self.attention(use).shape[-2:]
        distance = np.arange(rows)[:, None] - np.arange(columns)
        allowed = np.ones((rows, columns), dtype=bool)
        if use == "decoder":
            allowed &= distance >= 0
        if use != "cross" and self.facts.window:
            allowed &= abs(distance) <= self.facts.window // 2
        return allowed

    def labels(self, use: Use) -> tuple[tuple[Token, ...], tuple[Token, ...]]:
        """The tokens of the rows, which attend, and of the columns, which are attended to.

        A row of encoder-decoder attention is labelled with the token it writes, of self-attention with the token it reads.
        """
        if use == "cross":
            return self.tgt_out, self.source
        return (self.source, self.source) if use == "encoder" else (self.tgt_in, self.tgt_in)

    def __repr__(self) -> str:
        return f"<Look {self.text!r} → {self.translation!r}, score {self.score:.4f}>"

    def _repr_html_(self) -> str:
        """In a notebook: the whole page in a frame."""
        from undivided.look.html import render_frame

        return render_frame(self)


def to_readonly_array(tensor: Tensor) -> Numbers:
    """A tensor as a read-only array."""
    array = tensor.detach().float().cpu().numpy().copy()
    array.setflags(write=False)
    return array


def to_plain_values(value: Any, digits: int = 6) -> Any:
    """A result as plain values for JSON, numbers rounded to `digits` decimals."""
    if dataclasses.is_dataclass(value):
        return {item.name: to_plain_values(getattr(value, item.name), digits) for item in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return np.round(value.astype(np.float64), digits).tolist()
    if isinstance(value, tuple | list):
        return [to_plain_values(each, digits) for each in value]
    return round(value, digits) if isinstance(value, float) else value


def readable_piece(piece: str) -> str:
    """A subword for people: without `▁` at the start of a word, with `·` before it inside a word; punctuation as it is."""
    if piece.startswith("▁"):
        return piece[1:] or "␣"
    return f"·{piece}" if piece[:1].isalnum() or unicodedata.category(piece[:1] or " ").startswith("M") else piece


def describe_lack(kind: str, attends: bool, in_encoder: bool) -> str:
    """What a model lacks that has no attention to the source, or none within it; empty if nothing."""
    if not attends:
        return "This model has no attention: its decoder knows the source only by the encoder's final state."
    if not in_encoder:
        return f"This model has encoder-decoder attention only: {kind} layers take the place of a Transformer's self-attention."
    return ""
