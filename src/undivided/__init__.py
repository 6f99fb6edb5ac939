"""The Transformer of "Attention Is All You Need": teach it a language pair, translate, score, look inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["InputError", "Translation", "Translator", "UndividedError", "__version__"]

if TYPE_CHECKING:
    from undivided.console import InputError, UndividedError
    from undivided.translate import Translation, Translator

_HOMES = {
    "InputError": "undivided.console",
    "UndividedError": "undivided.console",
    "Translation": "undivided.translate",
    "Translator": "undivided.translate",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line answers without waiting for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'undivided' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
