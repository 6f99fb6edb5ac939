"""Trees as text for a sequence-to-sequence model, and model outputs repaired to trees. [paper 6.3]

Two ways to write `(S (NP (PRP It)) (VP (VBZ rains)))`, with tags (`keep`) or one symbol for all of them (`xx`):

- `vinyals` (Vinyals et al., 2015): `(S (NP XX )NP (VP XX )VP )S`, every bracket a token of its own, closing ones with labels.
- `compact`: `(S(NP|XX) (VP|XX))`, one token for each word, with the brackets that open before it and close after it. A treebank
  has few such tokens (1,100 in 26,500 trees, 2,900 with tags), targets are less than half as long, and token i of the target
  belongs to token i of the source: if a word has several subwords, the target has `~` for all but the first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Literal, get_args

from undivided.paper.parsing.trees import TOP, Leaf, Node, Tree, escape_brackets

Form = Literal["compact", "vinyals"]
Tags = Literal["keep", "xx"]
FORMS: tuple[str, ...] = get_args(Form)
TAGS: tuple[str, ...] = get_args(Tags)

XX = "XX"
SAME_WORD = "~"

MOST_OPEN = 200
"""Maximum nesting of a repaired tree; deeper brackets are ignored."""

Fault = Literal["too few words", "too many words", "brackets left open", "brackets that close nothing", "empty brackets", "other"]
FAULTS: tuple[Fault, ...] = get_args(Fault)
"""Faults of a tree written by a model. `other` is text that is no symbol, or more than `MOST_OPEN` brackets."""

COMPACT = re.compile(r"((?:\([^\s()|]+)+\|)?[^\s()|<>]+\)*")
SYMBOL = re.compile(r"\(([^\s()|]+)|(\))([^\s()|]*)|([^\s()|]+)")


def linearise(tree: Node, form: Form = "compact", tags: Tags = "keep") -> list[str]:
    """A simplified tree as tokens, without `TOP`; in form `compact` one for each word."""
    units = _units(tree, closing=form == "vinyals", tags=tags)
    if form == "compact":
        return ["".join(opened) + ("|" if opened else "") + tag + "".join(closed) for opened, tag, closed in units]
    return [symbol for opened, tag, closed in units for symbol in (*opened, tag, *closed)]


def _units(tree: Node, closing: bool, tags: Tags) -> list[tuple[list[str], str, list[str]]]:
    """For each word: the brackets that open before it, its tag, the brackets that close after it."""
    units: list[tuple[list[str], str, list[str]]] = []
    waiting: list[str] = []

    def walk(tree: Tree) -> None:
        nonlocal waiting
        if isinstance(tree, Leaf):
            units.append((waiting, tree.tag if tags == "keep" else XX, []))
            waiting = []
            return
        waiting.append(f"({tree.label}")
        for child in tree.children:
            walk(child)
        units[-1][2].append(f"){tree.label}" if closing else ")")

    for child in tree.children:
        walk(child)
    return units


def align_to_subwords(units: Sequence[str], pieces: Sequence[int]) -> list[str]:
    """Compact tokens aligned to the subwords of the source: `~` for each further subword of a word."""
    return [each for unit, count in zip(units, pieces, strict=True) for each in (unit, *[SAME_WORD] * (count - 1))]


def repair(text: str, words: Sequence[str], tag_of: Callable[[str], str] | None = None) -> Node:
    """Make a tree over exactly these words from any output of a model, in either form."""
    return repair_with_faults(text, words, tag_of)[0]


def repair_with_faults(
    text: str, words: Sequence[str], tag_of: Callable[[str], str] | None = None
) -> tuple[Node, frozenset[Fault]]:
    """As `repair`, and the faults of the text; none if it was already a tree over exactly these words.

    Tags belong to the words in turn. Surplus tags are ignored; words without a tag join the last constituent. Brackets that
    close nothing are ignored, open ones are closed at the end, and empty ones are removed. A closing bracket with a label
    closes the innermost open one of that label, and all inside of it.
    """
    builder = _Builder(words, tag_of or guess_tag)
    for opened, closed, closing_label, tag in SYMBOL.findall(text):
        if opened:
            builder.open(opened)
        elif closed:
            builder.close(closing_label)
        elif tag != SAME_WORD:
            builder.word(tag)
    if re.search(r"[^\s|]", SYMBOL.sub("", text)):
        builder.faults.add("other")
    return builder.finish(), frozenset(builder.faults)


class _Builder:
    """Builds a tree from left to right."""

    def __init__(self, words: Sequence[str], tag_of: Callable[[str], str]) -> None:
        self.words, self.tag_of, self.used = words, tag_of, 0
        self.stack: list[tuple[str, list[Tree]]] = [(TOP, [])]
        self.faults: set[Fault] = set()

    def open(self, label: str) -> None:
        if len(self.stack) <= MOST_OPEN:
            self.stack.append((label, []))
        else:
            self.faults.add("other")

    def close(self, label: str) -> None:
        depth = len(self.stack) - 1
        while label and depth and self.stack[depth][0] != label:
            depth -= 1
        if not depth:
            self.faults.add("brackets that close nothing")
            return
        self._close_inside(depth)
        self._pop()

    def word(self, tag: str) -> None:
        if self.used == len(self.words):
            self.faults.add("too many words")
            return
        word = self.words[self.used]
        self.stack[-1][1].append(Leaf(self.tag_of(word) if tag == XX else tag, escape_brackets(word)))
        self.used += 1

    def finish(self) -> Node:
        self._close_inside(0)
        children = self.stack[0][1]
        if self.used < len(self.words):
            self.faults.add("too few words")
            rest = [Leaf(self.tag_of(word), escape_brackets(word)) for word in self.words[self.used :]]
            if children and isinstance(last := children[-1], Node):
                children[-1] = Node(last.label, (*last.children, *rest))
            else:
                children += rest
        return Node(TOP, tuple(children))

    def _close_inside(self, depth: int) -> None:
        """Close all brackets that are open inside of one."""
        while len(self.stack) > depth + 1:
            self.faults.add("brackets left open")
            self._pop()

    def _pop(self) -> None:
        label, children = self.stack.pop()
        if children:
            self.stack[-1][1].append(Node(label, tuple(children)))
        else:
            self.faults.add("empty brackets")


_PUNCTUATION = {",": ",", ".": ".", "?": ".", "!": ".", ":": ":", ";": ":", "--": ":", "...": ":", "``": "``", "''": "''",
                "(": "-LRB-", ")": "-RRB-", "[": "-LRB-", "]": "-RRB-", "{": "-LRB-", "}": "-RRB-"}  # fmt: skip


def guess_tag(word: str) -> str:
    """The tag of a word without one: that of punctuation, else `XX`."""
    return _PUNCTUATION.get(word, XX)


def balance(piece: str) -> tuple[bool, int]:
    """For a token of form `compact`: whether it represents a word, and how many more brackets it opens than it closes."""
    token = piece.removeprefix("▁")
    stands = bool(COMPACT.fullmatch(token)) and token != SAME_WORD
    return stands, token.count("(") - token.count(")") if stands else 0
