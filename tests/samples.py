"""A made-up language pair, files of it, and a recipe for a model of a few thousand weights."""

from __future__ import annotations

import os
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WORDS = {
    "the dog": "der Hund", "a cat": "eine Katze", "my bird": "mein Vogel", "the old horse": "das alte Pferd",
    "sees": "sieht", "likes": "mag", "hears": "hört", "finds": "findet",
    "the house": "das Haus", "a tree": "einen Baum", "your garden": "deinen Garten", "the river": "den Fluss",
    "today": "heute", "at night": "nachts", "again": "wieder", "in the rain": "im Regen",
}  # fmt: skip


def sentences(count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Made-up English and German: subject, verb, object, adverb."""
    chance, words = random.Random(seed), list(WORDS)
    picks = [[chance.choice(words[at : at + 4]) for at in (0, 4, 8, 12)] for _ in range(count)]
    return [(" ".join(p).capitalize() + ".", (" ".join(WORDS[w] for w in p) + ".")) for p in picks]


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "error", **more}


def write_lines(path: Path, lines: Sequence[str]) -> Path:
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


def write_pairs(folder: Path, name: str, pairs: Sequence[tuple[str, str]]) -> list[str]:
    """Two aligned files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [str(write_lines(folder / f"{name}.{side}", [pair[at] for pair in pairs])) for at, side in enumerate(("src", "tgt"))]


def tiny_recipe(out: Path, train: list[str], valid: list[str] | None = None) -> dict[str, dict[str, Any]]:
    """A model of a few thousand weights that trains in a moment."""
    return {
        "data": {"train": [train], "valid": [valid] if valid else [], "source_lang": "en", "target_lang": "de"},
        "tokens": {"vocab_size": 320},
        "batches": {"tokens": 800},
        "model": {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.1},
        "train": {
            "out": str(out), "max_steps": 60, "schedule": "cosine", "warmup_steps": 10, "rate": 0.01, "threads": 1,
            "save_every": 20, "validate_every": 1000, "average": 2, "log_every": 20,
        },
    }  # fmt: skip


def flags(recipe: dict[str, dict[str, Any]]) -> list[str]:
    """A recipe as it would be written on the command line."""
    result = []
    for section, keys in recipe.items():
        for key, value in keys.items():
            rows = value if isinstance(value, list) else [[value]]
            for row in rows:
                result += [f"--{section}.{key}", *map(str, row)]
    return result


def drawn_points(svg: Path, colour: str = "#") -> int:
    """How many markers of a colour an SVG of matplotlib has, those of its legend included."""
    return len(re.findall(rf'<use [^>]*style="fill: {colour}', svg.read_text(encoding="utf-8")))
