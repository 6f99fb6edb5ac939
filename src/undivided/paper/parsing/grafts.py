"""Augmentation of a treebank: constituents are replaced by others with the same label. [paper 6.3]

Differs from the paper: it trained on 17 million sentences parsed by other parsers. Here new trees come from the treebank itself,
by substructure substitution (Shi, Livescu and Gimpel, 2021).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from undivided.paper.parsing.linear import linearise
from undivided.paper.parsing.trees import Leaf, Node, Tree, leaves

CHANCE = 0.15
"""The probability that a constituent is replaced, from the top down; an inserted constituent is not changed again."""

TRIES = 5
"""Attempts per sentence to make a tree whose tokens all occur in the treebank."""

Kind = tuple[str, str, int]
"""Of a constituent: parent label, label, and bit length of its number of words."""


def graft_trees(trees: Sequence[Node], copies: int, seed: int) -> Iterator[Node]:
    """Copies of every tree with some constituents replaced; a tree without a valid replacement is skipped.

    A constituent is replaced by one with the same label, the same parent label and about as many words. Every token of form
    `compact` in the result also occurs in the given trees.
    """
    stock: dict[Kind, list[Node]] = defaultdict(list)
    known: set[str] = set()
    for tree in trees:
        known.update(linearise(tree))
        for above, node in _constituents(tree):
            stock[_kind(above, node)].append(node)
    chance = random.Random(seed)
    for _ in range(copies):
        for tree in trees:
            for _ in range(TRIES):
                made = _graft(tree, stock, chance)
                if made != tree and known.issuperset(linearise(made)):
                    yield made
                    break


def _constituents(tree: Node) -> Iterator[tuple[str, Node]]:
    """All constituents below the top, each with its parent label."""
    for child in tree.children:
        if isinstance(child, Node):
            yield tree.label, child
            yield from _constituents(child)


def _kind(above: str, node: Node) -> Kind:
    return above, node.label, sum(1 for _ in leaves(node)).bit_length()


def _graft(tree: Node, stock: dict[Kind, list[Node]], chance: random.Random) -> Node:
    children: list[Tree] = []
    for child in tree.children:
        if isinstance(child, Leaf):
            children.append(child)
        elif chance.random() < CHANCE:
            children.append(chance.choice(stock[_kind(tree.label, child)]))
        else:
            children.append(_graft(child, stock, chance))
    return Node(tree.label, tuple(children))
