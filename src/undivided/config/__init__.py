"""Every setting, defined once: a dataclass field is a YAML key, a command-line flag with help, and what a model saves."""

from __future__ import annotations

from undivided.config.data import BatchesConfig, CorpusFiles, DataConfig, TokensConfig
from undivided.config.model import ModelConfig
from undivided.config.presets import PRESETS, preset_for, preset_values
from undivided.config.recipe import Recipe, build_recipe
from undivided.config.search import CHUNK_LINES, ENGINES, SearchConfig
from undivided.config.train import TrainConfig, check_threads

__all__ = [
    "CHUNK_LINES",
    "ENGINES",
    "PRESETS",
    "BatchesConfig",
    "CorpusFiles",
    "DataConfig",
    "ModelConfig",
    "Recipe",
    "SearchConfig",
    "TokensConfig",
    "TrainConfig",
    "build_recipe",
    "check_threads",
    "preset_for",
    "preset_values",
]
