"""The report on heads: what each does, its entropy, the BLEU lost without it; and word alignments from the best."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from undivided.config import CorpusFiles, DataConfig
from undivided.core.console import Console, Progress
from undivided.core.errors import InputError
from undivided.data.corpus import CorpusReport, Pair, corpus_name, read_pairs
from undivided.inference.score import Score, bleu
from undivided.inference.translator import Translator
from undivided.look.heads.aligner import Agreement, Link, Links, agreement, align_words, diagonal_links, split_words, to_pharaoh
from undivided.look.heads.statistics import MODES, HeadStatistics, Mode, Tally, strongest_links
from undivided.look.result import USES, Use
from undivided.look.what_if import Head, find_heads
from undivided.nn.attention import attention_hook

ALIGNER_LINES = 20_000
"""Most lines that the aligner learns from; more would help little."""

MAX_ALIGNING_HEADS = 3
"""Alignments are the mean of at most this many heads."""

NAMES = {
    "previous": "previous token", "next": "next token", "same_word": "same word", "punctuation": "punctuation/end",
    "alignment": "alignment",
}  # fmt: skip
"""The name of a head by where most of its attention goes."""

NAME_THRESHOLD = 0.4
"""A head gets such a name from this share of its attention on."""


@dataclass(frozen=True)
class HeadReport:
    """What one head does. Numbers are shares of its attention, as means over rows; None where a use has no such target."""

    use: Use
    layer: int
    head: int
    previous: float | None
    next: float | None
    same_word: float | None
    """To the subwords of the same word; in encoder-decoder attention, to the same subword."""
    punctuation: float | None
    """To punctuation, `<s>` and `</s>`."""
    alignment: float | None
    """To source words with a sure link by the aligner."""
    aligns: Mode | None
    """Whether its rows align better with the word that a position writes, or the one it reads."""
    aer: float | None
    entropy: float
    """In bits."""
    bleu_lost: float
    name: str


@dataclass(frozen=True)
class Report:
    """All heads of a model on a corpus."""

    lines: int
    bleu: Score
    heads: tuple[HeadReport, ...]
    aligners: tuple[tuple[int, int, Mode], ...]
    """The heads whose mean gives the alignments: layer, head, and which word a row aligns."""
    agreement: Agreement | None
    """Of these alignments with the aligner's links."""
    diagonal: Agreement
    """Of the diagonal with the aligner's links: a baseline without any model."""
    alignments: tuple[str, ...]
    """In Pharaoh format, one for each line of the corpus up to the last one used; empty for a bad line."""


def report_heads(translator: Translator, files: CorpusFiles, lines: int, console: Console) -> Report:
    """Report on all heads over the first `lines` good pairs of a corpus (0 = all)."""
    pairs = list(islice(_usable_pairs(translator, files), max(lines, ALIGNER_LINES) if lines else None))
    chosen = pairs[:lines] if lines else pairs
    if not chosen:
        raise InputError(f"{corpus_name(files)}: no line can be used")
    every = _heads(translator, chosen[0])
    if not every:
        raise InputError("this model has no attention heads; give a sentence instead of --corpus")
    console.say(f"aligning the words of {len(pairs):,} lines")
    links = align_words([(split_words(pair.source), split_words(pair.target)) for pair in pairs])[: len(chosen)]
    statistics = HeadStatistics(translator.artifact)
    progress = Progress(console, "lines analysed", len(chosen))
    for pair, linked in zip(chosen, links, strict=True):
        statistics.add_pair(pair.source, pair.target, linked)
        progress.advance(1)
    aligners, found, agreed = _best_aligners(statistics, links)
    score, lost = _bleu_lost(translator, every, chosen, console)
    console.clear()
    texts = {pair.line: to_pharaoh(each) for pair, each in zip(chosen, found, strict=True)}
    straight = [diagonal_links(len(split_words(pair.source)), len(split_words(pair.target))) for pair in chosen]
    return Report(
        len(chosen), score, tuple(_describe_head(head, statistics, links, value) for head, value in zip(every, lost, strict=True)),
        aligners, agreed, agreement(straight, links), tuple(texts.get(line, "") for line in range(1, chosen[-1].line + 1)),
    )  # fmt: skip


def _usable_pairs(translator: Translator, files: CorpusFiles) -> Iterator[Pair]:
    """The good pairs that are no longer than the training pairs."""
    tokenizer = translator.artifact.tokenizer
    for pair in read_pairs(files, DataConfig(), CorpusReport(corpus_name(files))):
        sides = (tokenizer.source.encode([pair.source])[0], tokenizer.target.encode([pair.target])[0])
        if max(map(len, sides)) <= translator.limits.longest:
            yield pair


def _heads(translator: Translator, pair: Pair) -> list[Head]:
    artifact = translator.artifact
    ids = artifact.tokenizer.source.encode([pair.source])[0], artifact.tokenizer.target.encode([pair.target])[0]
    return find_heads(artifact.model, *ids)


def _bleu_lost(translator: Translator, every: Sequence[Head], pairs: Sequence[Pair], console: Console) -> tuple[Score, list[float]]:
    """BLEU of greedy search with all heads, and how much of it is lost without each."""
    sources, references = [pair.source for pair in pairs], [pair.target for pair in pairs]
    progress = Progress(console, "lines translated without a head", len(sources) * (len(every) + 1))

    def score() -> Score:
        results = translator.stream(sources, advance=progress.advance, beam_size=1, n_best=1)
        return bleu([result.text for result in results], references, translator.artifact.recipe.data.target_lang)

    whole = score()
    lost = []
    for head in every:
        with attention_hook(head.off_hook()):
            lost.append(whole.score - score().score)
    return whole, lost


