"""One self-contained page with the model inside: weights, subwords and the code that runs them, no network."""

from __future__ import annotations

import dataclasses
import html
import re
from typing import Any

from undivided.artifact import Artifact, SingleStackArtifact
from undivided.core.errors import InputError
from undivided.look.capture import describe_facts
from undivided.look.html import MODULES, embed_json, inline_module, read_part
from undivided.look.live.kinds import KINDS, find_kind_fault
from undivided.look.live.subwords import describe_subwords, find_subword_faults
from undivided.look.live.weights import Stored, estimate_bytes, exceeds_half, measure_loss, pack_weights
from undivided.look.result import FATES, USES, Use, describe_lack
from undivided.look.walk import read_walk

MOST_BYTES = 60_000_000
"""The largest page: a browser opens it and a mail server may carry it."""

SEARCH = ("beam_size", "length_penalty", "length_norm", "max_extra", "no_repeat_ngram", "temperature")
"""The settings of search that the page takes over."""

OWN_USE: dict[str, Use] = {"decoder_only": "decoder", "encoder_only": "encoder", "vision": "encoder"}
"""The one use of attention in a single-stack model: where in a Transformer its stack would stand."""


def check_live(artifact: Artifact | SingleStackArtifact, stored: Stored, text: str = "") -> None:
    """Refuse a model that a page cannot hold or run, with every reason."""
    config = artifact.recipe.model
    own_use = OWN_USE.get(config.kind)
    faults = [fault] if (fault := find_kind_fault(config.kind)) else []
    if text and config.kind == "vision":
        faults.append("a vision model reads images: leave out the text")
    if not config.source_eos:
        faults.append("its encoder does not read the </s> behind a source (model.source_eos), and that of a page does")
    if config.decoder_self != "attention":
        faults.append(f"its decoder has no self-attention (model.decoder_self {config.decoder_self}), which the page computes")
    if artifact.tokenizer is not None:
        for subwords in {id(side): side for side in (artifact.tokenizer.source, artifact.tokenizer.target)}.values():
            faults += [fault for fault in find_subword_faults(subwords) if fault not in faults]
    if stored == "float16" and exceeds_half(artifact.model):
        faults.append("some weights are too large for float16 (use --weights int8 or float32)")
    size = estimate_bytes(artifact.model, stored)
    if size > MOST_BYTES:
        smaller = "" if stored == "int8" else "use --weights int8, "
        other = "train a smaller one" if own_use else "distil it into a smaller model with undivided distill, or leave out --live"
        faults.append(
            f"its weights would take {size / 1e6:.0f} MB as {stored}, and a page holds {MOST_BYTES / 1e6:.0f} MB ({smaller}{other})"
        )
    if faults:
        raise InputError(f"this model cannot be in a live page: {'; '.join(faults)}")


def render_live(artifact: Artifact | SingleStackArtifact, text: str = "", stored: Stored = "int8") -> str:
    """The whole page; `text` is what it shows first."""
    check_live(artifact, stored, text)
    kind = KINDS[artifact.recipe.model.kind]
    weights = pack_weights(artifact.model, stored)
    about = describe_model(artifact, stored) | {
        "tensors": weights.entries,
        "apart": measure_loss(artifact.model, stored),
        "text": text,
    }
    languages = " → ".join(filter(None, (artifact.recipe.data.source_lang, artifact.recipe.data.target_lang)))
    parts = {
        "title": html.escape(f"{languages or _title(artifact)} — a look inside, live", quote=True),
        "style": read_part("look.css") + read_part("live/live.css") + read_part("live/kinds.css"),
        "script": "\n".join(inline_module(read_part(name)) for name in (*MODULES, *(f"live/{each}" for each in kind.page))),
        "mount": kind.mount,
        "engine": "\n".join(inline_module(read_part(f"engine/{name}")) for name in kind.engine),
        "about": embed_json(about),
        "weights": weights.text,
    }
    return re.sub(r"%(title|style|script|mount|engine|about|weights)%", lambda found: parts[found[1]], read_part("live/live.html"))


def _title(artifact: Artifact | SingleStackArtifact) -> str:
    return {"decoder_only": "A language model", "encoder_only": "A reader", "vision": "A viewer"}.get(
        artifact.recipe.model.kind, "A translator"
    )


def describe_model(artifact: Artifact | SingleStackArtifact, stored: Stored) -> dict[str, Any]:
    """What the page must know of the model besides its weights."""
    config, search, data = artifact.recipe.model, artifact.recipe.search, artifact.recipe.data
    derived = {
        "key_width": config.key_width, "value_width": config.value_width, "position_limit": config.position_limit,
        "hidden_width": config.hidden_width,
    }  # fmt: skip
    own = OWN_USE.get(config.kind)
    return {
        "model": dataclasses.asdict(config) | derived,
        "search": {name: getattr(search, name) for name in SEARCH},
        # An encoder has <s> before the text.
        "longest": data.max_length - (config.kind == "encoder_only"),
        "stored": stored,
        "subwords": _describe_tokenizer(artifact),
        "classes": list(data.classes) if own else [],
        "facts": dataclasses.asdict(describe_facts(artifact, search)),
        "uses": {own: "self-attention"} if own else USES,
        "fates": FATES,
        "remark": describe_lack(config.kind, config.attention != "none", in_encoder=False) if config.kind == "recurrent" else "",
        "walk": read_walk() if config.kind == "transformer" else None,
    }


def _describe_tokenizer(artifact: Artifact | SingleStackArtifact) -> dict[str, Any] | None:
    tokenizer = artifact.tokenizer
    if tokenizer is None:
        return None
    target = None if tokenizer.source is tokenizer.target else describe_subwords(tokenizer.target)
    return {"source": describe_subwords(tokenizer.source), "target": target}
