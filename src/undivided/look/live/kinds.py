"""What a live page of each kind of model is made of: modules of the worker and of the page, each after those that it imports."""

from __future__ import annotations

from typing import NamedTuple

from undivided.config.model import DECODER_ONLY, ENCODER_ONLY, PAIRED, RECURRENT, TRANSFORMER, VISION
from undivided.core.errors import InputError

COMMON = (
    "bytes.js", "normalize.js", "segment.js", "subwords.js", "arithmetic.js", "model.js", "inside.js", "effects.js", "trace.js",
    "mailbox.js", "asks.js",
)  # fmt: skip
"""Of the worker, for every kind."""

WRITING = ("stepping.js", "tree.js", "search.js", "writing.js")
"""Of the worker, for models that write."""

PAGE = ("client.js", "slices.js", "changes.js", "strip.js", "head.js", "stream.js", "figure.js", "walk.js", "app.js")
"""Of the page, for every kind, after those of the page that is not live."""


class LiveKind(NamedTuple):
    """A kind of model that a page can hold."""

    engine: tuple[str, ...]
    page: tuple[str, ...]
    mount: str
    """The function that shows the page."""


KINDS = {
    TRANSFORMER[0]: LiveKind((*COMMON, *WRITING, "worker.js"), PAGE, "mountLive"),
    RECURRENT[0]: LiveKind((*COMMON, *WRITING, "recurrent.js"), (*PAGE, "hangul.js", "recurrent.js"), "mountRecurrent"),
    DECODER_ONLY[0]: LiveKind(
        (*COMMON, *WRITING, "stack.js", "language.js"), (*PAGE, "hangul.js", "single.js", "language.js"), "mountLanguage"
    ),
    ENCODER_ONLY[0]: LiveKind((*COMMON, "stack.js", "masked.js"), (*PAGE, "hangul.js", "single.js", "masked.js"), "mountMasked"),
    VISION[0]: LiveKind(
        (*COMMON, "images.js", "stack.js", "vision.js"), (*PAGE, "hangul.js", "single.js", "draw.js", "vision.js"), "mountVision"
    ),
}
"""By the kind of the model."""


def find_kind_fault(kind: str) -> str:
    """Why a page cannot hold this kind of model, and what does show it; empty if it can."""
    if kind in KINDS:
        return ""
    names = list(KINDS)
    other = "leave out --live to look inside it" if kind in PAIRED else "use it with: undivided generate"
    return f"a live page holds {', '.join(names[:-1])} and {names[-1]} models, and this is a {kind} model ({other})"


def check_kind(kind: str) -> None:
    """Refuse a kind of model that no page holds, before its weights are read."""
    if fault := find_kind_fault(kind):
        raise InputError(fault)
