"""`Translator`: text → text, one output for every input, in order. Importing this must not import torch."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack, overload

from undivided.artifact import Artifact, open_artifact, warn_unfinished
from undivided.artifact.demand import BATCH_ROWS, check_demand
from undivided.config import CHUNK_LINES, SearchConfig, check_threads
from undivided.core.console import Console, LoggingConsole, plural
from undivided.core.errors import InputError
from undivided.inference.chunks import Cancelled, chunk_lines, prefetch
from undivided.inference.engines.choice import choose_engine
from undivided.inference.engines.contract import batch_by_length
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.loops import BLOCKED
from undivided.inference.pieces import Limits
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
    ) -> None:
        """`trust` lets the settings of a folder ask for more memory than a stranger's may."""
        check_threads(threads)
        folder = None if isinstance(model, Artifact) else Path(model)
        self.folder = folder
        """Where the model is; None for one that is in memory alone."""
        self.artifact = model if isinstance(model, Artifact) else open_artifact(model, device, threads)
        warn_unfinished(folder, self.artifact.facts, console or LoggingConsole())
        self._checked = None if trust else folder
        self._check_demand(SearchConfig(beam_size=1, max_extra=1), 1)
        self.engine = choose_engine(engine, self.artifact, folder, threads, console or LoggingConsole(), device)
        self.limits = line_limits(self.artifact)
        """What lines the model knows from its training: others are split."""
        ratio = self.artifact.facts.get("length_ratio")
        self.ratio = float(ratio) if isinstance(ratio, float) and 0 < ratio < 100 else 0.0
        """Target to source tokens of training; 0 is unknown."""
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
        return [piece.text for piece in encode_texts([text], self.artifact.tokenizer.source, limits)[0].pieces]

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

        def work(chunk: _Chunk, is_cancelled: Callable[[], bool] = lambda: False) -> list[Translation]:
            begins = [""] * len(chunk.lines) if prefixes is None else prefixes[chunk.start : chunk.start + len(chunk.lines)]
            if len(begins) < len(chunk.lines):
                raise InputError(f"there are only {plural(len(prefixes or ()), 'prefix line')}, fewer than lines to translate")
            counter = _Counter(advance, len(chunk.lines), lock, is_cancelled)
            return self._translate_chunk(chunk.lines, begins, first + chunk.start, config, counter)

        chunks = _number_chunks(lines)
        for results in prefetch(chunks, work, is_stopped) if overlap else map(work, chunks):
            yield from results
            if is_stopped() and not overlap:
                return

    def search_config(self, **changes: Unpack[SearchChanges]) -> SearchConfig:
        """The model's own search settings with changes."""
        config = change_search(self.artifact.recipe.search, **changes)
        check_n_best(config)
        # What a person asks for is held to what one sentence needs; what the folder asks for, to what a batch needs.
        self._check_demand(config, 1 if changes.keys() & {"beam_size", "max_extra", "n_best", "sample"} else BATCH_ROWS)
        return config

    def _check_demand(self, config: SearchConfig, sentences: int) -> None:
        if self._checked is not None:
            check_demand(self._checked, self.artifact.recipe, len(self.artifact.tokenizer.target), config, sentences)

    def judge(self, result: Translation) -> Verdict:
        """Whether a translation is sound and, if not, why."""
        return judge(result, self.usual)

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[float]]:
        """Log-probability of every token of given translations, the end symbol included."""
        from undivided.inference.search import forced_scores

        src = self.artifact.tokenizer.source.encode(sources)
        tgt = self.artifact.tokenizer.target.encode(targets)
        result: list[list[float]] = [[] for _ in src]
        for batch in batch_by_length([max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], beams=4):
            rows = forced_scores(self.artifact.model, [src[i] for i in batch], [tgt[i] for i in batch], self.device)
            for index, row in zip(batch, rows, strict=True):
                result[index] = row
        return result

    def _translate_chunk(
        self, lines: Sequence[str], prefixes: Sequence[str], first: int, config: SearchConfig, counter: _Counter
    ) -> list[Translation]:
        """Translate lines together, each different one once; samples differ by the number of the line."""
        requests: dict[_Request, None] = {}
        wanted = []
        for number, (line, prefix) in enumerate(zip(lines, prefixes, strict=True), first):
            wanted.append(_Request(line, prefix, number if config.sample else 0))
            if line.strip():
                requests.setdefault(wanted[-1])
        found = dict(zip(requests, self._translate_requests(list(requests), config, counter), strict=True))
        counter.finish()
        return [found.get(each, Translation(each.text, "", 0.0, finished=True)) for each in wanted]

    def _translate_requests(self, requests: Sequence[_Request], config: SearchConfig, counter: _Counter) -> list[Translation]:
        """The whole walk: text → pieces → ids → hypotheses → text, decoded while a parallel engine searches on."""
        tokenizer = self.artifact.tokenizer
        limits = self.limits if config.sentences else Limits(self.limits.longest, self.limits.longest)
        texts = encode_texts([each.text for each in requests], tokenizer.source, limits)
        results: dict[int, Translation] = {}
        again: dict[int, EncodedText] = {}
        for index, hypotheses in self._search(requests, texts, config):
            short = self._find_short(texts[index], hypotheses)
            found = decode_translation(requests[index].text, texts[index], hypotheses, tokenizer.target)
            looped = find_looped(texts[index], hypotheses)
            results[index] = dataclasses.replace(found, short=any(short), looped=looped)
            if any(short) and config.sentences and not config.sample:
                again[index] = encode_again(texts[index], short, tokenizer.source, self.limits)
            counter.add(1)
        results |= self._try_again(requests, texts, again, config)
        results |= self._break_loops(requests, texts, [index for index, found in results.items() if found.looped], config)
        for index, text in enumerate(texts):
            unknown = share_unknown(requests[index].text, text.ids, tokenizer.source)
            if unknown:
                results[index] = dataclasses.replace(results[index], unknown=unknown)
        return [results[index] for index in range(len(requests))]

    def _search(
        self, requests: Sequence[_Request], texts: Sequence[EncodedText], config: SearchConfig
    ) -> Iterator[tuple[int, list[list[Hypothesis]]]]:
        prefixes = [ids[:-1] for ids in self.artifact.tokenizer.target.encode([each.prefix for each in requests])]
        return search_texts(self.engine, texts, config, prefixes, [each.key for each in requests])

    def _find_short(self, text: EncodedText, hypotheses: Sequence[Sequence[Hypothesis]]) -> list[bool]:
        """Which pieces of a text have a translation that is much too short."""
        return [is_short(ids, found[0], self.ratio) for ids, found in zip(text.ids, hypotheses, strict=True)]

    def _try_again(
        self, requests: Sequence[_Request], texts: Sequence[EncodedText], again: dict[int, EncodedText], config: SearchConfig
    ) -> dict[int, Translation]:
        """Translations of texts in smaller pieces, of those for which they are no longer too short."""
        chosen = [index for index, text in again.items() if len(text.pieces) > len(texts[index].pieces)]
        wanted, better = [again[index] for index in chosen], {}
        for place, hypotheses in self._search([requests[index] for index in chosen], wanted, config) if chosen else ():
            if not any(self._find_short(wanted[place], hypotheses)):
                text, target = requests[chosen[place]].text, self.artifact.tokenizer.target
                better[chosen[place]] = decode_translation(text, wanted[place], hypotheses, target)
        return better

    def _break_loops(
        self, requests: Sequence[_Request], texts: Sequence[EncodedText], looped: Sequence[int], config: SearchConfig
    ) -> dict[int, Translation]:
        """Translations of texts that came out repeating themselves, decoded again with repetition blocked."""
        if not looped or config.sample or config.no_repeat_ngram:
            return {}
        blocked, chosen, better = dataclasses.replace(config, no_repeat_ngram=BLOCKED), [texts[index] for index in looped], {}
        for place, hypotheses in self._search([requests[index] for index in looped], chosen, blocked):
            found = decode_translation(requests[looped[place]].text, chosen[place], hypotheses, self.artifact.tokenizer.target)
            still = find_looped(chosen[place], hypotheses) or not found.finished
            short = any(self._find_short(chosen[place], hypotheses))
            better[looped[place]] = dataclasses.replace(found, looped=still, short=short)
        return better


