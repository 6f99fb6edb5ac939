"""`look`: one sentence on its way through a model, as a value that shows itself in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from undivided.artifact import Artifact
from undivided.inference.translator import Translator
from undivided.look.capture import capture
from undivided.look.result import Look
from undivided.look.what_if import what_if


def look(
    model: Translator | Artifact | str | Path, text: str, target: str | None = None, *, ask: bool = False, **options: Any
) -> Look:
    """See a text on its way through a model, with the model's own translation or a `target` that is forced on it.

    With `ask` also what if each head were off, or other words came; that takes as long as translating so many times.

    >>> look("my-model", "A dog runs.")
    """
    translator = model if isinstance(model, Translator) else Translator(model, engine="torch")
    config = translator.search_config(**options)
    captured = capture(translator.artifact, text, target, config)
    return what_if(translator.artifact, captured, config) if ask else captured
