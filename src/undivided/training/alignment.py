"""Which attention heads of a model align words: measured on training pairs against IBM model 1, kept in the model folder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from undivided.artifact import Artifact
from undivided.data.store import Store
from undivided.data.subwords import Tokenizer
from undivided.formats.markup import find_words
from undivided.inference.alignment import (
    MODES,
    AligningHead,
    Side,
    cross_attention,
    encode_sides,
    join_heads,
    weigh_tokens,
    word_attention,
)
from undivided.look.heads.aligner import Agreement, Links, agreement, align_words
from undivided.look.heads.statistics import strongest_links

LEAST_PAIRS = 1000
"""From fewer training pairs nobody can tell which words translate each other."""

LEARNED, MEASURED = 3000, 128
"""Pairs from which the aligner learns, and of those the pairs on which heads are compared with it."""

BATCH, MOST_HEADS = 32, 4
"""Pairs in one pass, and the most heads whose mean may align."""


class LinkedPair(NamedTuple):
    """A pair of texts, and the links that the aligner finds between their words."""

    source: str
    target: str
    links: Links


def link_pairs(store: Store, tokenizer: Tokenizer) -> list[LinkedPair]:
    """Training pairs with the links that heads are compared with; none where there are too few."""
    if len(store) < LEAST_PAIRS:
        return []
    places = np.unique(np.linspace(0, len(store) - 1, LEARNED).astype(np.int64))
    sources, targets = (
        side.decode([row.tolist() for row in store.rows(number, places)])
        for number, side in enumerate((tokenizer.source, tokenizer.target))
    )
    return link_texts(list(zip(sources, targets, strict=True)))


def link_texts(pairs: Sequence[tuple[str, str]]) -> list[LinkedPair]:
    """Pairs of texts with the links that IBM model 1 finds, an even choice of them."""
    words = [[[text[span.start : span.end] for span in find_words(text)] for text in pair] for pair in pairs]
    usable = [place for place, both in enumerate(words) if all(both)]
    links = align_words([(words[place][0], words[place][1]) for place in usable])
    step = max(1, len(usable) // MEASURED)
    return [LinkedPair(*pairs[place], each) for place, each in list(zip(usable, links, strict=True))[::step]][:MEASURED]


def measure_alignment(artifact: Artifact, pairs: Sequence[LinkedPair]) -> dict[str, Any]:
    """The heads that align best together, and their error rate, as facts for the model folder; none where a model has no heads."""
    sides = [encode_sides(artifact.tokenizer, pair.source, pair.target) for pair in pairs]
    longest = artifact.recipe.data.max_length
    usable = [place for place, both in enumerate(sides) if all(len(each.ids) < longest for each in both)]
    layers: list[np.ndarray] = []
    for start in range(0, len(usable), BATCH):
        layers += cross_attention(artifact, [sides[place] for place in usable[start : start + BATCH]])
    if not layers or not layers[0].size:
        return {}
    chosen, wanted = [sides[place] for place in usable], [pairs[place].links for place in usable]

    def measure(heads: Sequence[AligningHead]) -> Agreement:
        return agreement([_links(artifact, each, heads, *both) for each, both in zip(layers, chosen, strict=True)], wanted)

    every = [AligningHead(layer, head, mode) for layer, head in np.ndindex(layers[0].shape[:2]) for mode in MODES]
    ranked = sorted(every, key=lambda head: measure([head]).aer)
    together = [tuple(ranked[:count]) for count in range(1, MOST_HEADS + 1)]
    best = min(together, key=lambda heads: measure(heads).aer)
    return {"alignment": {"heads": [list(head) for head in best], "error": round(measure(best).aer, 4)}}


def _links(
    artifact: Artifact, layers: np.ndarray, heads: Sequence[AligningHead], source: Side, target: Side
) -> frozenset[tuple[int, int]]:
    weights = weigh_tokens(artifact, join_heads(layers, heads), source, target)
    return strongest_links(word_attention(weights, source, target))
