"""Translations → lines of output, and what a person should know of each."""

from __future__ import annotations

from collections.abc import Iterator

from undivided.inference.translator import Translation
from undivided.inference.verdicts import Verdict

SOUND_VERDICT = Verdict("ok")


def describe_problems(number: int, result: Translation, verdict: Verdict = SOUND_VERDICT) -> Iterator[str]:
    """Warnings on the translation of a line."""
    if verdict.name in ("unknown-script", "looped", "placeholder-lost"):
        yield f"line {number}: {verdict.name}: {verdict.reason}"
    if result.split == "long":
        yield f"line {number}: longer than what training saw, translated in {result.pieces} pieces"
    if result.split == "short":
        yield f"line {number}: its translation as a whole was much too short, so it was translated in {result.pieces} pieces"
    if result.short:
        yield f"line {number}: the translation is much shorter than its source; something may be missing"
    if not result.finished:
        yield f"line {number}: the translation did not end by itself and was cut (--max-extra allows more)"


def format_line(number: int, result: Translation, scores: bool, n_best: int) -> str:
    """One line; with `--scores` or `--n-best` one for each translation: number of the source line, score and text, with tabs."""
    if not scores and n_best == 1:
        return f"{result.text}\n"
    ranked = result.alternatives or ((result.text, result.score),)
    return "".join(f"{number}\t{score:.4f}\t{text}\n" for text, score in ranked[:n_best])
