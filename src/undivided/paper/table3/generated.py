"""A generated language pair with one right answer, on which heads, depth, width and positions have work to do. [paper 6.2]

A source is words and groups of words in nested brackets. Its translation has no brackets: a group is said backwards, those
within it backwards once more, and each word becomes the form of its translation that agrees with the first word of its group.
So order and nesting must be known (positions, depth), a word and its group's first looked up at once (heads), and a dictionary
with several forms of each word remembered (widths).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from undivided.config.settings import Values
from undivided.core.files import write_atomic
from undivided.core.ids import EOS
from undivided.paper.runs import pin_settings

OPEN, CLOSE = "(", ")"
SOURCE, TARGET = 0x4E00, 0x6000
"""Where the letters of both languages begin: a word is one letter, here a Chinese character."""

MOST_WORDS = 14_000
"""Letters of the target: the Chinese characters from there on."""


@dataclass(frozen=True)
class Language:
    """How large and how hard it is."""

    words: int = 64
    """In the source; the target has `forms` of each."""
    forms: int = 4
    depth: int = 3
    """Brackets within brackets at most."""
    shortest: int = 6
    longest: int = 20
    """Words of a sentence."""
    pairs: int = 30_000
    held_out: int = 500
    """Pairs of validation and of test, each."""

    def faults(self) -> list[str]:
        """What cannot be."""
        found = []
        if not 2 <= self.words <= TARGET - SOURCE:
            found.append(f"--generated-words: {self.words} is not between 2 and {TARGET - SOURCE:,}")
        if self.words * self.forms > MOST_WORDS:
            found.append(f"--generated-forms: {self.words} words in {self.forms} forms each are more than {MOST_WORDS:,}")
        if not self.shortest <= self.longest <= 200:
            found.append(f"--generated-longest: {self.longest} is not between {self.shortest} and 200")
        if self.depth > 20:
            found.append(f"--generated-depth: {self.depth} is more than 20")
        return found


Group = list["str | Group"]


def source_word(number: int) -> str:
    """A word of the source."""
    return chr(SOURCE + number)


def target_word(number: int, form: int, forms: int) -> str:
    """A word of the target in one of its forms."""
    return chr(TARGET + number * forms + form)


def draw_group(language: Language, words: int, depth: int, chance: random.Random) -> Group:
    """So many words, some of them in brackets. A group begins with a word, which its words agree with."""
    group: Group = [source_word(chance.randrange(language.words))]
    words -= 1
    while words:
        inner = chance.randint(2, max(2, words)) if depth and words > 1 and chance.random() < 0.35 else 0
        group.append(draw_group(language, inner, depth - 1, chance) if inner else source_word(chance.randrange(language.words)))
        words -= inner or 1
    return group


def write_source(group: Group) -> str:
    """Words and brackets, separated by spaces."""
    return " ".join(each if isinstance(each, str) else f"{OPEN} {write_source(each)} {CLOSE}" for each in group)


def translate(group: Group, dictionary: dict[str, int], forms: int, *, backwards: bool = False) -> list[str]:
    """The one right translation of a group. The whole sentence is said forwards."""
    head = group[0]
    assert isinstance(head, str)
    said: list[list[str]] = []
    for each in group:
        if isinstance(each, str):
            said.append([target_word(dictionary[each], dictionary[head] % forms, forms)])
        else:
            inner = translate(each, dictionary, forms, backwards=True)
            # Said backwards as a whole, what is inside turns once more.
            said.append(inner[::-1] if backwards else inner)
    return [word for part in (said[::-1] if backwards else said) for word in part]


def draw_pairs(language: Language) -> Iterator[tuple[str, str]]:
    """Different sentences and their translations, always the same ones."""
    chance = random.Random(1)
    numbers = list(range(language.words))
    chance.shuffle(numbers)
    dictionary = {source_word(at): number for at, number in enumerate(numbers)}
    seen: set[str] = set()
    while True:
        group = draw_group(language, chance.randint(language.shortest, language.longest), language.depth, chance)
        source = write_source(group)
        if source not in seen:
            seen.add(source)
            yield source, " ".join(translate(group, dictionary, language.forms))


def write_corpus(language: Language, folder: Path) -> dict[str, list[str]]:
    """Training, validation and test files of a language; those that are there are not written again."""
    pin_settings(folder / "language.json", asdict(language), "a generated language")
    pairs = draw_pairs(language)
    files: dict[str, list[str]] = {}
    for part, count in (("test", language.held_out), ("valid", language.held_out), ("train", language.pairs)):
        files[part] = [str(folder / f"{part}.{side}") for side in ("source", "target")]
        rows = [next(pairs) for _ in range(count)]
        for at, path in enumerate(map(Path, files[part])):
            if not path.exists():
                write_atomic(path, "".join(f"{row[at]}\n" for row in rows))
    return files


def language_settings(language: Language, files: dict[str, list[str]]) -> Values:
    """The settings of a recipe that fit: a subword for each word, nothing protected."""
    data = {"train": [files["train"]], "valid": [files["valid"]], "source_lang": "x", "target_lang": "y"}
    return {
        "preset": "tiny",
        "data": data,
        "tokens": {"vocab_size": vocabulary_size(language), "character_coverage": 1.0, "protect": False},
        "model": {"norm": "pre", "dropout": 0.1},
        "batches": {"tokens": 2048},
        "train": {"schedule": "cosine", "rate": 0.003, "warmup_steps": 400, "clip": 1.0, "max_steps": 4000, "threads": 1},
    }


def vocabulary_size(language: Language) -> int:
    """Special tokens and bytes, letters and the mark of a word's beginning, and each word with that mark: one subword a word."""
    letters = language.words * (1 + language.forms) + len({OPEN, CLOSE})
    return EOS + 1 + 256 + letters + 1 + letters
