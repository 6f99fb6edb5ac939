"""A text of a request on its way: lines → pieces → batches → text, with every piece's place, verdict and alternatives."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from undivided.formats.protection import has_words
from undivided.formats.terms import Term
from undivided.inference.translation import Translation
from undivided.inference.verdicts import Verdict
from undivided.serve.batching import Group, Text
from undivided.serve.cache import TranslationCache
from undivided.serve.models import Model, Route

INLINE = 2000
"""Characters up to which a text is split into pieces on the event loop; more would hold it up."""


class Wish(NamedTuple):
    """What a client wants of translations beside the best."""

    n_best: int = 1
    beam_size: int = 0
    prefix: str = ""
    glossary: tuple[Term, ...] = ()

    def group(self, model: Model) -> Group:
        """Beam search finds no more translations than it has beams."""
        usual = model.translator.artifact.recipe.search.beam_size
        beams = self.beam_size or (self.n_best if self.n_best > usual else 0)
        return Group(0 if beams == usual else beams, self.glossary)


@dataclass
class Segment:
    """A piece of a text, and its translation once it is there."""

    start: int
    text: str
    tokens: int
    """Source subwords; 0 for what needs no translation."""
    space: str = ""
    """What follows it up to the next piece."""
    prefix: str = ""
    """What its translation must begin with."""
    found: Translation | None = None
    verdict: Verdict = Verdict("kept")

    @property
    def target(self) -> str:
        return self.text if self.found is None else self.found.text

    def ranked(self, rank: int) -> tuple[str, float]:
        """Its translation of a rank, or the last that there is."""
        if self.found is None:
            return self.text, 0.0
        others = self.found.alternatives or ((self.found.text, self.found.score),)
        return others[min(rank, len(others) - 1)]


@dataclass
class Translated:
    """A text and its translation, piece by piece."""

    source: str
    before: str
    """White space that the text begins with."""
    segments: list[Segment]
    alternatives: list[tuple[str, float]] = field(default_factory=list)

    @property
    def text(self) -> str:
        return self.before + "".join(each.target + each.space for each in self.segments)

    @property
    def score(self) -> float:
        return sum(each.ranked(0)[1] for each in self.segments)

    @property
    def verdict(self) -> Verdict:
        """The first that is not sound, else the first that is not of something kept."""
        verdicts = [each.verdict for each in self.segments] or [Verdict("empty")]
        grave = [each for each in verdicts if not each.is_sound]
        translated = [each for each in verdicts if each.name not in ("kept", "empty")]
        return (grave or translated or verdicts)[0]


def split_text(model: Model, text: str) -> Translated:
    """Lines, and of lines what the translator would split them into; white space and what has no words stay as they are."""
    before = text[: len(text) - len(text.lstrip())]
    segments: list[Segment] = []
    place = len(before)
    for line in text[place:].splitlines(keepends=True):
        body = line.strip()
        start = line.index(body) if body else 0
        if not body or not has_words(body):
            segments.append(Segment(place, line, 0))
        else:
            if start:
                segments.append(Segment(place, line[:start], 0))
            at = place + start
            for piece, space, tokens in model.split(body):
                segments.append(Segment(at, piece, tokens, space))
                at += len(piece) + len(space)
            segments[-1].space += line[start + len(body) :]
        place += len(line)
    return Translated(text, before, segments)


class Translating:
    """Translates texts by the queues of models, from what was kept where it can."""

    def __init__(self, cache: TranslationCache) -> None:
        self.cache = cache

    async def translate(
        self,
        route: Route,
        texts: Sequence[str],
        wish: Wish = Wish(),  # noqa: B008
        is_document: bool = False,
        on_segment: Callable[[int, int, Segment], None] = lambda index, number, segment: None,
    ) -> list[Translated]:
        """Each text along a route. `on_segment` is called with each piece of the last step as soon as it is there."""
        if not route.models:
            return [Translated(text, "", [Segment(0, text, 0)]) for text in texts]
        *first, last = route.models
        middle = list(texts)
        for model in first:
            middle = [each.text for each in await self._translate_by(model, middle, Wish(), is_document)]
        results = await self._translate_by(last, middle, wish, is_document, on_segment)
        for text, result in zip(texts, results, strict=True):
            result.source = text
        return results

    async def _translate_by(
        self,
        model: Model,
        texts: Sequence[str],
        wish: Wish,
        is_document: bool,
        on_segment: Callable[[int, int, Segment], None] = lambda index, number, segment: None,
    ) -> list[Translated]:
        results = [await self._split(model, text) for text in texts]
        group = wish.group(model)
        waiting: list[tuple[int, int, Segment, Hashable]] = []
        for index, result in enumerate(results):
            prefix = wish.prefix
            for number, segment in enumerate(result.segments):
                if not segment.tokens:
                    continue
                key = (model.number, group, wish.n_best, prefix, segment.text)
                segment.prefix, prefix = prefix, ""
                kept = self.cache.get(key)
                if kept is None:
                    waiting.append((index, number, segment, key))
                else:
                    segment.found, segment.verdict = kept, model.translator.judge(kept)
                    on_segment(index, number, segment)

        def deliver(place: int, found: Translation) -> None:
            index, number, segment, key = waiting[place]
            segment.found, segment.verdict = found, model.translator.judge(found)
            self.cache.put(key, found)
            on_segment(index, number, segment)

        wanted = [Text(segment.text, segment.tokens, segment.prefix) for _, _, segment, _ in waiting]
        await model.batcher.translate(wanted, group, wish.n_best, is_document, deliver)
        for result in results:
            result.alternatives = rank(result, wish.n_best)
        return results

    async def _split(self, model: Model, text: str) -> Translated:
        if len(text) <= INLINE:
            return split_text(model, text)
        return await asyncio.to_thread(split_text, model, text)


def rank(result: Translated, count: int) -> list[tuple[str, float]]:
    """The best of all pieces together, then the second-best of all, and so on; each text once."""
    most = max((len(each.found.alternatives) for each in result.segments if each.found is not None), default=1)
    found: dict[str, float] = {}
    for place in range(min(max(1, most), count)):
        parts = [each.ranked(place) for each in result.segments]
        text = result.before + "".join(part + each.space for (part, _), each in zip(parts, result.segments, strict=True))
        found.setdefault(text, sum(score for _, score in parts))
    return list(found.items())
