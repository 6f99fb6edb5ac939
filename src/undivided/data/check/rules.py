"""The rules of `undivided check`: what each finds, and whether `--clean` removes such pairs."""

from __future__ import annotations

from typing import NamedTuple


class Rule(NamedTuple):
    """One thing that may be wrong with a pair."""

    finds: str
    removes: bool
    """Whether `--clean` removes such pairs unless told otherwise; else they are only reported."""


RULES = {
    "not-utf8": Rule("bytes that are not valid UTF-8", True),
    "columns": Rule("not exactly two tab-separated columns", True),
    "empty": Rule("empty on one side or both", True),
    "too-long": Rule("more characters than --max-chars on a side", True),
    "control": Rule("control characters, such as NUL or escape", True),
    "broken": Rule("broken characters: U+FFFD, half characters, private use", True),
    "hidden": Rule("characters that are shown as nothing: byte-order marks inside a line, zero-width spaces, soft hyphens", False),
    "mojibake": Rule("UTF-8 that was read in another encoding: Ã¤ for ä, â€™ for ’", True),
    "mixed-scripts": Rule("a word with letters of two scripts that look alike: a Cyrillic а in a Latin word", False),
    "source-language": Rule("source in another language", True),
    "target-language": Rule("target in another language", True),
    "swapped": Rule("source in the language of the target, and target in that of the source", True),
    "untranslated": Rule("target that is, nearly, the source", True),
    "equal": Rule("source equal to target, but too short to say that it is untranslated: a name, a number", False),
    "mangled": Rule("words that loop, remains of tokens (▁, @@, <unk>, ⁇), runs of one character, letters s p a c e d out", True),
    "length-ratio": Rule("lengths that do not belong together, judged by the other pairs", True),
    "placeholders": Rule("placeholders, tags or addresses that the sides do not share", True),
    "digits": Rule("digits that the sides do not share", False),
    "misaligned": Rule("line n of one side does not translate line n of the other, but a line before or after it", True),
    "duplicate": Rule("a pair that has occurred before", True),
    "near-duplicate": Rule("a pair that has occurred before, but for case, digits, spaces or punctuation", False),
    "leak": Rule("a source or target that --valid or --test has too", True),
}

BITS = {name: 1 << number for number, name in enumerate(RULES)}
"""The bit of each rule in the 32 bits that are kept of every pair."""


def bits_of(names: list[str]) -> int:
    """The bits of some rules, put together."""
    return sum(BITS[name] for name in names)
