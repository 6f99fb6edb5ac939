"""Labelled bracketing scores by the conventions of EVALB with its COLLINS.prm. [paper 6.3, Table 4]

`tests/reference/test_evalb.py` runs EVALB itself on the same files.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from undivided.paper.parsing.trees import Leaf, Node, Tree

DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))
"""Labels that do not count: as a tag, the word is removed too; as a constituent, only the bracket."""

EQUAL = {"PRT": "ADVP"}
"""Labels that count as equal."""


class Bracket(NamedTuple):
    """A constituent: from before word `start` to before word `end`."""

    label: str
    start: int
    end: int

    def crosses(self, other: Bracket) -> bool:
        """Whether the two overlap without one inside the other."""
        return self.start < other.start < self.end < other.end or other.start < self.start < other.end < self.end


class Counts(NamedTuple):
    """Counts of one sentence; their sums are those of a corpus."""

    gold: int
    """Brackets of the reference."""
    ours: int
    matched: int
    crossing: int
    """Our brackets that cross one of the reference."""
    words: int
    tagged: int
    """Words with the right tag."""


def sentence_counts(gold: Tree, ours: Tree) -> Counts | None:
    """Compare two trees; None if their words differ after deletion."""
    gold_words, gold_brackets = _scored_parts(gold)
    our_words, our_brackets = _scored_parts(ours)
    if not our_words or [leaf.word for leaf in gold_words] != [leaf.word for leaf in our_words]:
        return None
    matched = (Counter(gold_brackets) & Counter(our_brackets)).total()
    crossing = sum(any(each.crosses(other) for other in gold_brackets) for each in our_brackets)
    tagged = sum(EQUAL.get(a.tag, a.tag) == EQUAL.get(b.tag, b.tag) for a, b in zip(gold_words, our_words, strict=True))
    return Counts(len(gold_brackets), len(our_brackets), matched, crossing, len(gold_words), tagged)


def _scored_parts(tree: Tree) -> tuple[list[Leaf], list[Bracket]]:
    """The words and brackets of a tree that are scored."""
    words: list[Leaf] = []

    def walk(tree: Tree) -> Iterator[Bracket]:
        if isinstance(tree, Leaf):
            if tree.tag not in DELETED:
                words.append(tree)
            return
        start = len(words)
        for child in tree.children:
            yield from walk(child)
        label = re.split(r"[-=]", tree.label, maxsplit=1)[0]
        if len(words) > start and label not in DELETED:
            yield Bracket(EQUAL.get(label, label), start, len(words))

    brackets = list(walk(tree))
    return words, brackets


@dataclass(frozen=True)
class Agreement:
    """Agreement of the trees of a corpus with the reference; fractions are in percent."""

    sentences: int
    invalid: int
    """Sentences whose words differ after deletion, or that are empty then: EVALB's errors and skips, which are not scored."""
    recall: float
    precision: float
    f1: float
    exact: float
    """Sentences with every bracket right."""
    crossing: float
    """Crossing brackets per sentence."""
    no_crossing: float
    """Sentences without a crossing bracket."""
    few_crossing: float
    """Sentences with at most two."""
    tagging: float

    def __str__(self) -> str:
        return (
            f"F1 {self.f1:.2f} (precision {self.precision:.2f}, recall {self.recall:.2f}), exact {self.exact:.2f} %, "
            f"{self.crossing:.2f} crossing per sentence, {self.no_crossing:.2f} % without, tags {self.tagging:.2f} %, "
            f"{self.sentences - self.invalid} of {self.sentences} sentences valid"
        )


def compute_agreement(counts: Sequence[Counts | None]) -> Agreement:
    """Compute the figures of a corpus from the counts of its sentences."""
    valid = [each for each in counts if each is not None]
    total = Counts(*map(sum, zip(*valid, strict=True))) if valid else Counts(0, 0, 0, 0, 0, 0)
    recall, precision = share(total.matched, total.gold), share(total.matched, total.ours)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    exact = share(sum(each.gold == each.ours == each.matched for each in valid), len(valid))
    none, few = (share(sum(each.crossing <= most for each in valid), len(valid)) for most in (0, 2))
    crossing = total.crossing / max(1, len(valid))
    tagging = share(total.tagged, total.words)
    return Agreement(len(counts), len(counts) - len(valid), recall, precision, f1, exact, crossing, none, few, tagging)


def share(part: int, whole: int) -> float:
    """A fraction in percent; 0 if the whole is 0."""
    return 100 * part / whole if whole else 0.0


def score_trees(gold: Iterable[Node], ours: Iterable[Node]) -> Agreement:
    """The agreement of two lists of trees over the same sentences."""
    return compute_agreement([sentence_counts(*both) for both in zip(gold, ours, strict=True)])
