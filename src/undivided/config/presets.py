"""Presets: named sets of settings for a size of model, and which one suits a corpus. [paper Table 3]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from undivided.config.model import ModelConfig, applies
from undivided.config.settings import Values

_BASE_SIZES = ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "dropout")
"""What makes a model a base one. They are the defaults, but a preset that is named must win over other defaults."""

PRESETS: dict[str, Values] = {
    "tiny": {
        "model": {"d_model": 128, "d_ff": 256, "n_heads": 4, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
        "batches": {"tokens": 4096},
        "train": {"max_steps": 8000, "warmup_steps": 2000, "rate": 2.5, "average": 10, "keep_last": 10,
                  "save_every": 200, "validate_every": 400, "patience": 10},
    },
    "small": {
        "model": {"d_model": 256, "d_ff": 1024, "n_heads": 4, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.2},
        "batches": {"tokens": 8192},
        "train": {"max_steps": 50_000, "warmup_steps": 4000, "rate": 2.0},
    },
    "base": {"model": {name: getattr(ModelConfig(), name) for name in _BASE_SIZES}},
    "fast": {"model": {"encoder_layers": 8, "decoder_layers": 1}},
    # The shape of Bergamot's and Firefox's students, so that `export --to bergamot` can express it.
    "student": {
        "model": {"d_model": 256, "d_ff": 1536, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 2, "norm": "post",
                  "decoder_self": "ssru", "start": "zero", "positions": "marian", "output_bias": True},
        "tokens": {"kind": "unigram"},
        "batches": {"tokens": 8192},
        "train": {"max_steps": 50_000, "warmup_steps": 4000, "rate": 2.0},
        "search": {"beam_size": 1},
    },
    "big": {
        "model": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
        "train": {"max_steps": 300_000, "average": 20, "keep_last": 20},
    },
}  # fmt: skip

FITTED = (
    "tokens.vocab_size", "batches.tokens", "search.length_penalty", "model.d_model", "model.d_ff", "model.n_heads",
    "model.encoder_layers", "model.decoder_layers", "model.dropout", "model.norm", "train.schedule", "train.rate",
    "train.warmup_steps", "train.clip", "train.average", "train.keep_last", "train.validate_every", "train.save_every",
    "train.max_steps", "train.patience",
)  # fmt: skip
"""Settings of translators that training fits to its data and its budget where neither a person nor a preset sets them."""


def preset_for(pairs: int) -> str:
    """The preset that suits a corpus of so many pairs."""
    if pairs < 100_000:
        return "tiny"
    return "small" if pairs < 1_000_000 else "base"


def preset_values(preset: str, values: Mapping[str, Any]) -> Values:
    """The settings of a preset, without those that the kind of model in `values` does not have."""
    return keep_applicable(PRESETS.get(preset, {}), values)


def keep_applicable(settings: Mapping[str, Any], values: Mapping[str, Any]) -> Values:
    """Settings without those that the kind of model in `values` does not have."""
    model = values.get("model")
    kind = model.get("kind", "transformer") if isinstance(model, Mapping) else "transformer"
    foreign = {item.name for item in fields(ModelConfig) if not applies(item.metadata["of"], kind)}
    chosen = dict(settings)
    if "model" in chosen:
        chosen["model"] = {key: value for key, value in chosen["model"].items() if key not in foreign}
    return chosen
