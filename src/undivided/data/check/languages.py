"""Which language a line is in: by its script, and where several languages share one, by its words and how they begin and end.

The table has a weight for each of 48 languages and each of 3 × 16,384 buckets, to which words, their first three and their last
three letters are hashed. `tools/languages.py` counted it on the catalogues of free software.
"""

from __future__ import annotations

import json
import re
import zlib
from functools import cache
from importlib import resources
from typing import NamedTuple

import numpy as np

from undivided.data.check.block import Block, Numbers, mix
from undivided.data.check.characters import SCRIPTS, tables

BUCKETS = 1 << 14
SCALE = 16
"""Weights are sixteenths of a natural logarithm, in 8 bits."""
UNIT = 3 * SCALE
"""What a score of a line, the sum over three buckets of each word, is divided by for a mean logarithm."""
FIRST_WORDS = 64
"""Words of a line that are looked at: enough, and their sum fits into 16 bits."""
ONLY_HAN = 12
"""So many Chinese characters without Kana are not Japanese."""
CERTAIN = 99.0
SURE = 5.0
"""How much more likely, as a logarithm, another language must be than the expected one."""

ALONE = {
    "Greek": "el", "Armenian": "hy", "Hebrew": "he", "Bengali": "bn", "Gurmukhi": "pa", "Gujarati": "gu", "Tamil": "ta",
    "Telugu": "te", "Kannada": "kn", "Malayalam": "ml", "Sinhala": "si", "Thai": "th", "Lao": "lo", "Tibetan": "bo",
    "Myanmar": "my", "Georgian": "ka", "Hangul": "ko", "Ethiopic": "am", "Khmer": "km", "Kana": "ja", "Han": "zh",
}  # fmt: skip
"""Scripts that tell the language."""
SHARED = {
    "Cyrillic": ("ru", "uk", "bg", "mk", "sr", "be", "mn", "kk"),
    "Arabic": ("ar", "fa", "ur", "ug"),
    "Devanagari": ("hi", "ne", "mr"),
}
"""Scripts that languages of the table share; its others are written in Latin letters."""
MORE_SCRIPTS = {"ja": ("Han", "Kana"), "sr": ("Cyrillic", "Latin"), "yi": ("Hebrew",), "zh": ("Han",)}
SAME = {"nb": "no", "nn": "no", "da": "no", "bs": "hr", "sr-Latn": "hr", "ms": "id", "iw": "he", "gl": "pt", "in": "id"}
"""Languages that are too close to tell apart line by line; a line in one is never called wrong for the other."""


class Table(NamedTuple):
    """The weights, and the languages of its columns."""

    languages: tuple[str, ...]
    weights: Numbers
    """3 × (BUCKETS + 1) × languages; the last bucket says nothing."""


@cache
def language_table() -> Table:
    """The table that the package ships."""
    head, _, body = resources.files("undivided.data.check").joinpath("languages.table").read_bytes().partition(b"\n")
    languages = tuple(json.loads(head)["languages"])
    weights = np.frombuffer(zlib.decompress(body), np.int8).reshape(3, BUCKETS, len(languages))
    return Table(languages, np.concatenate([weights, np.zeros_like(weights[:, :1])], axis=1))


def word_buckets(block: Block) -> Numbers:
    """Of each word, the buckets of itself, its first and its last three letters."""
    words, lower = block.words, tables().lower
    length = words.end - words.start

    def letters(first: Numbers, step: int) -> Numbers:
        parts = np.zeros(len(first), np.uint64)
        for number in range(3):
            place = np.where(length > number, first + step * number, first)
            code = np.where(length > number, lower[block.codes[place]], 0).astype(np.uint64)
            parts = parts | (code << np.uint64(21 * number))
        return parts

    begins, ends = mix(letters(words.start, 1) + np.uint64(1)), mix(letters(words.end - 1, -1) ^ np.uint64(0xABCDEF12345))
    return (np.stack([words.hash, begins, ends]) >> np.uint64(20)).astype(np.int64) % BUCKETS


def language_scores(block: Block, table: Table | None = None) -> Numbers:
    """How likely each line is in each language of the table: lines × languages, as logarithms times `UNIT`."""
    table = table or language_table()
    order = np.argsort(-block.word_count, kind="stable")
    counts, start = block.word_count[order], (np.cumsum(block.word_count) - block.word_count)[order]
    sums = np.zeros((len(block), len(table.languages)), np.int16)
    buckets = word_buckets(block)
    # A single letter is a word in too many languages: a, e, i, o, y.
    buckets[:, block.words.end - block.words.start == 1] = BUCKETS
    for place in range(min(FIRST_WORDS, int(counts.max(initial=0)))):
        # The lines that have so many words are the first, since the longest are.
        count = int(np.searchsorted(-counts, -place))
        words = start[:count] + place
        for weights, of_words in zip(table.weights, buckets, strict=True):
            sums[:count] += weights[of_words[words]]
    scores = np.empty((len(block), len(table.languages)), np.int32)
    scores[order] = sums
    return scores


