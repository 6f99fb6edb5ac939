"""`Translator`: text → text, one output for every input, in order. Importing this must not import torch."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack, overload

from undivided.artifact import Artifact, open_artifact, warn_unfinished
from undivided.artifact.demand import BATCH_ROWS, check_demand
from undivided.config import CHUNK_LINES, SearchConfig, check_threads
from undivided.core.console import Console, LoggingConsole, plural
from undivided.core.errors import InputError
from undivided.core.ids import TERM_MARKS
from undivided.data.subwords import to_one_line
from undivided.formats.inline import leave_out
from undivided.formats.memory import Memory
from undivided.formats.protection import find_agreed, has_words, mask, mask_pair, unmask
from undivided.formats.terms import Glossary
from undivided.inference.chunks import prefetch
from undivided.inference.consensus import ConsensusEngine
from undivided.inference.engines.choice import choose_engine
from undivided.inference.engines.contract import Engine, batch_by_length
from undivided.inference.forcing import force_lost
from undivided.inference.hypothesis import Hypothesis, NotFinite
from undivided.inference.loops import BLOCKED
from undivided.inference.pieces import Limits, line_limits
from undivided.inference.requests import LineCounter, NumberedChunk, Request, number_chunks
from undivided.inference.restoration import SymbolEngine, has_each_once, mask_prefix, restore
from undivided.inference.search_settings import RankingChanges, SearchChanges, change_search, check_n_best
from undivided.inference.translation import (
    EncodedText,
    Translation,
    decode_translation,
    encode_again,
    encode_texts,
    find_looped,
    is_short,
    search_texts,
    share_unknown,
)
from undivided.inference.verdicts import Usual, Verdict, judge

if TYPE_CHECKING:
    import torch

__all__ = ["Translation", "Translator"]


class Translator:
    """A trained model, ready to translate.

    >>> Translator("my-model").translate("A dog runs.")
    """

    def __init__(
        self,
        model: str | Path | Artifact,
        device: str = "auto",
        threads: int = 0,
        engine: str = "auto",
        console: Console | None = None,
        trust: bool = False,
        glossary: Glossary | None = None,
        memory: Memory | None = None,
    ) -> None:
        """`trust` lets the settings of a folder ask for more memory than a stranger's may.

        Terms of the `glossary` are translated as it says, texts of the `memory` as they were before.
        """
        check_threads(threads)
        folder = None if isinstance(model, Artifact) else Path(model)
        self.folder = folder
        """Where the model is; None for one that is in memory alone."""
        self.artifact = model if isinstance(model, Artifact) else open_artifact(model, device, threads)
        warn_unfinished(folder, self.artifact.facts, console or LoggingConsole())
        found = self.artifact.untrusted if folder is None else ((folder, self.artifact.recipe),)
        self._checked = () if trust else found
        self._check_demand(SearchConfig(beam_size=1, max_extra=1), 1)
        self.engine = choose_engine(engine, self.artifact, folder, threads, console or LoggingConsole(), device)
        self.limits = line_limits(self.artifact)
        """What lines the model knows from its training: others are split."""
        ratio = self.artifact.facts.get("length_ratio")
        self.ratio = float(ratio) if isinstance(ratio, float) and 0 < ratio < 100 else 0.0
        """Target to source tokens of training; 0 is unknown."""
        self.glossary, self.memory = glossary, memory
        self.symbols = self.artifact.tokenizer.symbols
        """Subwords that stand for what must not be translated; a model may have none."""
        self.usual = Usual.of(self.artifact.facts)
        """What its translations are usually like."""

    @property
    def device(self) -> torch.device:
        """The device of the PyTorch model."""
        return self.artifact.device

    def __repr__(self) -> str:
        recipe, facts = self.artifact.recipe, self.artifact.facts
        languages = " → ".join(filter(None, (recipe.data.source_lang, recipe.data.target_lang)))
        size = f", {facts['parameters'] / 1e6:.1f} M parameters" if isinstance(facts.get("parameters"), int) else ""
        what = f"{recipe.model.kind}{f' {languages}' if languages else ''}{size}"
        return f"<Translator{f' {self.folder}' if self.folder else ''}: {what}, engine {self.engine.name}>"

    @overload
    def translate(self, text: str, *, n_best: None = None, **changes: Unpack[RankingChanges]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Sequence[str], *, n_best: None = None, **changes: Unpack[RankingChanges]) -> list[str]: ...
    @overload
    def translate(self, text: str, *, n_best: int, **changes: Unpack[RankingChanges]) -> list[str]: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Sequence[str], *, n_best: int, **changes: Unpack[RankingChanges]) -> list[list[str]]: ...
    def translate(
        self, text: str | Sequence[str], *, n_best: int | None = None, **changes: Unpack[RankingChanges]
    ) -> str | list[str] | list[list[str]]:
        """The translation of a text, or of each of several; `beam_size=…` and the like as in `SearchConfig`.

        With `n_best`, a list of the best translations of each text, best first.
        """
        texts = [text] if isinstance(text, str) else text
        found = self._translate_texts(texts, n_best or 1, **changes)
        results = found if n_best is not None else [each[0] for each in found]
        return results[0] if isinstance(text, str) else results

    def _translate_texts(self, texts: Sequence[str], n_best: int, **changes: Unpack[RankingChanges]) -> list[list[str]]:
        """The n best of each text. Of a text of several lines, the best of all lines, then the second-best of all, and so on."""
        parts = [each.split("\n") for each in texts]
        results = self.stream([line for part in parts for line in part], n_best=n_best, **changes)
        found = []
        for part in parts:
            ranked = [[text for text, _ in each.alternatives] or [each.text] for each in (next(results) for _ in part)]
            most = max(map(len, ranked))
            found.append(["\n".join(each[min(rank, len(each) - 1)] for each in ranked) for rank in range(most)])
        return found

    def split(self, text: str, **changes: Unpack[SearchChanges]) -> list[str]:
        """The pieces that a line is translated in: itself, its sentences, or parts that fit."""
        limits = self.limits if self.search_config(**changes).sentences else Limits(self.limits.longest, self.limits.longest)
        masked = mask(text, self.symbols)
        pieces = encode_texts([masked.text], self.artifact.tokenizer.source, limits)[0].pieces
        return [unmask(piece.text, masked.items) for piece in pieces]

    def stream(
        self,
        lines: Iterable[str],
        prefixes: Sequence[str] | None = None,
        advance: Callable[[int], None] = lambda count: None,
        first: int = 0,
        is_stopped: Callable[[], bool] = lambda: False,
        **changes: Unpack[SearchChanges],
    ) -> Generator[Translation, None, None]:
        """One result for every line, in order, as soon as its chunk is done; memory does not grow with the input.

        `prefixes` are what the translations begin with; `advance` is called with the number of lines just translated.
        `first` is the number of lines of a larger file before these: samples depend on the number of the line.
        Once `is_stopped`, what is finished is still yielded, and nothing more.
        """
        config = self.search_config(**changes)
        overlap = self.engine.is_parallel and not (isinstance(lines, Sequence) and len(lines) <= CHUNK_LINES)
        lock = threading.Lock()

        def work(chunk: NumberedChunk, is_cancelled: Callable[[], bool] = lambda: False) -> list[Translation]:
            begins = [""] * len(chunk.lines) if prefixes is None else prefixes[chunk.start : chunk.start + len(chunk.lines)]
            if len(begins) < len(chunk.lines):
                raise InputError(f"there are only {plural(len(prefixes or ()), 'prefix line')}, fewer than lines to translate")
            counter = LineCounter(advance, len(chunk.lines), lock, is_cancelled)
            return self._translate_chunk(chunk.lines, begins, first + chunk.start, config, counter)

        chunks = number_chunks(lines)
        for results in prefetch(chunks, work, is_stopped) if overlap else map(work, chunks):
            yield from results
            if is_stopped() and not overlap:
                return

    def search_config(self, **changes: Unpack[SearchChanges]) -> SearchConfig:
        """The model's own search settings with changes."""
        config = change_search(self.artifact.recipe.search, **changes)
        check_n_best(config)
        # What a person asks for is held to what one sentence needs; what the folder asks for, to what a batch needs.
        self._check_demand(config, 1 if changes.keys() & {"beam_size", "max_extra", "n_best", "sample", "draft"} else BATCH_ROWS)
        return config

    def _check_demand(self, config: SearchConfig, sentences: int) -> None:
        for folder, recipe in self._checked:
            check_demand(folder, recipe, len(self.artifact.tokenizer.target), config, sentences)

    def judge(self, result: Translation) -> Verdict:
        """Whether a translation is sound and, if not, why."""
        return judge(result, self.usual)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[float]]:
        """Log-probability of every token of given translations, the end symbol included."""
        from undivided.inference.search import forced_scores

        pairs = [mask_pair(*pair, find_agreed(*pair), self.symbols) for pair in zip(sources, targets, strict=True)]
        src = self.artifact.tokenizer.source.encode([source for source, _ in pairs])
        tgt = self.artifact.tokenizer.target.encode([target for _, target in pairs])
        result: list[list[float]] = [[] for _ in src]
        for batch in batch_by_length([max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], beams=4):
            rows = forced_scores(self.artifact.model, [src[i] for i in batch], [tgt[i] for i in batch], self.device)
            if any(math.isnan(each) for row in rows for each in row):
                raise NotFinite
            for index, row in zip(batch, rows, strict=True):
                result[index] = row
        return result

    def _translate_chunk(
        self, lines: Sequence[str], prefixes: Sequence[str], first: int, config: SearchConfig, counter: LineCounter
    ) -> list[Translation]:
        """Translate lines together, each different one once; samples differ by the number of the line."""
        wanted, found = [], dict[Request, Translation]()
        for number, (line, prefix) in enumerate(zip(lines, prefixes, strict=True), first):
            wanted.append(Request(line, prefix, number if config.sample else 0, mask(self._annotate(line), self.symbols)))
            if (known := self._find_known(wanted[-1])) is not None:
                found[wanted[-1]] = known
        requests = list(dict.fromkeys(each for each in wanted if each not in found))
        found |= zip(requests, self._translate_requests(requests, config, counter), strict=True)
        counter.finish()
        return [found[each] for each in wanted]

    def _annotate(self, line: str) -> str:
        """A line with the glossary's translations beside its terms, for a model that learned to obey them."""
        known = self.glossary is not None and self.artifact.tokenizer.source.has_term_marks
        return self.glossary.annotate(line) if known and self.glossary and not any(mark in line for mark in TERM_MARKS) else line

    def _find_known(self, request: Request) -> Translation | None:
        """The result for a line that needs no search: it is empty, in the memory, or nothing but what is protected."""
        if not request.text.strip():
            return Translation(request.text, "", 0.0, finished=True)
        exact = self.memory.find_exact(leave_out(request.text)) if self.memory is not None and not request.prefix else None
        if exact is not None:
            return Translation(request.text, to_one_line(exact), 0.0, finished=True, reused=True)
        if self.symbols and not request.prefix and not has_words(request.text):
            return Translation(request.text, request.text, 0.0, finished=True)
        return None

    def _translate_requests(self, requests: Sequence[Request], config: SearchConfig, counter: LineCounter) -> list[Translation]:
        """The whole walk: text → pieces → ids → hypotheses → text, decoded while a parallel engine searches on."""
        tokenizer = self.artifact.tokenizer
        limits = self.limits if config.sentences else Limits(self.limits.longest, self.limits.longest)
        texts = encode_texts([each.masked.text for each in requests], tokenizer.source, limits)
        results: dict[int, Translation] = {}
        again: dict[int, EncodedText] = {}
        for index, hypotheses in self._search(requests, texts, config):
            short = self._find_short(texts[index], hypotheses)
            found = decode_translation(requests[index].text, texts[index], hypotheses, tokenizer.target)
            looped = find_looped(texts[index], hypotheses, found)
            results[index] = dataclasses.replace(found, short=any(short), looped=looped)
            if any(short) and config.sentences and not config.sample:
                again[index] = encode_again(texts[index], short, tokenizer.source, self.limits)
            counter.add(1)
        results |= self._try_again(requests, texts, again, config)
        results |= self._break_loops(requests, texts, [index for index, found in results.items() if found.looped], config)
        found_all = {index: has_each_once(found.text, requests[index].masked) for index, found in results.items()}
        lost = [index for index, complete in found_all.items() if self.symbols and not complete]
        results |= self._find_lost(requests, texts, lost, config)
        if not self.symbols and not config.sample:
            results |= force_lost(self.artifact, requests, texts, results, partial(self._search, config=config), self._decode)
        for index, text in enumerate(texts):
            unknown = share_unknown(requests[index].masked.text, text.ids, tokenizer.source)
            if unknown:
                results[index] = dataclasses.replace(results[index], unknown=unknown)
        restored = [restore(results[index], request.masked) for index, request in enumerate(requests)]
        return self._obey_terms(requests, restored, limits, config)

    def _search(
        self,
        requests: Sequence[Request],
        texts: Sequence[EncodedText],
        config: SearchConfig,
        engine: Engine | None = None,
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        begins = [mask_prefix(each.prefix, each.masked) for each in requests]
        prefixes = [ids[:-1] for ids in self.artifact.tokenizer.target.encode(begins)]
        engine = engine or self.engine
        if config.consensus:
            engine = ConsensusEngine(engine, self.artifact.tokenizer.target)
        return search_texts(engine, texts, config, prefixes, [each.key for each in requests])

    def _find_short(self, text: EncodedText, hypotheses: Sequence[Sequence[Hypothesis]]) -> list[bool]:
        """Which pieces of a text have a translation that is much too short."""
        return [is_short(ids, found[0], self.ratio) for ids, found in zip(text.ids, hypotheses, strict=True)]

    def _try_again(
        self, requests: Sequence[Request], texts: Sequence[EncodedText], again: dict[int, EncodedText], config: SearchConfig
    ) -> dict[int, Translation]:
        """Translations of texts in smaller pieces, of those for which they are no longer too short."""
        chosen = [index for index, text in again.items() if len(text.pieces) > len(texts[index].pieces)]
        wanted, better = [again[index] for index in chosen], {}
        for place, hypotheses in self._search([requests[index] for index in chosen], wanted, config) if chosen else ():
            if not any(self._find_short(wanted[place], hypotheses)):
                better[chosen[place]] = self._decode(requests[chosen[place]].text, wanted[place], hypotheses)
        return better

    def _break_loops(
        self, requests: Sequence[Request], texts: Sequence[EncodedText], looped: Sequence[int], config: SearchConfig
    ) -> dict[int, Translation]:
        """Translations of texts that came out repeating themselves, decoded again with repetition blocked."""
        if not looped or config.sample or config.no_repeat_ngram:
            return {}
        blocked, chosen, better = dataclasses.replace(config, no_repeat_ngram=BLOCKED), [texts[index] for index in looped], {}
        for place, hypotheses in self._search([requests[index] for index in looped], chosen, blocked):
            found = self._decode(requests[looped[place]].text, chosen[place], hypotheses)
            better[looped[place]] = dataclasses.replace(found, looped=found.looped or not found.finished)
        return better

    def _find_lost(
        self, requests: Sequence[Request], texts: Sequence[EncodedText], lost: Sequence[int], config: SearchConfig
    ) -> dict[int, Translation]:
        """Translations of texts that came out without a symbol, or with one twice, decoded again so that each comes once."""
        if not lost or config.sample:
            return {}
        engine, chosen, better = SymbolEngine(self.engine.reference, self.artifact.tokenizer), [texts[i] for i in lost], {}
        for place, hypotheses in self._search([requests[index] for index in lost], chosen, config, engine):
            better[lost[place]] = self._decode(requests[lost[place]].text, chosen[place], hypotheses)
        return better

    def _decode(self, source: str, text: EncodedText, hypotheses: Sequence[Sequence[Hypothesis]]) -> Translation:
        """Hypotheses → translation, with what is odd about it."""
        found = decode_translation(source, text, hypotheses, self.artifact.tokenizer.target)
        return dataclasses.replace(
            found, looped=find_looped(text, hypotheses, found), short=any(self._find_short(text, hypotheses))
        )

    def _obey_terms(
        self, requests: Sequence[Request], results: list[Translation], limits: Limits, config: SearchConfig
    ) -> list[Translation]:
        """Translations with the terms of the glossary: where one is missed, decoded again with symbols in the place of all."""
        glossary = self.glossary
        if glossary is None:
            return results
        find_missed = partial(glossary.find_missed, may_inflect=self.artifact.tokenizer.source.has_term_marks)
        missed = [place for place, each in enumerate(requests) if find_missed(each.text, results[place].text)]
        if self.symbols and not config.sample:
            terms = [[span for span, _ in glossary.find(requests[place].text)] for place in missed]
            asked = [requests[place]._replace(masked=mask(requests[place].text, self.symbols, found))
                     for place, found in zip(missed, terms, strict=True)]  # fmt: skip
            texts = encode_texts([each.masked.text for each in asked], self.artifact.tokenizer.source, limits)
            better = self._find_lost(asked, texts, range(len(asked)), config)
            for number, found in better.items():
                unknown = results[missed[number]].unknown
                results[missed[number]] = dataclasses.replace(restore(found, asked[number].masked), unknown=unknown)
        return [
            dataclasses.replace(found, missed=tuple(f"{term.source} → {term.target}" for term in left)) if left else found
            for found, left in ((each, find_missed(each.source, each.text)) for each in results)
        ]
