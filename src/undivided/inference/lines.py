"""Translations → lines of output, and what a person should know of each."""

from __future__ import annotations

from collections.abc import Iterator

from undivided.inference.translator import Translation


def describe_problems(number: int, result: Translation, n_best: int = 1) -> Iterator[str]:
    """Warnings on the translation of a line."""
    if result.pieces > 1:
        only = ", so there is one translation of it" if n_best > 1 else ""
        yield f"line {number}: longer than what training saw, translated in {result.pieces} pieces{only}"
    if not result.finished:
        yield f"line {number}: the translation did not end by itself and was cut (--max-extra allows more)"


def format_line(number: int, result: Translation, scores: bool, n_best: int) -> str:
    """One line; with `--n-best`, one for each translation, after the number of the source: `3 ||| text ||| score`."""
    if n_best > 1:
        ranked = result.alternatives or ((result.text, result.score),)
        return "".join(f"{number} ||| {text} ||| {score:.4f}\n" for text, score in ranked)
    return f"{result.score:.4f}\t{result.text}\n" if scores else f"{result.text}\n"
