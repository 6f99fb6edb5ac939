"""Inline markup carried to the words of the translation: every tag once, well nested, around the words that alignment names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from undivided.formats.contract import Marked, Tag

WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]"  # Scripts without spaces: each letter by itself.
    r"|[^\W_\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]+(?:['’-][^\W_]+)*|[^\w\s]|_"
)


LEAST_SHARE = 0.15
"""A word that belongs to a span for a smaller share does not belong to it at all."""

SURE = 0.4
"""A link with less weight does not say where something belongs by itself."""


class Span(NamedTuple):
    """Characters from `start` up to `end`."""

    start: int
    end: int


class Link(NamedTuple):
    """A source word and a target word that translate each other, as places in the two texts."""

    source: Span
    target: Span
    weight: float = 1.0
    """How sure it is, beside the other links of the target word."""


Aligner = Callable[[Sequence[tuple[str, str]]], Sequence[Sequence[Link] | None]]
"""Pairs of source and target sentences → the links of each; None where the model cannot tell."""


class Placed(NamedTuple):
    """A translation with its tags, and whether alignment told all their places."""

    marked: Marked
    is_certain: bool


def find_words(text: str) -> list[Span]:
    """The words of a text, and its punctuation marks."""
    return [Span(*found.span()) for found in WORD.finditer(text)]


@dataclass
class _Node:
    """A pair of tags, or tags that stand alone, with its span in the source and then in the target."""

    tags: list[Tag]
    source: Span
    children: list[_Node] = field(default_factory=list)
    target: Span = Span(0, 0)
    is_guessed: bool = False

    @property
    def is_pair(self) -> bool:
        return len(self.tags) == 2 and self.tags[0].kind == "open"


def place_tags(source: Marked, target: str, links: Sequence[Link] | None = None, blocks: Sequence[Link] | None = None) -> Placed:
    """Carry the tags of a source to its translation.

    `blocks` are the sentences of both, which are known to belong together. Where `links` do not tell where a span is, its tags
    enclose the sentences that it is in; a tag that stands alone keeps its relative position.
    """
    whole = Span(0, len(target))
    blocks = blocks or [Link(Span(0, len(source.text)), whole)]
    top = _Node([], Span(0, len(source.text)), _build(source))
    top.target = whole
    placing = _Placing(source.text, target, list(links or ()), list(blocks), source.is_flat)
    placing.place(top)
    tags: list[Tag] = []
    _emit(top, tags)
    return Placed(Marked(target, tuple(tags)), placing.is_certain)


def _build(source: Marked) -> list[_Node]:
    """Tags → a tree of pairs."""
    stack: list[tuple[Tag | None, list[_Node]]] = [(None, [])]
    for tag in source.tags:
        if tag.kind == "open":
            stack.append((tag, []))
        elif tag.kind == "close" and stack[-1][0] is not None:
            opening, children = stack.pop()
            assert opening is not None
            span = Span(opening.place, tag.place)
            if source.text[span.start : span.end].strip():
                stack[-1][1].append(_Node([opening, tag], span, children))
            else:
                # Nothing but markup within: it moves as one.
                inner = [each for child in children for each in _flat(child)]
                stack[-1][1].append(_Node([Tag(tag.place, opening.raw + "".join(inner) + tag.raw, "alone")], span))
        else:
            stack[-1][1].append(_Node([tag], Span(tag.place, tag.place)))
    while len(stack) > 1:
        opening, children = stack.pop()
        assert opening is not None
        stack[-1][1].extend([_Node([opening._replace(kind="alone")], Span(opening.place, opening.place)), *children])
    return stack[0][1]


def _flat(node: _Node) -> list[str]:
    inner = [each for child in node.children for each in _flat(child)]
    return [node.tags[0].raw, *inner, node.tags[1].raw] if node.is_pair else [each.raw for each in node.tags]


@dataclass
class _Placing:
    """Where nodes go, from the top down: children within their parents, brothers apart or one around the other."""

    source: str
    target: str
    links: list[Link]
    blocks: list[Link]
    is_flat: bool = False
    is_certain: bool = True

    def place(self, top: _Node) -> None:
        waiting = [top]
        while waiting:
            node = waiting.pop()
            taken: list[Span] = []
            for child in node.children:
                child.target = self._pair(child, node, taken) if child.is_pair else Span(0, 0)
                if child.is_pair and child.target.start == child.target.end:
                    child.tags, child.children = [Tag(0, "".join(_flat(child)), "alone")], []
            for child in node.children:
                if not child.is_pair:
                    place = self._alone(child, node)
                    child.target = Span(place, place)
            waiting += node.children

    def _pair(self, child: _Node, parent: _Node, taken: list[Span]) -> Span:
        window = parent.target
        if self._trim(self.source, child.source) == self._trim(self.source, parent.source):
            return self._trim(self.target, window) if window.end > window.start else window
        exact = self._blocks_of(child.source)
        if exact:
            return self._within(exact, window)
        found = self._best_window(child.source, window, taken)
        if found is None:
            self.is_certain, child.is_guessed = False, True
            return self._guess(child.source, taken) if self.is_flat else self._within(self._enclosing(child.source), window)
        taken.append(found)
        return found

    def _trim(self, text: str, span: Span) -> Span:
        inside = text[span.start : span.end]
        start = span.start + len(inside) - len(inside.lstrip())
        return Span(start, max(start, span.end - (len(inside) - len(inside.rstrip()))))

    def _within(self, span: Span, window: Span) -> Span:
        start = min(max(span.start, window.start), window.end)
        return Span(start, max(start, min(span.end, window.end)))

    def _blocks_of(self, span: Span) -> Span | None:
        """The sentences that a span consists of exactly."""
        wanted = self._trim(self.source, span)
        inside = [each for each in self.blocks if wanted.start <= each.source.start and each.source.end <= wanted.end]
        if not inside or self._trim(self.source, Span(inside[0].source.start, inside[-1].source.end)) != wanted:
            return None
        return self._trim(self.target, Span(inside[0].target.start, inside[-1].target.end))

    def _enclosing(self, span: Span) -> Span:
        """The sentences that a span touches."""
        touched = [each.target for each in self.blocks if each.source.start < span.end and span.start < each.source.end]
        found = Span(touched[0].start, touched[-1].end) if touched else Span(0, len(self.target))
        return self._trim(self.target, found)

    def _guess(self, span: Span, taken: list[Span]) -> Span:
        """The same share of the text; what other spans have taken is left to them."""
        wanted = self._trim(self.source, span)
        start, end = self._relative_place(wanted.start, starts=True), self._relative_place(wanted.end)
        start = max([start, *(each.end for each in taken if each.start <= start < each.end)])
        end = max(start, min([end, *(each.start for each in taken if start <= each.start < end)]))
        found = self._trim(self.target, Span(start, end))
        taken.append(found)
        return found

    def _best_window(self, span: Span, window: Span, taken: list[Span]) -> Span | None:
        """The target words that agree best with a source span: most words linked into it, fewest linked elsewhere."""
        if not self.links:
            return None
        inside, total_of = defaultdict[Span, float](float), defaultdict[Span, float](float)
        for link in self.links:
            total_of[link.target] += link.weight
            if span.start <= link.source.start and link.source.end <= span.end:
                inside[link.target] += link.weight
        words = [each for each in find_words(self.target) if window.start <= each.start and each.end <= window.end]
        best, total, start, found, free = 0.0, 0.0, 0, None, list[tuple[float, Span]]()
        for number, word in enumerate(words):
            # More than half of it must belong to the span; a word without links may be within, at a price.
            weight = inside[word] / total_of[word] - 0.5 if total_of[word] else -0.1
            if any(word.start < each.end and each.start < word.end for each in taken):
                weight = -1000.0
            elif total_of[word]:
                free.append((weight + 0.5, word))
            if total <= 0:
                total, start = 0.0, number
            total += weight
            if total > best:
                best, found = total, Span(words[start].start, word.end)
        if found is None and free:
            # No word belongs to it for the larger part: the one that does most.
            share, word = max(free)
            found = word if share >= LEAST_SHARE else None
        return found

    def _alone(self, child: _Node, parent: _Node) -> int:
        place, text = child.source.start, self.source
        window, outer = parent.target, parent.source
        if not text[outer.start : place].strip():
            return window.start
        if not text[place : outer.end].strip():
            return window.end
        at = self._linked_place(place)
        if at is None:
            self.is_certain = False
            at = self._relative_place(place)
        at = min(max(at, window.start), window.end)
        for other in parent.children:
            # Where the source has it outside of a brother, it must not fall inside.
            if other.is_pair and not other.is_guessed and other.target.start < at < other.target.end:
                at = other.target.start if place <= other.source.start else other.target.end
        return at

    def _linked_place(self, place: int) -> int | None:
        for block in self.blocks:
            if place == block.source.start:
                return block.target.start
            if place == block.source.end:
                return block.target.end
        sure = [link for link in self.links if link.weight >= SURE]
        after = [link for link in sure if link.source.start >= place]
        if after:
            first = min(link.source.start for link in after)
            return min(link.target.start for link in after if link.source.start == first)
        before = [link for link in sure if link.source.end <= place]
        if before:
            last = max(link.source.end for link in before)
            return max(link.target.end for link in before if link.source.end == last)
        return None

    def _relative_place(self, place: int, starts: bool = False) -> int:
        """The same share of the sentence, at the nearest end of a word, or where one `starts`."""
        block = next((each for each in self.blocks if each.source.start <= place <= each.source.end), self.blocks[-1])
        share = (place - block.source.start) / max(1, block.source.end - block.source.start)
        wanted = block.target.start + share * (block.target.end - block.target.start)
        borders = [word.start if starts else word.end for word in find_words(self.target)]
        inside = [each for each in borders if block.target.start <= each <= block.target.end]
        return min(inside or [block.target.end], key=lambda each: abs(each - wanted))


def _emit(top: _Node, tags: list[Tag]) -> None:
    """The tags of a tree in the order of the target; brothers around the same words are put one around the other."""
    nodes: list[tuple[_Node, int, int]] = []
    waiting = [(child, 1) for child in reversed(top.children)]
    order = 0
    while waiting:
        node, depth = waiting.pop()
        nodes.append((node, depth, order))
        order += 1
        waiting += [(child, depth + 1) for child in reversed(node.children)]
    pairs = sorted((each for each in nodes if each[0].is_pair), key=lambda n: (n[0].target.start, -n[0].target.end, n[1], n[2]))
    rank = {id(node): number for number, (node, _, _) in enumerate(pairs)}
    parents = {id(child): node for node, _, _ in nodes for child in node.children}
    events: list[tuple[tuple[float, ...], Tag]] = []
    for node, _, order in nodes:
        start, end = node.target
        if node.is_pair:
            opening, closing = node.tags
            place = rank[id(node)]
            events.append(((start, 2, place, 0), opening._replace(place=start)))
            events.append(((end, 0, -place, 0), closing._replace(place=end)))
        else:
            events.append((_alone_key(start, order, parents.get(id(node)), rank), node.tags[0]._replace(place=start)))
    tags += [tag for _, tag in sorted(events, key=lambda event: event[0])]


def _alone_key(place: int, order: int, parent: _Node | None, rank: dict[int, int]) -> tuple[float, ...]:
    """Where a tag that stands alone comes among others at its place: within its parent, outside of its brothers."""
    if parent is not None and place == parent.target.end:
        return (place, 0, -rank[id(parent)] - 0.5, order)
    if parent is not None and place == parent.target.start:
        return (place, 2, rank[id(parent)] + 0.5, order)
    return (place, 1, -1, order)
