"""Constituency trees: read from Penn brackets, simplified and written. [paper 6.3]"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeAlias

from undivided.config.settings import list_faults
from undivided.core.errors import InputError
from undivided.core.files import write_atomic
from undivided.data.text_files import raw_lines

TOP = "TOP"
"""The root label of every simplified tree; it is not scored."""

ROOTS = ("", TOP, "ROOT", "S1")
"""Root labels that treebanks use."""

TRACE = "-NONE-"
"""The tag of empty elements such as traces."""

DEEPEST = 400
"""Maximum nesting. Treebanks stay far below; a malicious file of brackets is refused."""


class Leaf(NamedTuple):
    """One word under its tag (part of speech)."""

    tag: str
    word: str


class Node(NamedTuple):
    """One constituent."""

    label: str
    children: tuple[Tree, ...]


Tree: TypeAlias = "Leaf | Node"


class NotATree(ValueError):
    """Why a text is not a tree."""


def parse_tree(text: str) -> Node:
    """Parse the one tree in a text such as `(S (NP (PRP It)) (VP (VBZ rains)))`, without simplification."""
    open_nodes: list[tuple[str, list[Tree | str]]] = [("", [])]
    tokens = re.findall(r"[()]|[^ \t\r\n()]+", text)
    for place, token in enumerate(tokens):
        if token == "(":
            after = tokens[place + 1] if place + 1 < len(tokens) else ""
            open_nodes.append(("" if after in ("(", ")") else after, []))
            if len(open_nodes) > DEEPEST:
                raise NotATree(f"more than {DEEPEST} brackets are open at once")
        elif token == ")":
            if len(open_nodes) == 1:
                raise NotATree("a bracket is closed that was not opened")
            label, inside = open_nodes.pop()
            open_nodes[-1][1].append(_closed(label, inside))
        elif tokens[place - 1] != "(" or place == 0:
            open_nodes[-1][1].append(token)
    if len(open_nodes) > 1:
        raise NotATree(f"{len(open_nodes) - 1} of its brackets are not closed")
    return _only(open_nodes[0][1])


def _closed(label: str, inside: list[Tree | str]) -> Tree:
    """The tree of a closed bracket: a word under its tag, or a constituent."""
    words = [each for each in inside if isinstance(each, str)]
    if words and len(inside) > 1:
        raise NotATree(f"the bracket ({label} … contains {' '.join(words)!r} beside something else; a word needs its own bracket")
    if not inside:
        raise NotATree(f"the bracket ({label}) is empty; a word stands under a tag, as in (NN tree)")
    if words:
        if not label:
            raise NotATree(f"the word {words[0]!r} has no tag")
        return Leaf(label, words[0])
    return Node(label, tuple(each for each in inside if not isinstance(each, str)))


def _only(found: list[Tree | str]) -> Node:
    if any(isinstance(each, str) for each in found) or not found:
        raise NotATree("there is text outside of brackets" if found else "there are no brackets")
    if len(found) > 1:
        raise NotATree(f"{len(found)} trees in one line; write one tree per line")
    (tree,) = found
    return Node("", (tree,)) if isinstance(tree, Leaf) else tree  # type: ignore[return-value]


def simplify(tree: Node) -> Node:
    """The tree that parsers learn: without traces, empty constituents and functions (`NP-SBJ-1` is `NP`), below `TOP`."""
    top = _plain(tree)
    if top is None:
        raise NotATree("it has no words, only traces")
    if isinstance(top, Node) and top.label in ROOTS:
        return Node(TOP, top.children)
    return Node(TOP, (top,))


def _plain(tree: Tree) -> Tree | None:
    if isinstance(tree, Leaf):
        return None if tree.tag == TRACE else Leaf(strip_suffix(tree.tag, r"\|"), tree.word)
    children = tuple(child for child in map(_plain, tree.children) if child is not None)
    return Node(strip_suffix(tree.label, r"[-=|]"), children) if children else None


def strip_suffix(label: str, cut: str) -> str:
    """A label up to its first separator; one that starts with a separator, such as `-LRB-`, is kept."""
    return label[:1] + re.split(cut, label[1:], maxsplit=1)[0]


def read_trees(*paths: str | Path) -> list[list[Node]]:
    """Read the simplified trees of each file; all faults are reported with their lines."""
    faults: list[str] = []
    files = [list(_read(Path(path), faults)) for path in paths]
    if faults:
        raise InputError(list_faults("the trees have", _first(faults)))
    return files


def read_training_trees(path: str | Path) -> tuple[list[Node], list[str]]:
    """Read the simplified trees of a training file, and the faults of other lines; an error if there is no tree."""
    faults: list[str] = []
    trees = list(_read(Path(path), faults))
    if not trees:
        raise InputError(list_faults("the trees have", _first(faults)))
    return trees, faults


def _first(faults: list[str]) -> list[str]:
    return faults if len(faults) <= 10 else [*faults[:10], f"and {len(faults) - 10:,} more"]


def _read(path: Path, faults: list[str]) -> Iterator[Node]:
    count = len(faults)
    for line, text in _chunks(path, faults):
        count = -1
        try:
            yield simplify(parse_tree(text))
        except NotATree as fault:
            faults.append(f"{path}, line {line}: not a tree: {fault}")
    if count == len(faults):
        faults.append(f"{path}: contains no trees")


def _chunks(path: Path, faults: list[str]) -> Iterator[tuple[int, str]]:
    """The text of each tree with its first line number: a tree starts in the first column and may continue indented."""
    start, lines = 0, list[str]()
    for number, raw in enumerate(raw_lines(path), 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError:
            faults.append(f"{path}, line {number}: not valid UTF-8")
            continue
        continues = lines and line[:1].isspace() and line.strip()
        if lines and not continues:
            yield start, "\n".join(lines)
            lines = []
        if line.strip():
            start = start if continues else number
            lines.append(line)
    if lines:
        yield start, "\n".join(lines)


def leaves(tree: Tree) -> Iterator[Leaf]:
    """The words of a tree in order, each with its tag."""
    if isinstance(tree, Leaf):
        yield tree
        return
    for child in tree.children:
        yield from leaves(child)


def words(tree: Tree) -> list[str]:
    """The words of a tree with brackets unescaped: the input of a parser."""
    return [unescape_brackets(leaf.word) for leaf in leaves(tree)]


def retag(tree: Node, tags: Iterable[str]) -> Node:
    """The same tree with other tags, one for each word."""
    turn = iter(tags)

    def walk(tree: Tree) -> Tree:
        if isinstance(tree, Leaf):
            return Leaf(next(turn), tree.word)
        return Node(tree.label, tuple(map(walk, tree.children)))

    return Node(tree.label, tuple(map(walk, tree.children)))


def to_brackets(tree: Tree) -> str:
    """A tree as one line of brackets."""
    if isinstance(tree, Leaf):
        return f"({tree.tag} {tree.word})"
    return f"({tree.label} {' '.join(map(to_brackets, tree.children))})"


def write_trees(path: Path, trees: Iterable[Tree]) -> None:
    """Write one tree per line."""
    write_atomic(path, "".join(f"{to_brackets(tree)}\n" for tree in trees))


def escape_brackets(word: str) -> str:
    """A word with round brackets escaped, as in a tree."""
    return word.replace("(", "-LRB-").replace(")", "-RRB-")


def unescape_brackets(word: str) -> str:
    """A word of a tree as in the text."""
    return word.replace("-LRB-", "(").replace("-RRB-", ")")
