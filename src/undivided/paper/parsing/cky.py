"""The most probable tree of a sentence under a grammar, by the CKY algorithm in numpy. [paper 6.3]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from undivided.paper.parsing.pcfg import Grammar, unbinarise, word_leaf
from undivided.paper.parsing.trees import TOP, Node, Tree

NEVER = np.float32(-1e30)

WORTH = 14.0
"""Pruning: in a span, symbols whose log-probability with prior is this much below the best are dropped."""

MOST_SYMBOLS = 100
"""Pruning: at most so many symbols are kept in a span."""

LONGEST = 100
"""Longer sentences are parsed in pieces, cut at punctuation: memory grows with n² and time with n³."""


@dataclass(frozen=True)
class Parse:
    """A tree, and whether the sentence was cut or the grammar failed."""

    tree: Node
    pieces: int = 1
    """More than one if the sentence was cut."""
    failed: int = 0
    """Pieces without a tree under the grammar; their words become siblings."""


@dataclass(frozen=True)
class Cell:
    """The symbols that may cover one span: scores, and for each the rule and split point (`divides`) it came from.

    A rule number below 0 is a unary rule, −1 − its number; a split point of −1 is a word.
    """

    symbols: np.ndarray
    scores: np.ndarray
    rules: np.ndarray
    divides: np.ndarray


class Parser:
    """A CKY parser for one grammar."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.names = grammar.symbols
        self.ids = {name: number for number, name in enumerate(self.names)}
        binary = sorted((tuple(self.ids[part] for part in rule), score) for rule, score in grammar.binary.items())
        self.above, self.left, self.right = (np.array([rule[at] for rule, _ in binary], dtype=np.int64) for at in range(3))
        self.weights = np.array([score for _, score in binary], dtype=np.float32)
        unary = sorted((tuple(self.ids[part] for part in rule), score) for rule, score in grammar.unary.items())
        self.unary_above, self.unary_below = (np.array([rule[at] for rule, _ in unary], dtype=np.int64) for at in range(2))
        self.unary_weights = np.array([score for _, score in unary], dtype=np.float32)
        self.prior = np.array([grammar.prior[name] for name in self.names], dtype=np.float32)
        self.starts = {self.ids[name]: score for name, score in grammar.starts.items()}

    def parse(self, words: Sequence[str]) -> Parse:
        """Parse a sentence; the result is always a tree."""
        if not words:
            return Parse(Node(TOP, ()))
        parts = split_sentence(words, LONGEST)
        trees = [self._chart(part) for part in parts]
        failed = sum(tree is None for tree in trees)
        children = [
            child for tree, part in zip(trees, parts, strict=True) for child in (self._flat(part) if tree is None else (tree,))
        ]
        if len(parts) > 1 or failed:
            children = [Node("S", tuple(children))]
        return Parse(Node(TOP, tuple(children)), len(parts), failed)

    def _flat(self, words: Sequence[str]) -> list[Tree]:
        """The words as siblings, each under its most probable tag."""
        result: list[Tree] = []
        for word in words:
            scores = self.grammar.lexicon.scores(word)
            best = max(scores, key=lambda tag: (scores[tag] + self.grammar.prior[tag], tag))
            result.append(word_leaf(best, word))
        return result

    def _chart(self, words: Sequence[str]) -> Tree | None:
        """Fill the chart from short to long spans; the best tree, or None if the grammar has none."""
        size, count = len(words), len(self.names)
        chart: dict[tuple[int, int], Cell] = {}
        # Scores of all symbols over each span, by start and by end, so that all split points of a span are one slice.
        by_start = np.full((size, size + 1, count), NEVER, dtype=np.float32)
        by_end = np.full((size + 1, size, count), NEVER, dtype=np.float32)
        for width in range(1, size + 1):
            for start in range(size - width + 1):
                end = start + width
                cell = self._word(words[start]) if width == 1 else self._span(start, end, by_start, by_end)
                chart[start, end] = cell
                by_start[start, end, cell.symbols] = cell.scores
                by_end[end, start, cell.symbols] = cell.scores
        top = chart[0, size]
        scores = [score + self.starts.get(int(symbol), NEVER) for symbol, score in zip(top.symbols, top.scores, strict=True)]
        if not scores or max(scores) <= NEVER / 2:
            return None
        (tree,) = self._tree(chart, words, 0, size, int(top.symbols[int(np.argmax(scores))]))
        return tree

    def _word(self, word: str) -> Cell:
        scores = np.full(len(self.names), NEVER, dtype=np.float32)
        for tag, score in self.grammar.lexicon.scores(word).items():
            scores[self.ids[tag]] = score
        rules, divides = np.zeros(len(scores), dtype=np.int64), np.full(len(scores), -1)
        return self._prune(scores, rules, divides)

    def _span(self, start: int, end: int, by_start: np.ndarray, by_end: np.ndarray) -> Cell:
        lefts, rights = by_start[start, start + 1 : end], by_end[end, start + 1 : end]  # divides × symbols
        useful = np.flatnonzero((lefts.max(0) > NEVER)[self.left] & (rights.max(0) > NEVER)[self.right])
        scores = np.full(len(self.names), NEVER, dtype=np.float32)
        rules, divides = np.zeros(len(scores), dtype=np.int64), np.zeros(len(scores), dtype=np.int64)
        if len(useful):
            both = lefts[:, self.left[useful]] + rights[:, self.right[useful]]  # divides × rules
            where = both.argmax(0)
            values = both[where, np.arange(len(useful))] + self.weights[useful]
            # Rules are sorted by their left-hand side: the best of each run is the best of its symbol.
            above = self.above[useful]
            order = np.lexsort((values, above))
            last = order[np.flatnonzero(np.append(above[order][1:] != above[order][:-1], True))]
            scores[above[last]] = values[last]
            rules[above[last]], divides[above[last]] = useful[last], start + 1 + where[last]
        return self._prune(scores, rules, divides)

    def _prune(self, scores: np.ndarray, rules: np.ndarray, divides: np.ndarray) -> Cell:
        """Apply one unary step, then drop improbable symbols."""
        values = scores[self.unary_below] + self.unary_weights
        order = np.lexsort((values, self.unary_above))
        sorted_above = self.unary_above[order]
        last = order[np.flatnonzero(np.append(sorted_above[1:] != sorted_above[:-1], True))] if len(order) else order
        better = last[values[last] > scores[self.unary_above[last]]]
        scores[self.unary_above[better]], rules[self.unary_above[better]] = values[better], -1 - better
        likely = scores + self.prior
        best = np.flatnonzero(likely > max(likely.max() - WORTH, NEVER / 2))
        if len(best) > MOST_SYMBOLS:
            best = best[np.argpartition(-likely[best], MOST_SYMBOLS)[:MOST_SYMBOLS]]
        # The child of a kept unary rule must be kept too, even if it is improbable by itself.
        best = np.union1d(best, self.unary_below[-1 - rules[best][rules[best] < 0]])
        return Cell(best, scores[best], rules[best], divides[best])

    def _tree(self, chart: dict[tuple[int, int], Cell], words: Sequence[str], start: int, end: int, symbol: int) -> list[Tree]:
        """The trees of a symbol over a span: one, or several for an intermediate symbol of a binarised rule."""
        cell = chart[start, end]
        at = int(np.flatnonzero(cell.symbols == symbol)[0])
        rule, divide, name = int(cell.rules[at]), int(cell.divides[at]), self.names[symbol]
        if rule < 0:
            below = self._tree(chart, words, start, end, int(self.unary_below[-1 - rule]))
            return [unbinarise(name, below)]
        if divide < 0:
            return [word_leaf(name, words[start])]
        children = self._tree(chart, words, start, divide, int(self.left[rule]))
        children += self._tree(chart, words, divide, end, int(self.right[rule]))
        return children if name.startswith("@") else [unbinarise(name, children)]


def split_sentence(words: Sequence[str], longest: int) -> list[Sequence[str]]:
    """Cut a sentence into pieces of at most `longest` words, after the last punctuation in the second half if any."""
    pieces: list[Sequence[str]] = []
    while len(words) > longest:
        places = [place for place in range(longest // 2, longest) if words[place] in (";", ",", ".", ":", ")")]
        end = places[-1] + 1 if places else longest
        pieces.append(words[:end])
        words = words[end:]
    return [*pieces, words]