def plain_code(language: str) -> str:
    """A language code as the table has it: `pt` for `pt-BR`, `no` for `nb`."""
    base = re.split(r"[-_]", language)[0].lower()
    return {"nb": "no", "nn": "no", "iw": "he", "bs": "hr", "ms": "id", "in": "id"}.get(base, base)


def scripts_of(language: str) -> tuple[str, ...]:
    """The scripts that a language is written in; none where that is not known."""
    if language in MORE_SCRIPTS:
        return MORE_SCRIPTS[language]
    for script, languages in SHARED.items():
        if language in languages:
            return (script,)
    for script, alone in ALONE.items():
        if language == alone:
            return (script,)
    return ("Latin",) if language in language_table().languages else ()


class Detected(NamedTuple):
    """The language of each line: a number into `names`; 0 where nothing can be said."""

    names: tuple[str, ...]
    best: Numbers
    sure: Numbers
    """How much more likely it is than the expected language, as a logarithm."""


def detect(block: Block, expected: str = "") -> Detected:
    """The likeliest language of each line, and by how much it beats the expected one (without one: the second-best)."""
    table, expected = language_table(), plain_code(expected)
    names = ("", *table.languages, *ALONE.values())
    scripts, letters = block.scripts, block.letters
    kana, han = SCRIPTS.index("Kana"), SCRIPTS.index("Han")
    script = scripts[:, 1:].argmax(axis=1) + 1
    in_script = scripts[np.arange(len(block)), script]
    is_japanese = (scripts[:, kana] > 0) & ((script == han) | (script == kana))
    in_script[is_japanese] = (scripts[:, kana] + scripts[:, han])[is_japanese]
    script[is_japanese] = kana
    scores = language_scores(block, table)
    scores += _other_scripts(table.languages)[script]
    best, top = scores.argmax(axis=1), scores.max(axis=1)
    if expected in table.languages:
        # In another script, how likely words are in the expected language says nothing.
        rival = np.maximum(scores[:, table.languages.index(expected)], -(1 << 20))
        rival[rival == -(1 << 20)] = 0
    elif expected:
        rival = np.zeros(len(block), np.int32)
    else:
        rival = np.partition(scores, -2, axis=1)[:, -2]
    sure = np.clip((top - rival) / UNIT, 0.0, CERTAIN)
    best += 1
    for name, language in ALONE.items():
        here = script == SCRIPTS.index(name)
        best[here] = names.index(language, 1)
        sure[here] = 0.0 if name in scripts_of(expected) else CERTAIN
    if expected == "ja":
        sure[(script == han) & (letters >= ONLY_HAN)] = CERTAIN
    best[(letters < 2) | (in_script < 0.6 * letters)] = 0
    return Detected(names, best, sure)


@cache
def _other_scripts(languages: tuple[str, ...]) -> Numbers:
    """What is added to the score of each language for lines in each script, so that only languages of that script are left."""
    found = np.full((len(SCRIPTS), len(languages)), -(1 << 24), np.int32)
    for column, language in enumerate(languages):
        for script in scripts_of(language):
            found[SCRIPTS.index(script), column] = 0
    found[~(found == 0).any(axis=1)] = 0
    return found


def wrong_language(block: Block, expected: str) -> tuple[Numbers, Detected]:
    """Which lines are surely not in the expected language, and what they look like.

    A few foreign words prove nothing: Latin letters where others are expected need four words that some language knows.
    """
    found = detect(block, expected)
    expected = plain_code(expected)
    scripts = scripts_of(expected)
    if not scripts:
        return np.zeros(len(block), bool), found
    same = {SAME.get(expected, expected), expected}
    close = np.array([SAME.get(name, name) in same for name in found.names])
    wrong = (found.best > 0) & (found.sure > SURE) & ~close[found.best]
    is_latin = block.scripts[:, SCRIPTS.index("Latin")] * 2 > block.letters
    if "Latin" not in scripts:
        wrong &= ~is_latin | ((block.word_count >= 4) & (found.sure > 2 * SURE))
    has_words = np.bincount(block.words.line[block.words.end - block.words.start > 1], minlength=len(block)) >= 3
    return wrong & (has_words | (found.sure > 2 * SURE)) & ((block.word_count >= 2) | (block.letters >= 4)), found
