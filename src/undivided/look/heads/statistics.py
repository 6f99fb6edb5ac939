"""Statistics of each head over a corpus: where its attention goes, and how well it aligns words."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from undivided.artifact import Artifact
from undivided.data.batches import make_batch
from undivided.look.capture import Recording, record_pass, to_tokens
from undivided.look.heads.aligner import Link, Links
from undivided.look.result import Numbers, Token, Use

SHARES = ("previous", "next", "same_word", "punctuation", "alignment")

Mode = str
"""Whether a row of encoder-decoder attention aligns the word that its position `writes`, or the word that it `reads`."""

MODES: tuple[Mode, ...] = ("writes", "reads")


@dataclass
class Tally:
    """Attention of one use, summed over rows, `L H`, for each kind of target, and the number of rows."""

    sums: dict[str, np.ndarray] = field(default_factory=dict)
    rows: dict[str, float] = field(default_factory=dict)

    def add(self, name: str, values: np.ndarray) -> None:
        """Add rows `L H N`."""
        if values.shape[-1]:
            self.sums[name] = self.sums.get(name, 0.0) + values.sum(axis=-1, dtype=np.float64)
            self.rows[name] = self.rows.get(name, 0) + values.shape[-1]

    def mean(self, name: str, layer: int, head: int) -> float | None:
        """The mean over rows; None if no row could have such a target."""
        return float(self.sums[name][layer, head] / self.rows[name]) if name in self.sums else None


class HeadStatistics:
    """Statistics of every head, added up pair by pair."""

    def __init__(self, artifact: Artifact) -> None:
        self.artifact = artifact
        self.device = next(artifact.model.parameters()).device
        self.tallies: dict[Use, Tally] = {"encoder": Tally(), "decoder": Tally(), "cross": Tally()}
        self.matrices: dict[Mode, list[Numbers]] = {mode: [] for mode in MODES}
        """Of each pair, `L H J I`: how much each target word J attends to each source word I."""

    def add_pair(self, source: str, target: str, links: Links) -> None:
        """Add one pair, by a teacher-forced pass."""
        tokenizer = self.artifact.tokenizer
        src, tgt = tokenizer.source.encode([source])[0], tokenizer.target.encode([target])[0]
        batch = make_batch([src], [tgt]).to(self.device)
        with torch.inference_mode():
            recording = record_pass(self.artifact.model, batch)
        left, right = to_tokens(tokenizer.source, src), to_tokens(tokenizer.target, tgt)
        read = to_tokens(tokenizer.target, batch.tgt_in[0].tolist())
        self._add_self_attention(recording, "encoder", left, causal=False)
        self._add_self_attention(recording, "decoder", read, causal=True)
        self._add_cross_attention(recording.attention("cross", len(tgt), len(src)), left, right, read, links)

    def _add_self_attention(self, recording: Recording, use: Use, row: Sequence[Token], *, causal: bool) -> None:
        """Where self-attention goes: previous and next token, same word."""
        weights, tally = recording.attention(use, len(row), len(row)), self.tallies[use]
        if not weights.size:
            return
        tally.add("previous", weights.diagonal(-1, 2, 3))
        if not causal:
            tally.add("next", weights.diagonal(1, 2, 3))
        word = np.array([token.word if token.word >= 0 else -2 - place for place, token in enumerate(row)])
        tally.add("same_word", (weights * (word[:, None] == word)).sum(axis=-1))
        self._add_common(tally, weights, row, causal=causal)

    def _add_cross_attention(
        self, weights: Numbers, left: Sequence[Token], right: Sequence[Token], read: Sequence[Token], links: Links
    ) -> None:
        """Where encoder-decoder attention goes: same subword, aligned words."""
        tally = self.tallies["cross"]
        if not weights.size:
            return
        same_piece = np.array([[token.piece == other.piece for other in left] for token in right])
        tally.add("same_word", (weights * same_piece)[:, :, same_piece.any(axis=1)].sum(axis=-1))
        self._add_common(tally, weights, left, causal=False)
        for mode, rows in zip(MODES, (right, read), strict=True):
            by_word = word_attention(weights, rows, left)
            self.matrices[mode].append(by_word)
            linked = np.zeros(by_word.shape[2:], dtype=bool)
            for source, target in links.sure:
                linked[target, source] = True
            tally.add(f"alignment {mode}", (by_word * linked)[:, :, linked.any(axis=1)].sum(axis=-1))

    def _add_common(self, tally: Tally, weights: Numbers, columns: Sequence[Token], *, causal: bool) -> None:
        """For every use: punctuation, and entropy in bits and as a share of the largest possible."""
        sign = np.array([is_punctuation(token) for token in columns])
        tally.add("punctuation", weights[..., sign].sum(axis=-1))
        entropy = -(weights * np.log2(np.maximum(weights, 1e-30))).sum(axis=-1)
        tally.add("entropy", entropy)
        visible = np.arange(1, entropy.shape[-1] + 1) if causal else np.full(entropy.shape[-1], weights.shape[-1])
        tally.add("spread", (entropy / np.log2(np.maximum(visible, 2)))[:, :, visible > 1])


def is_punctuation(token: Token) -> bool:
    """Whether a token is punctuation, `<s>` or `</s>`."""
    if token.word < 0:
        return True
    text = token.piece.replace("▁", "")
    return bool(text) and all(unicodedata.category(letter)[0] in "PS" for letter in text) and not text.startswith("<0x")


def word_attention(weights: Numbers, rows: Sequence[Token], columns: Sequence[Token]) -> Numbers:
    """`L H J I`: attention of target words, the mean over their tokens, to source words, the sum over theirs."""
    take = _membership(rows)
    take = take / np.maximum(take.sum(axis=1, keepdims=True), 1)
    return np.einsum("jt,lhts,is->lhji", take, weights, _membership(columns)).astype(np.float32)


def _membership(row: Sequence[Token]) -> np.ndarray:
    """`words × tokens`, 1 where a token belongs to a word."""
    words = max((token.word for token in row), default=-1) + 1
    return np.array([[token.word == word for token in row] for word in range(words)], dtype=np.float64).reshape(words, len(row))


def strongest_links(matrix: np.ndarray) -> frozenset[Link]:
    """Each target word linked to the source word it attends to most, from `J I`."""
    if not matrix.size:
        return frozenset()
    return frozenset((int(source), target) for target, source in enumerate(matrix.argmax(axis=1)))
