"""What the lines of a training are like, measured once and kept in the model folder: translation splits lines unlike them."""

from __future__ import annotations

from typing import Any

import numpy as np

from undivided.data.sentences import count_sentences
from undivided.data.store import Store
from undivided.data.subwords import Subwords

USUAL = 0.95
"""The share of training sources that are no longer than what counts as usual."""

USUAL_SENTENCES = 0.9
"""The share of training lines that have no more sentences than what counts as usual: a model learns from one line in ten."""

SAMPLE = 4000
"""Lines whose sentences are counted."""


def measure_lines(store: Store, source: Subwords, language: str) -> dict[str, Any]:
    """How long training lines usually are, how many sentences they have, and how long their translations are beside them."""
    sources, targets = store.lengths(np.arange(len(store)))
    places = np.unique(np.linspace(0, len(store) - 1, SAMPLE).astype(np.int64))
    counts = np.array([count_sentences(text, language) for text in source.decode([row.tolist() for row in store.rows(0, places)])])
    return {
        "usual_length": int(np.quantile(sources, USUAL)),
        "usual_sentences": max(1, int(np.quantile(counts, USUAL_SENTENCES, method="inverted_cdf"))),
        "several_sentences": round(float((counts > 1).mean()), 4),
        "length_ratio": round(float(targets.sum() / max(1, sources.sum())), 4),
    }
