"""What verbs that translate share: the search in words, and how they stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.core.signals import Stopped

if TYPE_CHECKING:
    from undivided.core.console import Console
    from undivided.inference.search_settings import SearchChanges
    from undivided.inference.translator import Translator


class Stop:
    """What a stop signal does: a parallel engine finishes what is nearly done; any other is interrupted where it is."""

    def __init__(self, is_parallel: bool, message: str) -> None:
        self.is_parallel, self.message, self.number = is_parallel, message, 0

    def ask(self, number: int) -> None:
        """Stop because of this signal."""
        self.number = number
        if not self.is_parallel:
            raise Stopped(number, self.message)

    def is_asked(self) -> bool:
        """Whether a signal has come."""
        return self.number != 0


def describe_search(translator: Translator, search: SearchChanges) -> str:
    """The engine and the search, in words."""
    config = translator.search_config(**search)
    how = "sampling" if config.sample else f"beam {config.beam_size}, length penalty {config.length_penalty:g}"
    how += f", drafts of {config.draft}" if config.draft and translator.engine.drafts is not None else ""
    return f"engine {translator.engine.name}, {how}"


def warn_of_unused(translator: Translator, search: SearchChanges, console: Console) -> None:
    """Warn of what was asked for and the engine or the model does not have."""
    engine = translator.engine
    who = "the PyTorch engine" if engine.name.startswith("torch") else "this model"
    if search.get("shortlist") and not engine.has_shortlist:
        console.warn(f"--shortlist: {who} has none, so all target subwords are considered")
    if search.get("draft") and engine.drafts is None:
        who = "CTranslate2 uses none (--engine torch does)" if engine.name.startswith("ctranslate2") else "this model has none"
        advice = "" if "CTranslate2" in who else "; train them: undivided distill MODEL --drafts"
        console.warn(f"--draft: {who}, so nothing is proposed, and the translations are the same{advice}")
