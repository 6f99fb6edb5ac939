"""The model card: a README for the model folder, written from what was measured."""

from __future__ import annotations

from typing import Any

from undivided.config import ModelConfig, Recipe
from undivided.console import duration


def described(model: ModelConfig) -> str:
    """What a model is, in one line."""
    depth = f"{model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}"
    width = model.d_hidden or model.d_model
    match model.kind:
        case "transformer":
            kind = f"Transformer, {depth}, d_ff {model.d_ff}, {model.n_heads} heads, {model.norm}-norm"
            return f"{kind}, {model.positions} positions"
        case "recurrent":
            ways = "bidirectional" if model.bidirectional else "unidirectional"
            reading = "a fixed context" if model.attention == "none" else f"{model.attention} attention"
            fed = " and input feeding" if model.input_feeding else ""
            return f"recurrent ({model.cell}, {ways}) with {reading}{fed}, {depth}, d_hidden {width}"
        case "convolutional":
            return f"convolutional, {depth}, d_hidden {width}, kernels of {model.kernel_width}, {model.positions} positions"


def model_card(recipe: Recipe, facts: dict[str, Any]) -> str:
    """Markdown: languages, use, scores with signatures, data with digests, cost of training."""
    data = recipe.data
    pair = f"{data.source_lang or 'source'} → {data.target_lang or 'target'}"
    lines = [
        f"# A translator {pair}",
        "",
        "Trained with undivided. This folder is all it needs.",
        "",
        "```",
        'echo "…" | undivided translate .',
        "```",
        "",
        "## Model",
        f"- preset `{recipe.preset}`: {described(recipe.model)}",
    ]
    if "parameters" in facts:
        lines.append(f"- {facts['parameters']:,} parameters, vocabulary of {facts['vocabulary']:,} subwords")
    lines += ["", "## Scores"]
    for name, score in facts.get("scores", {}).items():
        lines.append(f"- {name}: **{score['score']:.2f}** `{score['signature']}`")
    if not facts.get("scores"):
        lines.append("- none measured: it was trained without validation data")
    lines += ["", "## Training"]
    if "steps" in facts:
        lines.append(
            f"- {facts['steps']:,} steps, {facts['epochs']} whole passes over the data, {facts['target_tokens']:,} target tokens "
            f"in {duration(facts['seconds'])} on {facts['device']} with {facts['threads']} CPU threads"
        )
        lines.append(f"- weights: {facts['weights']}")
        lines.append(f"- seed {recipe.train.seed}, undivided {facts['undivided']}, torch {facts['torch']}")
    lines += ["", "## Data"]
    for part, files in facts.get("data", {}).items():
        lines += [f"- {part}: `{path}` sha256 `{sha256}`" for path, sha256 in files.items()]
    lines += ["", "A model repeats what its data holds, mistakes and rights of others included: see the terms of the data."]
    return "\n".join(lines) + "\n"
