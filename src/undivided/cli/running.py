"""What verbs that translate share: the search in words, and how they stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from undivided.core.signals import Stopped

if TYPE_CHECKING:
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
    return f"engine {translator.engine.name}, {how}"
