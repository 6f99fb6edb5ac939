"""See inside a model: one sentence, its translation, and all that lies between."""

from __future__ import annotations

from undivided.look.capture import look
from undivided.look.result import Look

__all__ = ["Look", "look"]
