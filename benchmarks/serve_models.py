"""The models of `benchmarks/serve.py`: one of the paper's base size that needs no training, a tiny one, and a slow one."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from pathlib import Path

import torch
import translate as translate_benchmark
from measure import ROOT

from undivided.artifact import Artifact, open_artifact, save_artifact
from undivided.config import build_recipe
from undivided.models import Transformer, make_model

sys.path.insert(0, str(ROOT / "tests"))
from samples import sentences, tiny_recipe, write_pairs

BEAM = 24
"""Of the slow model."""


def make_base(home: Path) -> Path:
    """A model of base size that copies its source: what is right is known, and its beams end as those of a trained model do."""
    options = argparse.Namespace(pairs=29_000, vocabulary=8000)
    tokenizer, shortlist = translate_benchmark.learn_subwords(home, options)
    torch.manual_seed(1)
    shape = {"attention_bias": True, "norm": "pre", "positions": "learned"}
    values = {"preset": "base", "tokens": {"vocab_size": options.vocabulary}, "model": shape}
    recipe = build_recipe(values | {"data": {"source_lang": "en", "target_lang": "de"}})
    model = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval()
    assert isinstance(model, Transformer)
    copy_source(model)
    save_artifact(Artifact(recipe, tokenizer, model, shortlist=shortlist), home / "base")
    return home / "base"


@torch.no_grad()
def copy_source(model: Transformer) -> None:
    """Let the last layer attend to the same position of the source and write what stands there; all others add next to nothing.

    The embeddings leave half of the width to the positions, so that neither disturbs the other.
    """
    half, heads = model.config.d_model // 2, model.config.n_heads
    for layer in (*model.encoder, *model.decoder):
        for name in ("self_attention", "cross_attention"):
            if hasattr(layer, name):
                getattr(layer, name).output.weight.mul_(0.01)
        layer.feed_forward.outer.weight.mul_(0.01)
    places, letters = torch.arange(half), half + torch.arange(half)
    positions = model.target_embedding.positions
    assert positions is not None
    positions.learned.copy_(torch.randn_like(positions.learned).sign())
    positions.learned[:, letters] = 0
    model.target_embedding.weight[:, places] = 0
    across = model.decoder[-1].cross_attention
    key, value = across.key_value.weight.split(across.widths[1:])
    for weight in (across.query.weight, key, value, across.output.weight):
        weight.zero_()
    rows = places % heads * (2 * half // heads) + places // heads
    across.query.weight[rows, places] = key[rows, places] = 4.0
    value[rows, letters] = 1.0
    across.output.weight[letters, rows] = 6.0


def make_tiny(home: Path) -> Path:
    """The model of the tests, trained in a moment."""
    from undivided.core.console import Console
    from undivided.training.loop import train

    recipe = tiny_recipe(
        home / "tiny", write_pairs(home, "train", sentences(300)), write_pairs(home, "valid", sentences(20, seed=2))
    )
    recipe["train"]["max_steps"] = 400
    recipe["model"]["norm"] = "pre"
    return train(recipe, Console(quiet=True))


def make_slow(home: Path, tiny: Path) -> Path:
    """The tiny model with a wide beam: so slow that a generator on the same cores can send ten times as much as it translates."""
    artifact = open_artifact(tiny, "cpu", 0)
    search = dataclasses.replace(artifact.recipe.search, beam_size=BEAM)
    recipe = dataclasses.replace(artifact.recipe, search=search)
    made = Artifact(recipe, artifact.tokenizer, artifact.model, shortlist=artifact.shortlist, facts=artifact.facts)
    save_artifact(made, home / "slow")
    return home / "slow"
