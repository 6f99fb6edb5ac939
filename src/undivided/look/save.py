"""A look as a file: page, JSON or picture, by the ending of its name."""

from __future__ import annotations

import json
from pathlib import Path

from undivided.core.errors import InputError
from undivided.core.files import open_atomic, write_atomic
from undivided.look.html import render_page
from undivided.look.picture import View, draw_attention, require_matplotlib
from undivided.look.result import Look, to_plain_values

FORMATS = {".html": "html", ".htm": "html", ".json": "json", ".png": "png", ".svg": "svg", ".pdf": "pdf"}
"""The format of each file ending."""


def output_format(path: str | Path) -> str:
    """The format that a file name asks for; an error if it cannot be written, before any work is done."""
    path = Path(path)
    kind = FORMATS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: a look is written as {', '.join(sorted(set(FORMATS) - {'.htm'}))}; use one of these endings")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such directory")
    if kind in ("png", "svg", "pdf"):
        require_matplotlib()
    return kind


def save_look(look: Look, path: str | Path, view: View | None = None) -> list[str]:
    """Write a look atomically; returns the characters of a picture for which no font was found."""
    path, kind = Path(path), output_format(path)
    missing: list[str] = []
    if kind == "html":
        write_atomic(path, render_page(look))
    elif kind == "json":
        values = {"format": "undivided look", "format_version": 1} | to_plain_values(look) | {"remark": look.remark}
        write_atomic(path, json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        with open_atomic(path) as stream:
            missing = draw_attention(look, stream, kind, view if view is not None else View())
    return missing