def line_limits(artifact: Artifact) -> Limits:
    """What lines a model knows from its training, as its folder says."""
    data = artifact.recipe.data
    longest = min(data.max_length, artifact.recipe.model.position_limit or data.max_length)
    usual, sentences = (artifact.facts.get(name) for name in ("usual_length", "usual_sentences"))
    return Limits(
        min(usual, longest) if isinstance(usual, int) and usual > 0 else longest,
        longest,
        sentences if isinstance(sentences, int) and sentences > 0 else 0,
        data.source_lang,
    )


class _Chunk(NamedTuple):
    """Lines that are translated together, and the number of lines before them."""

    start: int
    lines: list[str]


def _number_chunks(lines: Iterable[str]) -> Iterator[_Chunk]:
    """Chunks of lines, each with where it starts."""
    start = 0
    for chunk in chunk_lines(lines):
        yield _Chunk(start, chunk)
        start += len(chunk)


class _Request(NamedTuple):
    """A line to translate."""

    text: str
    prefix: str
    key: int
    """What a sample depends on beside the seed; 0 where nothing is sampled."""


class _Counter:
    """Reports translated lines, from one thread at a time, and in total as many as there are."""

    def __init__(self, advance: Callable[[int], None], total: int, lock: threading.Lock, is_cancelled: Callable[[], bool]) -> None:
        self.advance, self.left, self.lock, self.is_cancelled = advance, total, lock, is_cancelled

    def add(self, count: int) -> None:
        """Report this many more; `Cancelled` where nobody waits for them any more."""
        if self.is_cancelled():
            raise Cancelled
        self.left -= count
        with self.lock:
            self.advance(count)

    def finish(self) -> None:
        """Report all that are left: empty and repeated lines."""
        self.add(self.left)
