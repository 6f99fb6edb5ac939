"""One self-contained page with the model inside: weights, subwords and the code that runs them, no network."""

from __future__ import annotations

import dataclasses
import html
import re
from typing import Any

from undivided.artifact import Artifact
from undivided.core.errors import InputError
from undivided.look.capture import describe_facts
from undivided.look.html import MODULES, embed_json, inline_module, read_part
from undivided.look.live.subwords import describe_subwords, find_subword_faults
from undivided.look.live.weights import Stored, estimate_bytes, exceeds_half, pack_weights
from undivided.look.result import FATES, USES
from undivided.look.walk import read_walk
from undivided.models.transformer import Transformer

MOST_BYTES = 60_000_000
"""The largest page: a browser opens it and a mail server may carry it."""

ENGINE = (
    "bytes.js", "normalize.js", "segment.js", "subwords.js", "arithmetic.js", "model.js", "stepping.js", "tree.js", "search.js",
    "inside.js", "effects.js", "trace.js", "worker.js",
)  # fmt: skip
"""The modules of the worker, each after those that it imports."""

LIVE = ("client.js", "changes.js", "strip.js", "head.js", "stream.js", "figure.js", "walk.js", "app.js")
"""The modules of the live page, each after those that it imports and after those of the page that is not live."""

SEARCH = ("beam_size", "length_penalty", "length_norm", "max_extra", "no_repeat_ngram", "temperature")
"""The settings of search that the page takes over."""


def check_live(artifact: Artifact, stored: Stored) -> None:
    """Refuse a model that a page cannot hold or run, with every reason."""
    faults = []
    if not isinstance(artifact.model, Transformer):
        faults.append(f"a live page runs the Transformer alone, and this is a {artifact.recipe.model.kind} model")
    for subwords in {id(side): side for side in (artifact.tokenizer.source, artifact.tokenizer.target)}.values():
        faults += [fault for fault in find_subword_faults(subwords) if fault not in faults]
    if stored == "float16" and exceeds_half(artifact.model):
        faults.append("some weights are too large for float16 (use --weights int8 or float32)")
    size = estimate_bytes(artifact.model, stored)
    if size > MOST_BYTES:
        smaller = "" if stored == "int8" else "use --weights int8, "
        faults.append(
            f"its weights would take {size / 1e6:.0f} MB as {stored}, and a page holds {MOST_BYTES / 1e6:.0f} MB "
            f"({smaller}distil it into a smaller model with undivided distill, or leave out --live)"
        )
    if faults:
        raise InputError(f"this model cannot be in a live page: {'; '.join(faults)}")


def render_live(artifact: Artifact, text: str = "", stored: Stored = "int8") -> str:
    """The whole page; `text` is what it shows first."""
    check_live(artifact, stored)
    weights = pack_weights(artifact.model, stored)
    about = describe_model(artifact, stored) | {"tensors": weights.entries, "text": text}
    languages = " → ".join(filter(None, (artifact.recipe.data.source_lang, artifact.recipe.data.target_lang)))
    parts = {
        "title": html.escape(f"{languages or 'A translator'} — a look inside, live", quote=True),
        "style": read_part("look.css") + read_part("live/live.css"),
        "script": "\n".join(inline_module(read_part(name)) for name in (*MODULES, *(f"live/{each}" for each in LIVE))),
        "engine": "\n".join(inline_module(read_part(f"engine/{name}")) for name in ENGINE),
        "about": embed_json(about),
        "weights": weights.text,
    }
    return re.sub(r"%(title|style|script|engine|about|weights)%", lambda found: parts[found[1]], read_part("live/live.html"))


def describe_model(artifact: Artifact, stored: Stored) -> dict[str, Any]:
    """What the page must know of the model besides its weights."""
    config, search = artifact.recipe.model, artifact.recipe.search
    tokenizer = artifact.tokenizer
    derived = {"key_width": config.key_width, "value_width": config.value_width, "position_limit": config.position_limit}
    return {
        "model": dataclasses.asdict(config) | derived,
        "search": {name: getattr(search, name) for name in SEARCH},
        "longest": artifact.recipe.data.max_length,
        "stored": stored,
        "subwords": {
            "source": describe_subwords(tokenizer.source),
            "target": None if tokenizer.source is tokenizer.target else describe_subwords(tokenizer.target),
        },
        "facts": dataclasses.asdict(describe_facts(artifact, search)),
        "uses": USES,
        "fates": FATES,
        "walk": read_walk(),
    }
