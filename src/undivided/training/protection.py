"""Training pairs with symbols in the place of what is protected, so that a model learns to copy them to where they belong.

In most corpora too little is protected to learn from: in a part of the pairs, words that translate each other become symbols too.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from undivided.config import CorpusFiles, DataConfig
from undivided.data.corpus import CorpusReport, Pair, corpus_name, read_pairs
from undivided.data.holdout import Lines
from undivided.formats.markup import Span, find_words
from undivided.formats.protection import Protected, find_agreed, mask_pair
from undivided.formats.terms import annotate, share_stem
from undivided.look.heads.aligner import align_words

ONE_IN = 6
"""One pair in so many has symbols for some of its words."""

ANNOTATED = (1, 2)
"""Which of so many have translations beside words instead, where terms are learned and nothing is protected."""

SAMPLE = 6_000
"""Pairs from which it is learned which words translate each other."""

LEAST_LETTERS, LEAST_LINKS, LEAST_SHARE = 4, 4, 0.3
"""A translation of a word must have so many letters, be seen so often, and be so large a share of what is seen of both words."""

COMMON = 0.05
"""Words in a larger share of the pairs are no names of anything: they stay."""

Dictionary = dict[str, set[str]]
"""Words in lower case, with their usual translations."""


def make_masker(
    corpora: Sequence[CorpusFiles], config: DataConfig, held_out: Lines, symbols: Sequence[str], terms: bool = False
) -> Callable[[Pair], tuple[str, str]]:
    """What turns a pair into the two texts that are learned; it follows from the corpora alone.

    With `terms`, words of some sources are followed by their translations.
    """
    words = learn_dictionary(_sample_pairs(corpora, config, held_out or (frozenset(),) * len(corpora)))

    def rewrite(pair: Pair) -> tuple[str, str]:
        _, source, target = pair
        links = find_agreed(source, target)
        # What is left of the number that also chooses the first symbol.
        seed = zlib.crc32(source.encode()) // len(symbols)
        if seed % ONE_IN == 0:
            links = [*links, *_choose_words(source, target, links, words, seed // ONE_IN)]
        elif terms and not links and seed % ONE_IN in ANNOTATED:
            return annotate_pair(source, target, words, seed // ONE_IN), target
        return mask_pair(source, target, links, symbols)

    return rewrite


def annotate_pair(source: str, target: str, words: Dictionary, seed: int) -> str:
    """A source in which up to three words are followed by their translation between marks, if it can be told.

    Where the words of the corpus have a shorter form of it, that stands there: the model learns to inflect what it is given.
    """
    spans = []
    for ours, theirs in _choose_words(source, target, (), words, seed):
        known = [each for each in words.get(ours.text.casefold(), ()) if share_stem(each, theirs.text.casefold())]
        base = min([*known, theirs.text.casefold()], key=lambda each: (len(each), each))
        given = theirs.text if base == theirs.text.casefold() else base.capitalize() if theirs.text[:1].isupper() else base
        spans.append(ours._replace(text=given))
    return annotate(source, spans)


def _sample_pairs(corpora: Sequence[CorpusFiles], config: DataConfig, held_out: Lines) -> Iterator[Pair]:
    for files, lines in zip(corpora, held_out, strict=True):
        pairs = read_pairs(files, config, CorpusReport(corpus_name(files)), lines)
        yield from islice(pairs, max(1, SAMPLE // len(corpora)))


def learn_dictionary(pairs: Iterable[Pair]) -> Dictionary:
    """Which words translate each other: those that are linked in both directions, often enough."""
    texts = [(_split(pair.source), _split(pair.target)) for pair in pairs]
    texts = [each for each in texts if all(each)]
    if not texts:
        return {}
    counts = Counter[tuple[str, str]]()
    for (ours, theirs), links in zip(texts, align_words(texts), strict=True):
        counts.update((ours[source], theirs[target]) for source, target in links.sure)
    totals = Counter[str](), Counter[str]()
    for pair, count in counts.items():
        for side, word in zip(totals, pair, strict=True):
            side[word] += count
    found: Dictionary = {}
    for (source, target), count in counts.items():
        most = max(totals[0][source], totals[1][target])
        is_usual = count >= LEAST_LINKS and count >= LEAST_SHARE * most and most <= max(LEAST_LINKS, COMMON * len(texts))
        if is_usual and min(len(source), len(target)) >= LEAST_LETTERS:
            found.setdefault(source, set()).add(target)
    return found


def _split(text: str) -> list[str]:
    return [text[span.start : span.end].casefold() for span in find_words(text)]


def _choose_words(
    source: str, target: str, taken: Sequence[tuple[Protected, Protected]], words: Dictionary, seed: int
) -> Iterator[tuple[Protected, Protected]]:
    """Up to three words of a pair and their translations, each once on its side."""
    ours, theirs = (_single_words(text, [each[side] for each in taken]) for side, text in ((0, source), (1, target)))
    found = []
    for word, span in ours.items():
        # Names are their own translations.
        both = [each for each in (words.get(word, set()) | {word}) & theirs.keys() if len(word) >= LEAST_LETTERS]
        if len(both) == 1:
            found.append((_as_protected(source, span), _as_protected(target, theirs.pop(both[0]))))
    if not found:
        return
    count = min(1 + seed % 3, max(1, len(ours) // 4))
    start = seed // 3 % len(found)
    yield from sorted((found[start:] + found[:start])[:count])


def _single_words(text: str, taken: Sequence[Protected]) -> dict[str, Span]:
    """The words that a text has once, outside of what is taken."""
    spans = [span for span in find_words(text) if not any(span.start < each.end and each.start < span.end for each in taken)]
    words = [text[span.start : span.end].casefold() for span in spans]
    counts = Counter(words)
    return {word: span for word, span in zip(words, spans, strict=True) if counts[word] == 1 and word[0].isalnum()}


def _as_protected(text: str, span: Span) -> Protected:
    return Protected(span.start, span.end, "word", text[span.start : span.end])
