"""A training as one self-contained HTML page: a sentence in every frame, the curves of the log, a slider over the steps."""

from __future__ import annotations

import html
import re
from typing import Any

import sacrebleu

from undivided.core.errors import InputError
from undivided.core.ids import BOS
from undivided.look.capture import describe_facts, to_tokens
from undivided.look.frames import Frame, History
from undivided.look.html import MODULES, embed_json, inline_module, pack, read_part
from undivided.look.result import USES

TRAINING = ("curves.js", "timeline.js", "app.js")
"""The modules of this page, each after those that it imports and after those of the page of one look."""

MOST_BYTES = 60_000_000
"""The largest page: a browser opens it and a mail server may carry it."""


def render_training(history: History) -> str:
    """The whole page; refused where it would be too large."""
    parts = {
        "title": html.escape(f"{history.text} — watching it learn", quote=True),
        "style": read_part("look.css") + read_part("training/training.css"),
        "script": "\n".join(inline_module(read_part(name)) for name in (*MODULES, *(f"training/{each}" for each in TRAINING))),
        "data": embed_json(describe_history(history)),
    }
    page = re.sub(r"%(title|style|script|data)%", lambda found: parts[found[1]], read_part("training/training.html"))
    size = len(page.encode())
    if size > MOST_BYTES:
        raise InputError(
            f"the page would take {size / 1e6:.0f} MB with {len(history.frames)} frames, and a page holds "
            f"{MOST_BYTES / 1e6:.0f} MB; give a shorter sentence, or fewer frames (--frames N)"
        )
    return page


def describe_history(history: History) -> dict[str, Any]:
    """What the page is given."""
    subwords = history.artifact.tokenizer.target
    read = to_tokens(subwords, [BOS, *history.tgt[:-1]])
    written = to_tokens(subwords, history.tgt)
    return {
        "text": history.text,
        "target": history.target,
        "is_reference": history.is_reference,
        "source": pack(to_tokens(history.artifact.tokenizer.source, history.src)),
        "steps": [{"read": pack(one), "written": pack(other)} for one, other in zip(read, written, strict=True)],
        "frames": [_describe_frame(frame, history.target) for frame in history.frames],
        "curves": pack(history.curves),
        "facts": pack(describe_facts(history.artifact, history.artifact.recipe.search)),
        "positions": history.artifact.recipe.model.positions,
        "uses": USES,
    }


def _describe_frame(frame: Frame, target: str) -> dict[str, Any]:
    """A frame, and how close its translation is to the fixed one, in chrF."""
    return pack(frame) | {"chrf": round(float(sacrebleu.sentence_chrf(frame.translation, [target]).score), 2)}
