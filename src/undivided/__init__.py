"""The Transformer of "Attention Is All You Need": teach it a language pair, translate, score, look inside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"
__all__ = ["InputError", "Translation", "Translator", "UndividedError", "__version__"]

if TYPE_CHECKING:
    from undivided.core.errors import InputError, UndividedError
    from undivided.inference.translator import Translation, Translator

_HOMES = {
    "InputError": "undivided.core.errors",
    "UndividedError": "undivided.core.errors",
    "Translation": "undivided.inference.translator",
    "Translator": "undivided.inference.translator",
}


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: the command line answers without waiting for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'undivided' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
