"""Beam search as a tree, and what happened to each branch. [paper 6.1]"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from undivided.config import SearchConfig
from undivided.core.ids import EOS
from undivided.data.subwords import Subwords
from undivided.inference.hypothesis import Hypothesis, length_penalty
from undivided.inference.search import BeamStep, search
from undivided.look.result import Branch, Fate
from undivided.models import Seq2Seq


@dataclass
class _Node:
    parent: int
    step: int
    id: int
    total: float
    fate: Fate
    best: bool = False


class BeamTree:
    """Records the search of one sentence: every candidate that was among the best of its step."""

    def __init__(self) -> None:
        self.nodes: list[_Node] = []
        self.beams: list[int] = [-1]
        """The node of each beam; a beam without one has probability 0."""

    def __call__(self, step: BeamStep) -> None:
        """Record one step."""
        going = step.kept[0].tolist()
        nodes: dict[int, int] = {}
        columns = zip(*(part[0].tolist() for part in (step.parents, step.tokens, step.totals, step.ended)), strict=True)
        for place, (parent, token, total, ended) in enumerate(columns):
            if total == -math.inf or self.beams[parent] == _NO_NODE:
                continue
            fate: Fate = "ended" if ended else "continued" if place in going else "ended too low" if token == EOS else "fell out"
            origin = self.beams[parent]
            nodes[place] = len(self.nodes)
            self.nodes.append(_Node(origin, self.nodes[origin].step + 1 if origin >= 0 else 1, token, total, fate))
        self.beams = [nodes.get(place, _NO_NODE) for place in going]

    def finish(self, chosen: Hypothesis, limit: int, alpha: float, norm: str = "wu") -> None:
        """Decide what happened to unfinished branches, and mark the path to the translation."""
        scores = {number: node.total / float(length_penalty(node.step, alpha, norm)) for number, node in enumerate(self.nodes)}
        ended = [scores[number] for number, node in enumerate(self.nodes) if node.fate == "ended"]
        for number in self.beams:
            if number != _NO_NODE:
                cut = self.nodes[number].step >= limit and scores[number] > max(ended, default=-math.inf)
                self.nodes[number].fate = "length limit" if cut else "overtaken"
        parents = {node.parent for node in self.nodes if node.fate not in ("fell out", "ended too low")}
        for number, node in enumerate(self.nodes):
            if node.fate == "continued" and number not in parents:
                node.fate = "crowded out"
        self._mark_best(chosen)

    def _mark_best(self, chosen: Hypothesis) -> None:
        wanted = [*chosen.tokens, EOS] if chosen.finished else chosen.tokens
        last = ("ended",) if chosen.finished else ("length limit", "overtaken")
        for number, node in enumerate(self.nodes):
            if node.fate in last and node.step == len(wanted) and self._tokens(number) == wanted:
                node.fate = "chosen"
                while number >= 0:
                    self.nodes[number].best = True
                    number = self.nodes[number].parent
                return

    def _tokens(self, number: int) -> list[int]:
        tokens = []
        while number >= 0:
            tokens.append(self.nodes[number].id)
            number = self.nodes[number].parent
        return tokens[::-1]


_NO_NODE = -2


def search_with_tree(
    model: Seq2Seq,
    source: list[int],
    config: SearchConfig,
    device: torch.device,
    subwords: Subwords,
    prefix: Sequence[int] = (),
) -> tuple[Hypothesis, tuple[Branch, ...]]:
    """The best translation of a source that begins with a prefix, and the tree of its beam search."""
    tree = BeamTree()
    best = search(model, [source], config, device, [prefix], on_step=tree)[0][0]
    alpha, norm = config.length_penalty, config.length_norm
    tree.finish(best, len(source) - 1 + config.max_extra, alpha, norm)
    pieces = subwords.pieces([node.id for node in tree.nodes])
    branches = (
        Branch(
            node.parent, node.step, node.id, piece, node.total, node.total / float(length_penalty(node.step, alpha, norm)),
            node.fate, node.best,
        )
        for node, piece in zip(tree.nodes, pieces, strict=True)
    )  # fmt: skip
    return best, tuple(branches)
