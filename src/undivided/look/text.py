"""A look as text for the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

import numpy as np

from undivided.look.result import Look, Step, readable_piece

MAX_TOKEN_WIDTH = 24
"""Terminal columns of a token; a longer one is cut."""


def summarize(look: Look) -> str:
    """The translation and, for each token, its probability, what it attends to, and other candidates."""
    facts = look.facts
    names = [facts.source_lang or "source", facts.target_lang or "target"]
    rows = list(zip(names, (look.text, look.translation), strict=True))
    if look.forced:
        rows.append(("model", look.own))
    wide = max(len(name) for name, _ in rows)
    lines = [f"{name:{wide}}  {replace_unprintable(text)}" for name, text in rows]
    given = "this translation was given" if look.forced else f"beam {facts.beam_size}"
    lines.append(f"score {look.score:.4f}, log-probability {look.log_probability:.4f}, {given}")
    lines += [*([look.remark] if look.remark else []), ""]
    return "\n".join([*lines, *_table(look)])


def _table(look: Look) -> list[str]:
    rows = [["writes", "prob.", "other candidates"]]
    rows += [[fit_token(step.written.piece), f"{step.probability:.1%}", _others(step)] for step in look.steps]
    if look.cross.size:
        for row, cell in zip(rows, ["attends to (mean of all heads)", *_list_attended(look)], strict=True):
            row.insert(2, cell)
    widths = [max(terminal_width(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return [
        "  ".join([*(pad_to_width(cell, width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip()
        for row in rows
    ]


def _list_attended(look: Look) -> Iterator[str]:
    """For each position, the source tokens that get most of its attention."""
    source = [fit_token(token.piece) for token in look.source]
    for weights in look.cross.mean(axis=(0, 1)):
        best = np.argsort(-weights, kind="stable")[:3]
        yield ", ".join(f"{source[place]} {weights[place]:.0%}" for place in best if weights[place] >= 0.01)


def _others(step: Step) -> str:
    others = [each for each in step.candidates if each.id != step.written.id and each.probability >= 0.01][:3]
    return ", ".join(f"{fit_token(each.piece)} {each.probability:.0%}" for each in others)


def fit_token(piece: str) -> str:
    """A token in at most MAX_TOKEN_WIDTH columns."""
    text = replace_unprintable(readable_piece(piece))
    return text if terminal_width(text) <= MAX_TOKEN_WIDTH else f"{text[: MAX_TOKEN_WIDTH - 1]}…"


def replace_unprintable(text: str) -> str:
    """A text with � for what has no fixed width or would control the terminal."""
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)


def terminal_width(text: str) -> int:
    """How many terminal columns a text takes."""
    return sum(0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)


def pad_to_width(text: str, width: int) -> str:
    """A text padded with spaces to a number of terminal columns."""
    return text + " " * (width - terminal_width(text))
