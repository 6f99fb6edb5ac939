"""Models that Marian, Bergamot and Firefox can run: untrained ones that end, and one that has learned the made-up language."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from samples import sentences, tiny_recipe, write_pairs
from undivided.artifact import Artifact, load_artifact
from undivided.config import build_recipe
from undivided.core.console import Console
from undivided.core.ids import EOS
from undivided.models import make_model
from undivided.training.loop import train

PEERS = Path(__file__).parents[1] / ".venv-peers"
MARIAN = {"start": "zero", "output_bias": True, "positions": "marian", "norm": "post"}
SMALL = {"d_model": 64, "d_ff": 128, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1, "decoder_self": "ssru"}


def python_of(peer: str) -> Path:
    """The interpreter of a peer, in a venv of its own."""
    return PEERS / peer / "bin" / "python"


def random_model(tokenizer: Any, **changes: Any) -> Artifact:
    """Random weights, and a bias that makes the end likely."""
    torch.manual_seed(7)
    recipe = build_recipe({"model": SMALL | MARIAN | changes, "search": {"length_norm": "length"}})
    model = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name != "output_bias":
                parameter += 0.1 * torch.randn_like(parameter)
        model.target_embedding.weight[2] = 0.0
        words = torch.randint(EOS + 1, len(tokenizer.target), (64, 12))
        logits = model.logits(model.decode(model.encode(words, None), words))
        model.output_bias[EOS] += (logits.amax(dim=-1) - logits[..., EOS]).flatten().quantile(0.3)
    return Artifact(recipe, tokenizer, model)


def trained_model(home: Path, **changes: Any) -> Artifact:
    """It translates the made-up language; unigram subwords, which every engine splits text by."""
    recipe = tiny_recipe(home / "m", write_pairs(home, "train", sentences(300)), write_pairs(home, "valid", sentences(20, seed=2)))
    recipe["model"] |= SMALL | MARIAN | changes
    recipe["tokens"] = recipe.get("tokens", {}) | {"kind": "unigram"}
    recipe["train"] |= {"max_steps": 500, "rate": 0.003, "warmup_steps": 40, "save_every": 100}
    return load_artifact(train(recipe, Console(quiet=True)))
