"""Word alignment from the attention heads that a model's training found to align best: where inline markup belongs.

Importing this must not import torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from undivided.artifact import Artifact
from undivided.data.shortlist import Shortlist
from undivided.data.subwords import Subwords, Tokenizer
from undivided.formats.markup import Link, Span, find_words
from undivided.formats.protection import Protected, choose_symbols, find_agreed, replace_spans
from undivided.inference.engines.contract import batch_by_length

if TYPE_CHECKING:
    from torch import Tensor, nn

MODES = ("writes", "reads")

MOST_ERROR = 0.6
"""Heads whose links disagree more than this with IBM model 1 do not align."""

LEAST_WEIGHT = 0.02
"""Links that are less sure are left out."""

ATTENTION_FLOOR, LEXICAL_FLOOR, TENSION = 0.1, 0.002, 4.0
"""What a pair of tokens has at least of attention, and of likelihood as translations; how much is expected near the diagonal."""


class AligningHead(NamedTuple):
    """A head of encoder-decoder attention that aligns words."""

    layer: int
    head: int
    mode: str
    """Whether a row of its attention is about the word that the position `writes`, or about the one that it `reads`."""


def aligning_heads(facts: Mapping[str, Any]) -> tuple[AligningHead, ...]:
    """The heads that a model folder names for alignment; none where it names none, or none that are good."""
    found = facts.get("alignment")
    error, heads = (found.get("error"), found.get("heads")) if isinstance(found, Mapping) else (None, None)
    if not isinstance(error, float) or not isinstance(heads, list) or error > MOST_ERROR:
        return ()
    given = [AligningHead(*each) for each in heads if isinstance(each, list) and len(each) == 3]
    return tuple(each for each in given if all(type(part) is int and part >= 0 for part in each[:2]) and each.mode in MODES)


def every_head(artifact: Artifact) -> AttentionAligner:
    """An aligner by the mean of all heads, for models of which nobody knows which heads align."""
    model = artifact.recipe.model
    heads = [AligningHead(layer, head, "writes") for layer in range(model.decoder_layers) for head in range(model.n_heads)]
    return AttentionAligner(artifact, heads)


def make_aligner(artifact: Artifact) -> AttentionAligner | None:
    """The aligner of a model; None where no head of it is known to align."""
    heads = aligning_heads(artifact.facts)
    return AttentionAligner(artifact, heads) if heads else None


class Side(NamedTuple):
    """A text as the model sees it: ids without the end, and the characters that each stands for."""

    ids: list[int]
    places: list[tuple[int, int]]
    words: list[Span]

    def membership(self, length: int) -> np.ndarray:
        """`words × tokens`, 1 where a token shares characters with a word."""
        result = np.zeros((len(self.words), length))
        for number, word in enumerate(self.words):
            for place, (start, end) in enumerate(self.places):
                result[number, place] = start < word.end and word.start < end
        return result


class AttentionAligner:
    """Pairs of sentences → links between their words; None for a pair that is too long for the model, or has no words."""

    def __init__(self, artifact: Artifact, heads: Sequence[AligningHead]) -> None:
        self.artifact, self.heads = artifact, tuple(heads)

    def __call__(self, pairs: Sequence[tuple[str, str]]) -> list[list[Link] | None]:
        """The links of each pair."""
        sides = [encode_sides(self.artifact.tokenizer, *pair) for pair in pairs]
        longest = self.artifact.recipe.data.max_length
        links: list[list[Link] | None] = [None] * len(pairs)
        usable = [place for place, both in enumerate(sides) if all(each.words and len(each.ids) < longest for each in both)]
        for batch in batch_by_length([max(map(len, (each.ids for each in sides[place]))) for place in usable], beams=4):
            chosen = [usable[number] for number in batch]
            for place, layers in zip(chosen, cross_attention(self.artifact, [sides[place] for place in chosen]), strict=True):
                links[place] = find_links(weigh_tokens(self.artifact, join_heads(layers, self.heads), *sides[place]), *sides[place])
        return links


def encode_sides(tokenizer: Tokenizer, source: str, target: str) -> tuple[Side, Side]:
    """Both texts of a pair, with symbols for what is protected in both."""
    symbols = choose_symbols(source, tokenizer.symbols) if tokenizer.symbols else []
    named = list(zip(find_agreed(source, target), symbols, strict=False))
    ours, theirs = (sorted((each[side], symbol) for each, symbol in named) for side in (0, 1))
    return _encode_side(tokenizer.source, source, ours), _encode_side(tokenizer.target, target, theirs)


def cross_attention(artifact: Artifact, sides: Sequence[tuple[Side, Side]]) -> Iterator[np.ndarray]:
    """Of each pair, `L H T+1 S`: how much each position of the target attends to each token of the source but the end."""
    import torch

    from undivided.core.ids import EOS
    from undivided.data.batches import make_batch
    from undivided.nn.attention import attention_hook

    recording, model = _CrossAttention(), artifact.model
    batch = make_batch([[*each.ids, EOS] for each, _ in sides], [[*each.ids, EOS] for _, each in sides])
    with torch.inference_mode(), attention_hook(recording):
        batch = batch.to(next(model.parameters()).device)
        model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)
    layers = [torch.cat(each, dim=-2).float().cpu().numpy() for each in recording.layers.values()]  # of each layer, B H T S
    for row, (ours, theirs) in enumerate(sides):
        yield (
            np.stack([layer[row, :, : len(theirs.ids) + 1, : len(ours.ids)] for layer in layers])
            if layers
            else np.zeros((0, 0, 0, 0))
        )


def join_heads(layers: np.ndarray, heads: Sequence[AligningHead]) -> np.ndarray:
    """`T S`: the mean over some heads, a row for each target token."""
    known = [each for each in heads if each.layer < layers.shape[0] and each.head < layers.shape[1]]
    rows = [layers[layer, head, 1:] if mode == "reads" else layers[layer, head, :-1] for layer, head, mode in known]
    return np.mean(rows, axis=0) if rows else np.zeros((max(0, layers.shape[2] - 1), layers.shape[3]))


class _CrossAttention:
    """An attention hook that keeps the weights of encoder-decoder attention, layer by layer."""

    def __init__(self) -> None:
        self.layers: dict[nn.Module, list[Tensor]] = {}

    def __call__(self, owner: nn.Module, weights: Tensor) -> Tensor:
        # Self-attention computes queries, keys and values from one sequence.
        if not hasattr(owner, "qkv"):
            self.layers.setdefault(owner, []).append(weights)
        return weights


def word_attention(weights: np.ndarray, source: Side, target: Side) -> np.ndarray:
    """`J I`: how much each target word attends to each source word, from the attention `T S` of tokens."""
    rows, columns = target.membership(len(weights)), source.membership(weights.shape[1])
    found: np.ndarray = (rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)) @ weights @ columns.T
    return found


def weigh_tokens(artifact: Artifact, attention: np.ndarray, source: Side, target: Side) -> np.ndarray:
    """`T S`: how well each source token fits each target token, in shares: by attention and, where the model has a shortlist, by
    how likely one translates the other, near the diagonal."""
    share = [(np.arange(count) + 0.5) / max(1, count) for count in attention.shape]
    near = np.exp(-TENSION * np.abs(share[1] - share[0][:, None]))
    weights = attention * near
    if artifact.shortlist is not None:
        likely = _likelihood(artifact.shortlist, source.ids, target.ids, artifact.tokenizer.joint)
        weights = (attention + ATTENTION_FLOOR) * (likely + LEXICAL_FLOOR) * near
    found: np.ndarray = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-9)
    return found


def _likelihood(shortlist: Shortlist, source: Sequence[int], target: Sequence[int], joint: bool) -> np.ndarray:
    """`T S`: 1 for the likeliest translation of a source token, ½ for the second, and so on; 1 for a token that stays as it is."""
    listed = shortlist.likely[np.asarray(source, dtype=np.int64)]  # S N
    hits = listed[None] == np.asarray(target)[:, None, None]  # T S N
    rank = hits.argmax(axis=-1)
    likely = np.where(hits.any(axis=-1), 1.0 / (1.0 + rank), 0.0)
    return np.where(np.asarray(target)[:, None] == np.asarray(source), 1.0, likely) if joint else likely


def find_links(weights: np.ndarray, source: Side, target: Side) -> list[Link]:
    """The links of each target word, with their shares, from the weights `T S` of tokens."""
    links = []
    for number, row in enumerate(word_attention(weights, source, target)):
        for place in np.flatnonzero(row >= LEAST_WEIGHT).tolist():
            links.append(Link(source.words[place], target.words[number], float(row[place])))
    return links


def _encode_side(subwords: Subwords, text: str, parts: Sequence[tuple[Protected, str]]) -> Side:
    """A text with symbols for some parts; places are those of the text as it was."""
    ids, places = subwords.encode_places(replace_spans(text, parts))
    return Side(ids, [(_place_before(start, parts), _place_before(end, parts)) for start, end in places], find_words(text))


def _place_before(place: int, parts: Sequence[tuple[Protected, str]]) -> int:
    """Where a place of the masked text was before."""
    longer = 0
    for span, symbol in parts:
        if place <= span.start + longer:
            break
        longer += len(symbol) - (span.end - span.start)
    return place - longer
