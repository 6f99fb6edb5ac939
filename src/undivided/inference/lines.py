"""Lines of bytes → text to translate, and translations → lines, with what a person should know of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from undivided.core.errors import InputError
from undivided.data.text_files import MAX_LINE_BYTES
from undivided.inference.translator import Translation
from undivided.inference.workers.job import too_long_line


def decoded(lines: Iterable[bytes], name: str, warn: Callable[[str], None], first: int = 0) -> Iterator[str]:
    """Lines to translate; what is not UTF-8 is marked and said, so that no line is lost."""
    for number, line in enumerate(lines, first + 1):
        if b"\0" in line:
            raise InputError(f"{name}, line {number:,}: holds a NUL character; is this a text file?")
        if len(line) > MAX_LINE_BYTES:
            raise too_long_line(name, number)
        try:
            yield line.decode("utf-8")
        except UnicodeDecodeError:
            warn(f"line {number}: not valid UTF-8, the broken parts are read as \ufffd")
            yield line.decode("utf-8", errors="replace")


def remarks(number: int, result: Translation, n_best: int = 1) -> Iterator[str]:
    """What a person should know of the translation of a line."""
    if result.pieces > 1:
        only = ", so there is one translation of it" if n_best > 1 else ""
        yield f"line {number}: longer than what training saw, translated in {result.pieces} pieces{only}"
    if not result.finished:
        yield f"line {number}: the translation did not end by itself and was cut (--max-extra allows more)"


def written(number: int, result: Translation, scores: bool, n_best: int) -> str:
    """One line; with `--n-best`, as many lines as asked, each behind its number: `3 ||| text ||| score`."""
    if n_best > 1:
        ranked = result.alternatives or ((result.text, result.score),)
        return "".join(f"{number} ||| {text} ||| {score:.4f}\n" for text, score in ranked)
    return f"{result.score:.4f}\t{result.text}\n" if scores else f"{result.text}\n"
