"""The model card: a README for the model folder, written from what was measured."""

from __future__ import annotations

from typing import Any

from undivided.config import ModelConfig, Recipe
from undivided.config.model import PAIRED
from undivided.core.console import duration


def describe_model(model: ModelConfig) -> str:
    """What a model is, in one line."""
    depth = f"{model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}"
    width = model.hidden_width
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
        case _:
            return _describe_single_stack(model)


def _describe_single_stack(model: ModelConfig) -> str:
    layers = model.encoder_layers if model.kind in ("encoder_only", "vision") else model.decoder_layers
    shape = f"{layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, {model.n_heads} heads, {model.norm}-norm"
    image = f"images of {model.image_height} × {model.image_width} in patches of {model.patch} × {model.patch}"
    match model.kind:
        case "vision":
            return f"vision Transformer, {shape}, {image}"
        case "drawing":
            return f"decoder-only over text and {model.codes} codes, {shape}, {image}"
        case _:
            return f"{model.kind.replace('_', '-')} Transformer, {shape}, {model.positions} positions"


def title(recipe: Recipe) -> str:
    """What a model folder holds, in a few words."""
    data = recipe.data
    match recipe.model.kind:
        case "decoder_only":
            return "A language model"
        case "encoder_only":
            return f"A classifier of text: {', '.join(data.classes)}" if data.classes else "A masked language model"
        case "vision":
            return f"A classifier of images: {', '.join(data.classes)}"
        case "drawing":
            return "A model that draws small images from words"
        case _:
            return f"A translator {data.source_lang or 'source'} → {data.target_lang or 'target'}"


def usage(recipe: Recipe, folder: str) -> str:
    """A command that uses a model folder."""
    match recipe.model.kind:
        case "decoder_only":
            return f'undivided generate {folder} "…"'
        case "encoder_only" if not recipe.data.classes:
            return f"undivided train --from {folder} --model.kind encoder_only --train TEXTS LABELS --out DIR"
        case "encoder_only":
            return f"undivided classify {folder} FILE"
        case "vision":
            return f"undivided classify {folder} IMAGE"
        case "drawing":
            return f'undivided generate {folder} "{next(iter(recipe.data.classes), "…")}" -o image.png'
        case _:
            return f'echo "…" | undivided translate {folder}'


def _made(facts: dict[str, Any]) -> str:
    """How a model came to be, in a sentence."""
    origin, start = facts.get("origin"), facts.get("start")
    tuned = f"Fine-tuned with undivided from `{start}`." if start else ""
    if not isinstance(origin, dict):
        return tuned or "Trained with undivided."
    came = f"Imported by undivided from `{origin['name']}` ({origin['format']}), licence: {facts.get('license') or 'not named'}."
    return f"{came} {tuned}".strip()


def _origin(facts: dict[str, Any]) -> list[str]:
    """The files that a model was imported from, and how it was compared with its own runtime."""
    if not isinstance(facts.get("origin"), dict):
        return []
    parity = facts.get("parity", {})
    lines = ["", "## Origin", *(f"- `{name}` sha256 `{sha256}`" for name, sha256 in facts["origin"]["sha256"].items())]
    return [*lines, f"- compared with its own runtime: {', '.join(f'{name} {value}' for name, value in parity.items())}"]


def model_card(recipe: Recipe, facts: dict[str, Any]) -> str:
    """Markdown: languages, use, scores with signatures, data with digests, cost of training."""
    lines = [
        f"# {title(recipe)}",
        "",
        f"{_made(facts)} This folder is all it needs.",
        "",
        "```",
        usage(recipe, "."),
        "```",
        "",
        "## Model",
        f"- preset `{recipe.preset}`: {describe_model(recipe.model)}",
    ]
    if "parameters" in facts:
        vocabulary = f", vocabulary of {facts['vocabulary']:,} subwords" if facts.get("vocabulary") else ""
        lines.append(f"- {facts['parameters']:,} parameters{vocabulary}")
    lines += _origin(facts)
    lines += ["", "## Scores"]
    for name, score in facts.get("scores", {}).items():
        lines.append(f"- {name}: **{score['score']:.2f}** `{score['signature']}`")
    if not facts.get("scores"):
        lines.append("- none measured: it was trained without validation data")
    for name, found in facts.get("fine_tuning", {}).items():
        gained = f"BLEU {found['before']:.2f} before fine-tuning, **{found['after']:.2f}** after"
        lines.append(f"- on the {name} data: {gained} `{found['signature']}`")
    if isinstance(facts.get("improved"), list):
        lines += ["", "## What each stage of its making brought, on validation", *(f"- {row}" for row in facts["improved"])]
    lines += ["", "## Training"]
    if "steps" in facts:
        counted = "target tokens" if recipe.model.kind in PAIRED else "predictions"
        lines.append(
            f"- {facts['steps']:,} steps, {facts['epochs']} whole passes over the data, {facts['target_tokens']:,} {counted} "
            f"in {duration(facts['seconds'])} on {facts['device']} with {facts['threads']} CPU threads"
            + (f", products in {facts['precision']}" if "precision" in facts else "")
        )
        lines.append(f"- weights: {facts['weights']}")
        lines.append(f"- seed {recipe.train.seed}, undivided {facts['undivided']}, torch {facts['torch']}")
    lines += ["", "## Data"]
    for part, files in facts.get("data", {}).items():
        lines += [f"- {part}: `{path}` sha256 `{sha256}`" for path, sha256 in files.items()]
    lines += ["", "A model repeats what its data holds, mistakes and rights of others included: see the terms of the data."]
    return "\n".join(lines) + "\n"
