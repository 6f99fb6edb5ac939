"""Outputs that repeat themselves: found after decoding, and prevented when a sentence is decoded again."""

from __future__ import annotations

from collections.abc import Sequence

LONGEST_PERIOD = 64
"""Tokens, or words, of the longest sequence whose repetition is looked for."""

FEWEST_REPEATS = 4
"""A sequence must stand there this often, without a break, to count as a loop; a single token twice as often."""

FEWEST_WORDS = 5
"""Words must stand there this often, without a break, to count as a loop, whatever their tokens."""

BLOCKED = 4
"""Tokens of a sequence that may not occur twice when a sentence is decoded again."""


def longest_loop(tokens: Sequence[int]) -> int:
    """How many tokens the longest loop takes up; 0 where there is none."""
    return max((_loop(tokens, period) for period in range(1, min(LONGEST_PERIOD, len(tokens) // FEWEST_REPEATS) + 1)), default=0)


def _loop(tokens: Sequence[int], period: int) -> int:
    needed = period * (FEWEST_REPEATS if period > 1 else 2 * FEWEST_REPEATS)
    longest = run = 0
    for place in range(period, len(tokens)):
        run = run + 1 if tokens[place] == tokens[place - period] else 0
        longest = max(longest, run)
    return longest + period if longest and longest + period >= needed else 0


def is_looped(source: Sequence[int], output: Sequence[int]) -> bool:
    """Whether an output repeats itself, and not because its source does."""
    found = longest_loop(output)
    return found > 0 and found > 2 * longest_loop(source)


def find_repeats(tokens: Sequence[int], size: int) -> list[int]:
    """The tokens after which the last `size` tokens would stand there twice."""
    last = list(tokens[len(tokens) - size + 1 :]) if size > 1 else []
    return [tokens[at + size - 1] for at in range(len(tokens) - size + 1) if list(tokens[at : at + size - 1]) == last]


def is_looped_text(source: str, output: str) -> bool:
    """Whether the words of an output repeat themselves, and not because those of its source do."""
    return _repeats(output.split()) and not _repeats(source.split())


def _repeats(words: Sequence[str]) -> bool:
    for period in range(1, min(LONGEST_PERIOD, len(words) // FEWEST_WORDS) + 1):
        run = 0
        for place in range(period, len(words)):
            run = run + 1 if words[place] == words[place - period] else 0
            if run >= period * (FEWEST_WORDS - 1) and any(map(str.isalpha, "".join(words[place - period + 1 : place + 1]))):
                return True
    return False
