"""The rows of Table 3 as variations of any recipe, scaled as the paper's rows are from base. [paper 6.2, Table 3]"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from undivided.config import Recipe
from undivided.config.settings import Values, list_faults, suggest
from undivided.core.errors import InputError


class Published(NamedTuple):
    """The paper's results of a row, on newstest2013, English to German."""

    perplexity: float
    bleu: float
    parameters: float | None
    """In millions, where the table lists them."""


class Row(NamedTuple):
    """One row: its change in the paper, and the same change to a recipe."""

    name: str
    change: str
    published: Published | None
    """None for a row that the paper has not."""
    vary: Callable[[Recipe], Values]


def heads(count: Callable[[int], int]) -> Callable[[Recipe], Values]:
    """Change the number of heads at constant total width, so that the computation stays the same. [paper Table 3, A]"""

    def vary(recipe: Recipe) -> Values:
        n_heads = count(recipe.model.n_heads)
        width = max(1, recipe.model.n_heads * recipe.model.value_width // n_heads)
        return {"model": {"n_heads": n_heads, "d_k": width, "d_v": width}}

    return vary


def key_width(factor: float) -> Callable[[Recipe], Values]:
    """Narrower keys and queries; values as they are. [paper Table 3, B]"""
    return lambda recipe: {"model": {"d_k": scale(recipe.model.key_width, factor), "d_v": recipe.model.value_width}}


def depth(factor: float) -> Callable[[Recipe], Values]:
    """Fewer or more layers. [paper Table 3, C]"""
    return lambda recipe: {
        "model": {
            "encoder_layers": scale(recipe.model.encoder_layers, factor),
            "decoder_layers": scale(recipe.model.decoder_layers, factor),
        }
    }


def width(factor: float) -> Callable[[Recipe], Values]:
    """Change d_model, with head widths in proportion and feed-forward layers as they are. [paper Table 3, C]"""

    def vary(recipe: Recipe) -> Values:
        model = recipe.model
        d_model = 2 * scale(model.d_model, factor / 2)
        widths = {"d_model": d_model, "d_k": scale(model.key_width, factor), "d_v": scale(model.value_width, factor)}
        return {"model": widths, **rate_for(d_model, recipe)}

    return vary


def rate_for(d_model: int, recipe: Recipe) -> Values:
    """Scale the learning rate with the width as in Eq. 3, for schedules that do not contain the width."""
    if recipe.train.schedule == "paper":
        return {}
    return {"train": {"rate": float(f"{recipe.train.rate * (recipe.model.d_model / d_model) ** 0.5:.3g}")}}


def feed_forward(factor: float) -> Callable[[Recipe], Values]:
    """Change d_ff. [paper Table 3, C]"""
    return lambda recipe: {"model": {"d_ff": scale(recipe.model.d_ff, factor)}}


def dropout(more: float | None) -> Callable[[Recipe], Values]:
    """No dropout, or more of it. [paper Table 3, D]"""
    return lambda recipe: {"model": {"dropout": 0.0 if more is None else round(min(0.9, recipe.model.dropout + more), 6)}}


def smoothing(more: float | None) -> Callable[[Recipe], Values]:
    """No label smoothing, or more of it. [paper Table 3, D]"""
    return lambda recipe: {"train": {"label_smoothing": 0.0 if more is None else round(recipe.train.label_smoothing + more, 6)}}


def big(recipe: Recipe) -> Values:
    """Twice as wide, twice the heads, more dropout. [paper Table 3]"""
    model = recipe.model
    wide = {"d_model": 2 * model.d_model, "d_ff": 2 * model.d_ff, "n_heads": 2 * model.n_heads}
    changes = {**wide, "d_k": model.key_width, "d_v": model.value_width, "dropout": round(min(0.9, model.dropout + 0.2), 6)}
    return {"model": changes, **rate_for(wide["d_model"], recipe)}


def scale(value: int, factor: float) -> int:
    """value × factor as a whole number, at least 1."""
    return max(1, round(value * factor))


ROWS: dict[str, Row] = {
    row.name: row
    for row in (
        Row("base", "base", Published(4.92, 25.8, 65), lambda recipe: {}),
        Row("A1", "h 8 → 1", Published(5.29, 24.9, None), heads(lambda h: 1)),
        Row("A2", "h 8 → 4", Published(5.00, 25.5, None), heads(lambda h: max(1, h // 2))),
        Row("A3", "h 8 → 16", Published(4.91, 25.8, None), heads(lambda h: 2 * h)),
        Row("A4", "h 8 → 32", Published(5.01, 25.4, None), heads(lambda h: 4 * h)),
        Row("B1", "d_k 64 → 16", Published(5.16, 25.1, 58), key_width(1 / 4)),
        Row("B2", "d_k 64 → 32", Published(5.01, 25.4, 60), key_width(1 / 2)),
        Row("C1", "N 6 → 2", Published(6.11, 23.7, 36), depth(1 / 3)),
        Row("C2", "N 6 → 4", Published(5.19, 25.3, 50), depth(2 / 3)),
        Row("C3", "N 6 → 8", Published(4.88, 25.5, 80), depth(4 / 3)),
        Row("C4", "d_model 512 → 256", Published(5.75, 24.5, 28), width(1 / 2)),
        Row("C5", "d_model 512 → 1024", Published(4.66, 26.0, 168), width(2)),
        Row("C6", "d_ff 2048 → 1024", Published(5.12, 25.4, 53), feed_forward(1 / 2)),
        Row("C7", "d_ff 2048 → 4096", Published(4.75, 26.2, 90), feed_forward(2)),
        Row("D1", "P_drop 0.1 → 0", Published(5.77, 24.6, None), dropout(None)),
        Row("D2", "P_drop 0.1 → 0.2", Published(4.95, 25.5, None), dropout(0.1)),
        Row("D3", "ε_ls 0.1 → 0", Published(4.67, 25.3, None), smoothing(None)),
        Row("D4", "ε_ls 0.1 → 0.2", Published(5.47, 25.7, None), smoothing(0.1)),
        Row("E", "learned positions", Published(4.92, 25.7, None), lambda recipe: {"model": {"positions": "learned"}}),
        Row("big", "big", Published(4.33, 26.4, 213), big),
    )
}


MORE_ROWS: dict[str, Row] = {"E0": Row("E0", "no positions", None, lambda recipe: {"model": {"positions": "none"}})}
"""Rows that the paper has not, whose effect its text claims. [paper 3.5]"""


def select_rows(names: str) -> list[Row]:
    """The rows named in a comma-separated list, base first; a letter stands for all of its rows, `all` for all of the paper's."""
    known = ROWS | MORE_ROWS
    wanted, faults = {"base"}, []
    for name in (part.strip() for part in names.split(",") if part.strip()):
        group = [row for row in known if name == row or (row in ROWS and (name == "all" or (len(name) == 1 and row[0] == name)))]
        wanted.update(group)
        if not group:
            faults.append(f"--rows: no row {name!r}{_near(name)}")
    if faults:
        raise InputError(list_faults("the rows have", faults))
    return [row for name, row in known.items() if name in wanted]


def _near(name: str) -> str:
    near = suggest(name, [*ROWS, "all"])
    alike = [row for row in ROWS if row[0] == name[0].upper()]
    return near or f"; did you mean one of {', '.join(alike or ROWS)}?"


def describe_changes(changes: Values, recipe: Recipe) -> str:
    """The changes in the recipe's own numbers: `n_heads 4 → 8, d_k 32 → 16`; empty if nothing changes."""
    parts = []
    for section, keys in changes.items():
        for key, value in keys.items():
            before = current_value(recipe, section, key)
            if before != value:
                parts.append(f"{key} {before} → {value}")
    return ", ".join(parts)


def current_value(recipe: Recipe, section: str, key: str) -> object:
    """The current value of a setting, with head widths made explicit."""
    if section == "model" and key in ("d_k", "d_v"):
        return {"d_k": recipe.model.key_width, "d_v": recipe.model.value_width}[key]
    value: object = getattr(getattr(recipe, section), key)
    return value