def _mode(tally: Tally, layer: int, head: int) -> tuple[Mode | None, float | None]:
    """How a head of encoder-decoder attention aligns best, and the share of its attention on sure links."""
    shares = {mode: tally.mean(f"alignment {mode}", layer, head) for mode in MODES}
    known = {mode: share for mode, share in shares.items() if share is not None}
    if not known:
        return None, None
    mode = max(known, key=lambda each: known[each])
    return mode, known[mode]


def _describe_head(head: Head, statistics: HeadStatistics, links: Sequence[Links], lost: float) -> HeadReport:
    tally = statistics.tallies[head.use]
    place = head.layer, head.head
    shares = {name: tally.mean(name, *place) for name in ("previous", "next", "same_word", "punctuation")}
    mode, alignment = _mode(tally, *place)
    aer = None
    if mode is not None:
        aer = agreement([strongest_links(matrix[place]) for matrix in statistics.matrices[mode]], links).aer
    name = name_head(shares | {"alignment": alignment}, tally.mean("spread", *place) or 0.0)
    entropy = tally.mean("entropy", *place) or 0.0
    return HeadReport(
        head.use, *place, shares["previous"], shares["next"], shares["same_word"], shares["punctuation"], alignment, mode, aer,
        entropy, lost, name,
    )  # fmt: skip


def name_head(shares: dict[str, float | None], spread: float) -> str:
    """The name of a head by where most of its attention goes; `broad` if it goes everywhere, else `mixed`."""
    kinds = {name: share for name, share in shares.items() if share is not None and share >= NAME_THRESHOLD}
    if kinds:
        return NAMES[max(kinds, key=lambda name: kinds[name])]
    return "broad" if spread >= 0.8 else "mixed"


def _best_aligners(
    statistics: HeadStatistics, links: Sequence[Links]
) -> tuple[tuple[tuple[int, int, Mode], ...], list[frozenset[Link]], Agreement | None]:
    """The heads that align best, the links they find together, and how well those agree with the aligner."""
    first = statistics.matrices["writes"]
    if not first:
        return (), [frozenset() for _ in links], None
    layers, count = first[0].shape[:2]
    each = []
    for layer, head in np.ndindex(layers, count):
        mode = _mode(statistics.tallies["cross"], layer, head)[0] or "writes"
        found = [strongest_links(matrix[layer, head]) for matrix in statistics.matrices[mode]]
        each.append((agreement(found, links).aer, (int(layer), int(head), mode)))
    ranked = [place for _, place in sorted(each)][:MAX_ALIGNING_HEADS]
    results = []
    for size in range(1, len(ranked) + 1):
        together = [statistics.matrices[mode] for _, _, mode in ranked[:size]]
        sums = [sum(part[pair][place[:2]] for part, place in zip(together, ranked, strict=False)) for pair in range(len(links))]
        found = [strongest_links(np.asarray(matrix)) for matrix in sums]
        results.append((agreement(found, links), tuple(ranked[:size]), found))
    agreed, chosen, found = min(results, key=lambda result: result[0].aer)
    return chosen, found, agreed


def to_json(result: Report) -> str:
    """The report as JSON, without the alignments, which have their own file."""
    values = dataclasses.asdict(result)
    del values["alignments"]
    values["agreement"] = result.agreement._asdict() if result.agreement else None
    values["diagonal"] = result.diagonal._asdict()
    return json.dumps({"format": "undivided heads", "format_version": 1} | values, indent=1) + "\n"


def format_table(result: Report) -> str:
    """The report as a table of text."""
    lines = [f"{result.lines:,} lines; greedy search with all heads: {result.bleu}"]
    columns = ("layer", "head", "name", "prev.", "next", "same", "punct.", "align.", "AER", "entropy", "BLEU lost")
    form = "{:>5} {:>4}  {:<15} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>9}"
    for use, name in USES.items():
        rows = [row for row in result.heads if row.use == use]
        if rows:
            lines += ["", name, form.format(*columns)]
        for row in rows:
            shares = [row.previous, row.next, row.same_word, row.punctuation, row.alignment, row.aer]
            cells = ["–" if share is None else f"{share:.2f}" for share in shares]
            lines.append(form.format(row.layer + 1, row.head + 1, row.name, *cells, f"{row.entropy:.2f}", f"{row.bleu_lost:+.2f}"))
    return "\n".join([*lines, *_aligners(result)]) + "\n"


def _aligners(result: Report) -> list[str]:
    if result.agreement is None:
        return []
    which = ", ".join(f"layer {layer + 1} head {head + 1} (aligned by the word it {mode})" for layer, head, mode in result.aligners)
    agreed = result.agreement
    figures = f"error rate {agreed.aer:.3f}, precision {agreed.precision:.3f}, recall {agreed.recall:.3f}"
    return [
        "",
        f"word alignments from {which}: {figures} against IBM model 1 in both directions;",
        f"the diagonal alone has error rate {result.diagonal.aer:.3f}",
    ]
