"""See inside a model: one sentence, its translation, and all that lies between."""

from __future__ import annotations

from undivided.look.html import page
from undivided.look.picture import View
from undivided.look.result import Look
from undivided.look.sentence import look
from undivided.look.text import summary
from undivided.look.what_if import questions, what_if
from undivided.look.write import kind_of, write

__all__ = ["Look", "View", "kind_of", "look", "page", "questions", "summary", "what_if", "write"]
