"""A look as a file, its kind by its name: page, JSON or picture."""

from __future__ import annotations

import json
from pathlib import Path

from undivided.core.errors import InputError
from undivided.core.files import open_atomic, write_atomic
from undivided.look.html import page
from undivided.look.picture import View, draw, need_matplotlib
from undivided.look.result import Look, plain

KINDS = {".html": "html", ".htm": "html", ".json": "json", ".png": "png", ".svg": "svg", ".pdf": "pdf"}
"""What can be written, by the end of the name."""


def kind_of(path: str | Path) -> str:
    """What a file name asks for; an error before any work is done where that cannot be had."""
    path = Path(path)
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise InputError(f"{path}: a look is written as {', '.join(sorted(set(KINDS) - {'.htm'}))}; give one of these endings")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such directory")
    if kind in ("png", "svg", "pdf"):
        need_matplotlib()
    return kind


def write(look: Look, path: str | Path, view: View | None = None) -> list[str]:
    """Write a look, whole or not at all; characters of a picture for which no font was found."""
    path, kind = Path(path), kind_of(path)
    missing: list[str] = []
    if kind == "html":
        write_atomic(path, page(look))
    elif kind == "json":
        values = {"format": "undivided look", "format_version": 1} | plain(look) | {"remark": look.remark}
        write_atomic(path, json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n")
    else:
        with open_atomic(path) as stream:
            missing = draw(look, stream, kind, view if view is not None else View())
    return missing
