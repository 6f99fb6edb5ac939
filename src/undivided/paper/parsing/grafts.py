"""More trees to learn from than were drawn by hand: constituents put in the place of others of the same label. [paper 6.3]

Differs from the paper: it learned from 17 million sentences that other parsers had parsed. Here the treebank is its own source,
by substitution of substructures (Shi, Livescu and Gimpel, 2021).
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator, Sequence

from undivided.paper.parsing.linear import linearise
from undivided.paper.parsing.trees import Leaf, Node, Tree, leaves

CHANCE = 0.15
"""That a constituent gives way to another, going down from the sentence; what is put in stays as it is."""

TRIES = 5
"""How often a sentence is grafted until all its tokens are such as the treebank itself has."""

Kind = tuple[str, str, int]
"""Of a constituent: the label above it, its own, and how many bits the number of its words has."""


def graft_trees(trees: Sequence[Node], copies: int, seed: int) -> Iterator[Node]:
    """So many times every tree with some constituents replaced; a tree without a fitting graft is left out of a copy.

    A constituent gives way to one with the same label, under the same label, and of about as many words. No token of form
    `compact` comes up that the trees themselves do not have.
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
    """All below the top, each with the label above it."""
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
