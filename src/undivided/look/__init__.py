"""See inside a model: one sentence, its translation, and what happens between them."""

from __future__ import annotations

from undivided.look.html import render_page
from undivided.look.picture import View
from undivided.look.result import Look
from undivided.look.save import output_format, save_look
from undivided.look.sentence import look, look_pieces
from undivided.look.text import summarize
from undivided.look.what_if import count_what_if_runs, run_what_if

__all__ = [
    "Look",
    "View",
    "count_what_if_runs",
    "look",
    "look_pieces",
    "output_format",
    "render_page",
    "run_what_if",
    "save_look",
    "summarize",
]
