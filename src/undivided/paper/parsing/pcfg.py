"""A probabilistic context-free grammar estimated from trees: a baseline for the trained parsers. [paper 6.3]

Unlexicalised, as in Klein and Manning (2003): labels are annotated with their parent, long rules are binarised with limited
horizontal memory, and unknown words are classified by shape and ending.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from undivided.paper.parsing.trees import TOP, Leaf, Node, Tree, escape_brackets, unescape_brackets

Rule = tuple[str, ...]
"""Left-hand side, then one or two symbols of the right-hand side."""

REMEMBERED = 1
"""Siblings that a binarised rule remembers."""

RARE = 3
"""Words that occur at most so often are used to model unknown words."""

TRUST = 5.0
"""Smoothing: this many occurrences of a word weigh as much as its word class."""


class Grammar:
    """Rules with log-probabilities, and a lexicon. Symbols are `label^parent`; `@…` is an intermediate symbol."""

    def __init__(self, trees: Iterable[Node]) -> None:
        binary: Counter[Rule] = Counter()
        unary: Counter[Rule] = Counter()
        starts: Counter[str] = Counter()
        words: list[tuple[str, str]] = []
        for tree in trees:
            rules = list(_rules(*_root(tree)))
            starts[rules[-1][0]] += 1
            for rule in rules:
                if len(rule) == 3:
                    binary[rule] += 1
                elif rule[0].startswith("\0"):
                    words.append((rule[0][1:], rule[1]))
                else:
                    unary[rule] += 1
        totals: Counter[str] = Counter()
        for counts in (binary, unary):
            for rule, count in counts.items():
                totals[rule[0]] += count
        self.binary = {rule: math.log(count / totals[rule[0]]) for rule, count in binary.items()}
        self.unary = {rule: math.log(count / totals[rule[0]]) for rule, count in unary.items()}
        self.starts = {symbol: math.log(count / starts.total()) for symbol, count in starts.items()}
        totals.update(tag for tag, _ in words)
        self.symbols = sorted(totals)
        self.prior = {symbol: math.log(count / totals.total()) for symbol, count in totals.items()}
        self.lexicon = Lexicon(words)


def _root(tree: Node) -> tuple[Tree, str]:
    """The sentence below `TOP`; if `TOP` has several children it is a constituent itself."""
    return (tree.children[0], TOP) if len(tree.children) == 1 else (tree, TOP)


def _rules(tree: Tree, parent: str) -> Iterator[Rule]:
    """The rules of a tree, binary and unary, those of its top last; a word under its tag is (NUL tag, word).

    A chain of constituents with one child each is one symbol with a `+`, so that a unary rule is never followed by another.
    """
    chain: list[str] = []
    above = parent
    while isinstance(tree, Node) and len(tree.children) == 1:
        chain.append(tree.label)
        above, tree = tree.label, tree.children[0]
    if isinstance(tree, Leaf):
        symbol = f"{tree.tag}^{above}"
        yield f"\0{symbol}", unescape_brackets(tree.word)
    else:
        symbol = f"{tree.label}^{above}"
        children = []
        for child in tree.children:
            for rule in _rules(child, tree.label):
                yield rule
            children.append(rule[0].removeprefix("\0"))
        yield from _binarise(symbol, children)
    if chain:
        yield f"{'+'.join(chain)}+^{parent}", symbol


def _binarise(symbol: str, children: Sequence[str]) -> Iterator[Rule]:
    """A → B C D as A → B @A|B and @A|B → C D; the rule of the symbol itself last."""
    seen = [child.partition("^")[0].rstrip("+") for child in children]
    lefts = [symbol] + [f"@{symbol}|{','.join(seen[max(0, n - REMEMBERED) : n])}" for n in range(1, len(children) - 1)]
    rules = [(left, child, rest) for (left, rest), child in zip(pairwise(lefts), children, strict=False)]
    rules.append((lefts[-1], children[-2], children[-1]))
    yield from reversed(rules)


class Lexicon:
    """Scores of tags for words: log p(tag | word) − log p(tag), which ranks as log p(word | tag) does."""

    def __init__(self, tagged: Sequence[tuple[str, str]]) -> None:
        self.counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for tag, word in tagged:
            self.counts[word][tag] += 1
        self.tags = Counter(tag for tag, _ in tagged)
        self.classes: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for word, tags in self.counts.items():
            if tags.total() <= RARE:
                for name in classes(word):
                    self.classes[name].update(tags)

    def scores(self, word: str) -> dict[str, float]:
        """A score for every tag that a word may have."""
        seen, alike = self.counts.get(word, Counter()), self._alike(word)
        weight = TRUST / (seen.total() + TRUST)
        result = {}
        for tag in seen.keys() | alike.keys():
            direct = seen[tag] / seen.total() if seen else 0.0
            chance = (1 - weight) * direct + weight * alike[tag] / alike.total()
            result[tag] = math.log(chance) - math.log(self.tags[tag] / self.tags.total())
        return result

    def _alike(self, word: str) -> Counter[str]:
        """Tag counts of rare words in the most specific class that is frequent enough."""
        for name in classes(word):
            if self.classes[name].total() >= 20:
                return self.classes[name]
        return self.classes[""] or self.tags


def classes(word: str) -> list[str]:
    """Word classes from specific to general: shape with ending, shape alone, any word."""
    shape = "".join(
        mark
        for mark, pattern in (("C", r"^[A-Z]"), ("U", r"^[^a-z]+$"), ("d", r"\d"), ("l", r"[a-z]"), ("g", r"[^\x00-\x7f]"))
        if re.search(pattern, word)
    )
    return [f"{shape}-{word[-3:].lower()}", f"{shape}-{word[-2:].lower()}", f"{shape}-", ""]


def unbinarise(symbol: str, children: list[Tree]) -> Node:
    """The constituent of a symbol of the grammar; a chain of labels becomes a chain of constituents."""
    *chain, lowest = symbol.partition("^")[0].rstrip("+").split("+")
    tree = Node(lowest, tuple(children))
    for label in reversed(chain):
        tree = Node(label, (tree,))
    return tree


def word_leaf(symbol: str, word: str) -> Leaf:
    """A word under the tag of a symbol."""
    return Leaf(symbol.partition("^")[0], escape_brackets(word))
