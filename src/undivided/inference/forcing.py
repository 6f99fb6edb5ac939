"""A second try for models without symbols: what was lost is forced into the translation where attention has it.

Importing this must not import torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from undivided.artifact import Artifact
from undivided.formats.markup import SURE, Link
from undivided.formats.protection import Protected, check_protected, find_protected
from undivided.inference.alignment import every_head, make_aligner
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.requests import Request
from undivided.inference.translation import EncodedText, Translation

MOST_FORCED = 4
"""Things that a model without symbols has lost in one sentence, and that are forced into another translation of it."""

SPECIAL = {"<s>", "</s>", "<pad>", "<unk>"}
"""Names of special subwords: a text that has them is about models, and many subword models cannot spell them."""

Search = Callable[[Sequence[Request], Sequence[EncodedText]], Iterator[tuple[int, list[list[Hypothesis]]]]]
Decode = Callable[[str, EncodedText, Sequence[Sequence[Hypothesis]]], Translation]


def force_lost(
    artifact: Artifact,
    requests: Sequence[Request],
    texts: Sequence[EncodedText],
    results: Mapping[int, Translation],
    search: Search,
    decode: Decode,
) -> dict[int, Translation]:
    """Translations that lost something protected, decoded again with it forced: those that have lost less now.

    Texts that are translated in pieces, or begin with a given prefix, are left as they are.
    """
    better: dict[int, Translation] = {}
    left = [index for index, text in enumerate(texts) if len(text.pieces) == 1 and not requests[index].prefix]
    for _ in range(MOST_FORCED):
        found = {index: better.get(index, results[index]) for index in left}
        lost = {index: item for index, each in found.items() if (item := first_lost(each.source, each.text))}
        left = list(lost)
        if not left or artifact.recipe.model.kind != "transformer":
            break
        aligner = make_aligner(artifact) or every_head(artifact)
        links = aligner([(found[index].source, found[index].text) for index in left])
        asked = [
            requests[index]._replace(prefix=prefix_with(lost[index], found[index], each or ()))
            for index, each in zip(left, links, strict=True)
        ]
        chosen, improved = [texts[index] for index in left], []
        for place, hypotheses in search(asked, chosen):
            index = left[place]
            new = decode(requests[index].text, chosen[place], hypotheses)
            if new.finished >= found[index].finished and _faults(new) < _faults(found[index]):
                better[index] = new
                improved.append(index)
        left = sorted(improved)
    return better


def _faults(found: Translation) -> int:
    return sum(abs(fault.wanted - fault.found) for fault in check_protected(found.source, found.text))


def prefix_with(lost: Protected, found: Translation, links: Sequence[Link]) -> str:
    """A translation up to the words that are aligned with something lost, and there that: what a second try must begin with."""
    sure = [link for link in links if link.weight >= SURE]
    inside = [link.target.start for link in sure if lost.start < link.source.end and link.source.start < lost.end]
    before = [link.target.end for link in sure if link.source.end <= lost.start]
    place = min(inside) if inside else max(before, default=0)
    begin = found.text[:place].rstrip()
    # What stands before it in the source decides whether there is a space.
    apart = " " if begin and (not lost.start or found.source[lost.start - 1].isspace()) else ""
    return f"{begin}{apart}{lost.text}"


def first_lost(source: str, output: str) -> Protected | None:
    """The first thing in the source that an output does not have often enough."""
    few = {fault.text for fault in check_protected(source, output) if fault.found < fault.wanted}
    return next((each for each in find_protected(source) if each.text in few - SPECIAL), None)
