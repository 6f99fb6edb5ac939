"""`look`: follow one sentence through a model. The result displays itself in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Unpack

from undivided.artifact import Artifact
from undivided.inference.search_settings import SearchChanges
from undivided.inference.translator import Translator
from undivided.look.capture import capture
from undivided.look.result import Look
from undivided.look.what_if import run_what_if


def look_pieces(translator: Translator, text: str, **changes: Unpack[SearchChanges]) -> list[Look]:
    """A look for each piece of a line: `translate` translates a line of several sentences, or one that is too long, in pieces."""
    config = translator.search_config(**changes)
    return [capture(translator.artifact, piece, None, config) for piece in translator.split(text, **changes)]


def look(
    model: Translator | Artifact | str | Path,
    text: str,
    target: str | None = None,
    *,
    what_if: bool = False,
    **changes: Unpack[SearchChanges],
) -> Look:
    """Follow a text through a model: with the model's own translation, or with a given `target` (teacher forcing).

    `what_if` also translates with each head turned off and with other tokens chosen, which takes many translations.
    `changes` are settings of search, e.g. `beam_size=8`.

    >>> look("my-model", "A dog runs.")
    """
    translator = model if isinstance(model, Translator) else Translator(model, engine="torch")
    config = translator.search_config(**changes)
    captured = capture(translator.artifact, text, target, config)
    return run_what_if(translator.artifact, captured, config) if what_if else captured
