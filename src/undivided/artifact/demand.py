"""How much memory a model folder asks for by its settings, estimated before any is taken: a folder may come from a stranger.

Importing this must not import torch.
"""

from __future__ import annotations

from pathlib import Path

from undivided.config import Recipe, SearchConfig
from undivided.config.model import ATTENTIVE, DRAWING, PAIRED
from undivided.core.errors import InputError
from undivided.core.process import usable_memory

FLOAT = 4
"""Bytes of a number."""
BATCH_ROWS = 256
"""Most hypotheses of a batch (sentences × beams): as many as a matrix product needs to be fast."""
BATCH_TOKENS = 16 * BATCH_ROWS
"""Most source tokens of a batch × beams, padding included."""
LEAST_LIMIT = 1 << 30
"""What any folder may ask for."""


def memory_limit() -> int:
    """What a folder may ask for: half of the memory that this process may use."""
    return max(LEAST_LIMIT, (usable_memory() or 8 * LEAST_LIMIT) // 2)


def estimate_memory(recipe: Recipe, vocabulary: int, search: SearchConfig, sentences: int = BATCH_ROWS) -> int:
    """Bytes beside the weights for a batch of at most so many sentences, if every output is as long as the settings allow."""
    # Images are always sampled.
    beams = search.n_best if search.sample or recipe.model.kind in DRAWING else search.beam_size
    # The model reads drafts beside one another, each with probabilities of its own.
    rows = beams * (1 + search.draft)
    longest = recipe.data.max_length if recipe.model.kind in PAIRED else recipe.max_sequence
    limit = recipe.model.position_limit or longest + search.max_extra
    most = max(1, min(sentences, BATCH_ROWS // beams))
    at_longest = max(1, min(most, BATCH_TOKENS // beams // longest))
    # Many short texts, or few of the longest.
    short, long = ((most, min(16, longest)), (at_longest, min(longest, limit)))
    return max(
        _encoding(recipe, count, length) + _decoding(recipe, vocabulary, count * rows, min(limit, length + search.max_extra))
        for count, length in (short, long)
    )


def _encoding(recipe: Recipe, sentences: int, length: int) -> int:
    """The attention scores and the widest activation of one layer."""
    model = recipe.model
    heads = model.n_heads if model.kind in ATTENTIVE else 1
    width = max(model.d_model, model.d_ff, 4 * model.hidden_width, heads * max(model.key_width, model.value_width))
    return FLOAT * sentences * length * (heads * length + width)


def _decoding(recipe: Recipe, vocabulary: int, rows: int, length: int) -> int:
    """Keys and values of all layers and positions, attention scores of a step, and the probabilities of the next tokens."""
    model = recipe.model
    heads = model.n_heads if model.kind in ATTENTIVE else 1
    kept = model.decoder_layers * heads * (model.key_width + model.value_width)
    outputs = vocabulary + (model.codes if model.kind in DRAWING else 0)
    return FLOAT * rows * (length * (kept + heads + 2) + 3 * outputs)


def check_demand(folder: str | Path, recipe: Recipe, vocabulary: int, search: SearchConfig, sentences: int = BATCH_ROWS) -> None:
    """Refuse a folder whose settings ask for more memory than it may."""
    need, limit = estimate_memory(recipe, vocabulary, search, sentences), memory_limit()
    if need <= limit:
        return
    model = recipe.model
    asked = f"{model.n_heads:,} heads, data.max_length {recipe.data.max_length:,}, beam {search.beam_size:,}"
    raise InputError(
        f"{folder}: its settings ({asked}, max_extra {search.max_extra:,}) ask for up to {need / (1 << 30):,.1f} GiB of memory, "
        f"more than the {limit / (1 << 30):,.1f} GiB that a model may take here; set --beam-size and --max-extra yourself, or if "
        "you know the folder and have the memory, use --trust"
    )
