"""A look for the terminal: who looks at whom, in a few lines."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import numpy as np

from undivided.look.result import Look, Step, readable

WIDEST = 24
"""Columns of a token; a longer one is cut."""


def summary(look: Look) -> str:
    """The translation and, for each token written, its probability, where it looks, and what else could have come."""
    facts = look.facts
    names = [facts.source_lang or "source", facts.target_lang or "target"]
    rows = list(zip(names, (look.text, look.translation), strict=True))
    if look.forced:
        rows.append(("own", look.own))
    wide = max(len(name) for name, _ in rows)
    lines = [f"{name:{wide}}  {printable(text)}" for name, text in rows]
    given = "this translation was given" if look.forced else f"beam {facts.beam_size}"
    lines.append(f"score {look.score:.4f}, log-probability {look.log_probability:.4f}, {given}")
    lines += [*([look.remark] if look.remark else []), ""]
    return "\n".join([*lines, *_table(look)])


def _table(look: Look) -> list[str]:
    rows = [["writes", "prob.", "could also be"]]
    rows += [[shown(step.written.piece), f"{step.probability:.1%}", _others(step)] for step in look.steps]
    if look.cross.size:
        for row, cell in zip(rows, ["looks at (mean of all heads)", *_looks(look)], strict=True):
            row.insert(2, cell)
    widths = [max(columns(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return ["  ".join([*(padded(cell, width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in rows]


def _looks(look: Look) -> Iterator[str]:
    """Of each position, the source tokens that get most of its attention."""
    source = [shown(token.piece) for token in look.source]
    for weights in look.cross.mean(axis=(0, 1)):
        best = np.argsort(-weights, kind="stable")[:3]
        yield ", ".join(f"{source[place]} {weights[place]:.0%}" for place in best if weights[place] >= 0.01)


def _others(step: Step) -> str:
    others = [each for each in step.candidates if each.id != step.written.id and each.probability >= 0.01][:3]
    return ", ".join(f"{shown(each.piece)} {each.probability:.0%}" for each in others)


def shown(piece: str) -> str:
    """A token that is not too long."""
    text = printable(readable(piece))
    return text if columns(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def printable(text: str) -> str:
    """A text without what would move the cursor of a terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def columns(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def padded(text: str, width: int) -> str:
    """A text filled with spaces to so many columns."""
    return text + " " * (width - columns(text))
