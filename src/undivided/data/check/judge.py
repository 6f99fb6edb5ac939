"""The rules that need nothing but the pair itself, and the usual lengths of its corpus: whole blocks are judged at once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from undivided.data.check.block import Block, Numbers
from undivided.data.check.characters import BROKEN, CONTROL, HIDDEN, LETTER, SCRIPTS, tables
from undivided.data.check.languages import Detected, wrong_language
from undivided.data.check.mojibake import find_mojibake
from undivided.data.check.rules import BITS

MARKS = frozenset(map(ord, "%{}<>$\\@"))
"""A line with none of these, and no `://`, has no placeholders."""
REMAINS = re.compile("▁|⁇|<unk>|<pad>|</s>|@@ ")
"""What programs leave in text that was split into subwords."""
SPACED = 7
"""So many single letters in a row, with a space between them, are a word spaced out."""
RUN = 12
"""So many times the same letter in a row is no word."""
FEW = 50
"""Pairs that tell something about the usual ratio of lengths."""


@dataclass(frozen=True)
class Usual:
    """The usual lengths of a corpus: log(target / source), its middle and how far pairs usually are from it."""

    middle: float = 0.0
    spread: float = 0.45

    @staticmethod
    def of(source: Block, target: Block) -> Usual:
        """Of the pairs of a block."""
        ratio = log_ratio(source, target)[(source.length > 0) & (target.length > 0)]
        if len(ratio) < FEW:
            return Usual()
        middle = float(np.median(ratio))
        return Usual(middle, max(0.12, 1.4826 * float(np.median(np.abs(ratio - middle)))))


def log_ratio(source: Block, target: Block) -> Numbers:
    """log(target / source) of the lengths; ten characters are added to both, so that short lines may differ more."""
    return np.log((target.length + 10) / (source.length + 10))


@dataclass(frozen=True)
class Expected:
    """What the pairs of a corpus should be."""

    source_lang: str
    target_lang: str
    usual: Usual
    max_chars: int
    placeholders: Callable[[str], Sequence[str]] | None = None
    """Finds what both sides must share."""


def judge(source: Block, target: Block, expected: Expected) -> tuple[Numbers, tuple[Detected, Detected]]:
    """The bits of the rules that each pair breaks, and the languages of both sides."""
    bits = np.zeros(len(source), np.uint32)

    def add(name: str, found: Numbers) -> None:
        bits[found] |= np.uint32(BITS[name])

    for name, kind in (("control", CONTROL), ("broken", BROKEN), ("hidden", HIDDEN)):
        add(name, source.has(kind) | target.has(kind) if name != "control" else _has_control(source) | _has_control(target))
    is_empty = _is_empty(source) | _is_empty(target)
    add("empty", is_empty)
    add("too-long", (source.length > expected.max_chars) | (target.length > expected.max_chars))
    add("mojibake", find_mojibake(source) | find_mojibake(target))
    add("mixed-scripts", _mixed_scripts(source) | _mixed_scripts(target))
    wrong_source, languages = wrong_language(source, expected.source_lang)
    wrong_target, theirs = wrong_language(target, expected.target_lang)
    swapped = wrong_source & wrong_target & _is(languages, expected.target_lang) & _is(theirs, expected.source_lang)
    equal = np.fromiter(map(str.__eq__, source.lines, target.lines), bool, len(source)) & ~is_empty
    copied = equal | copies(source, target)
    untranslated = copied & ((target.word_count >= 4) | wrong_target)
    add("swapped", swapped)
    add("untranslated", untranslated)
    add("equal", equal & ~untranslated)
    add("source-language", wrong_source & ~swapped)
    add("target-language", wrong_target & ~swapped & ~untranslated)
    add("mangled", _is_mangled(source, target) & ~is_empty)
    far = np.abs(log_ratio(source, target) - expected.usual.middle) > max(5.0 * expected.usual.spread, 0.9)
    add("length-ratio", far & ~is_empty)
    add("digits", (source.digit_hash != target.digit_hash) & ~is_empty)
    if expected.placeholders:
        add("placeholders", _placeholder_faults(source, target, expected.placeholders) & ~is_empty)
    return bits, (languages, theirs)


def _is(found: Detected, language: str) -> Numbers:
    base = re.split("[-_]", language)[0].lower()
    return np.array([name == base for name in found.names])[found.best]


def _is_empty(block: Block) -> Numbers:
    return np.fromiter((not line or line.isspace() for line in block.lines), bool, len(block))


def _has_control(block: Block) -> Numbers:
    """Control characters, without the line ends that join the block."""
    places = np.flatnonzero(block.kind == CONTROL)
    return block.count(places[block.codes[places] != ord("\n")]) > 0


def _mixed_scripts(block: Block) -> Numbers:
    """Neighbouring letters of which one is Latin and the other Greek or Cyrillic."""
    script = tables().script[block.codes]
    latin, alike = script == SCRIPTS.index("Latin"), (script == SCRIPTS.index("Greek")) | (script == SCRIPTS.index("Cyrillic"))
    if not alike.any():
        return np.zeros(len(block), bool)
    return block.count(np.flatnonzero((latin[:-1] & alike[1:]) | (alike[:-1] & latin[1:]))) > 0


def copies(source: Block, target: Block) -> Numbers:
    """Which targets are mostly words of their source: four in five, of four or more that have three letters."""
    ours, theirs = source.words, target.words
    long_ours, long_theirs = ours.end - ours.start > 2, theirs.end - theirs.start > 2
    place = np.uint64(0x9E3779B97F4A7C15)
    keys = ours.hash[long_ours] ^ (ours.line[long_ours].astype(np.uint64) * place)
    lines = theirs.line[long_theirs]
    wanted = theirs.hash[long_theirs] ^ (lines.astype(np.uint64) * place)
    count = np.bincount(lines, minlength=len(target))
    keys.sort()
    found = keys[np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)] == wanted if len(keys) else np.zeros(len(wanted), bool)
    shared = np.bincount(lines, weights=found, minlength=len(target))
    return (count >= 4) & (shared >= 0.8 * count)


def _is_mangled(source: Block, target: Block) -> Numbers:
    mangled = _loops(target) & ~_loops(source)
    for block in (source, target):
        text = "\n".join(block.lines)
        places = [found.start() for found in REMAINS.finditer(text)]
        mangled |= block.count(np.array(places, np.int64)) > 0
        same = (block.codes[1:] == block.codes[:-1]) & (block.kind[1:] == LETTER)
        mangled |= block.count(_runs(same, RUN - 1)) > 0
        words = block.words
        alone = words.end - words.start == 1
        spaced = alone[1:] & alone[:-1] & (words.start[1:] == words.end[:-1] + 1) & (words.line[1:] == words.line[:-1])
        mangled[words.line[_runs(spaced, SPACED - 1)]] = True
    return mangled


def _runs(flags: Numbers, length: int) -> Numbers:
    """Where so many flags in a row begin."""
    if not flags.any():
        return np.zeros(0, np.int64)
    sums = np.zeros(len(flags) + 1, np.int32)
    np.cumsum(flags, out=sums[1:])
    return np.flatnonzero(sums[length:] - sums[:-length] == length)


def _loops(block: Block) -> Numbers:
    """A word four times in a row, or two words in turn three times."""
    words = block.words
    found = np.zeros(len(block), bool)
    # Words with more than a comma and a space between them are a list: Value 1, Value 2, Value 3.
    is_next = np.concatenate([[False], words.start[1:] <= words.end[:-1] + 2]) if len(words.start) else np.zeros(0, bool)
    for period, span in ((1, 4), (2, 6), (3, 9)):
        same = (words.hash[period:] == words.hash[:-period]) & (words.line[period:] == words.line[:-period]) & is_next[period:]
        found[words.line[_runs(same, span - period)]] = True
    return found


def _placeholder_faults(source: Block, target: Block, find: Callable[[str], Sequence[str]]) -> Numbers:
    """Which pairs share not all placeholders; only lines with a mark of one are looked at."""
    marked = np.zeros(0x110000, bool)
    marked[list(MARKS)] = True
    suspects = np.zeros(len(source), bool)
    for block in (source, target):
        slashes = np.flatnonzero((block.codes[:-1] == ord("/")) & (block.codes[1:] == ord("/")))
        suspects |= (block.count(np.flatnonzero(marked[block.codes])) > 0) | (block.count(slashes) > 0)
    for number in np.flatnonzero(suspects).tolist():
        suspects[number] = Counter(find(source.lines[number])) != Counter(find(target.lines[number]))
    return suspects
