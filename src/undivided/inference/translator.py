"""`Translator`: text → text, one output for every input, in order. Importing this must not import torch."""

from __future__ import annotations

import dataclasses
import functools
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from undivided.artifact import Artifact, open_artifact
from undivided.config import CHUNK_LINES, SearchConfig
from undivided.config.settings import check_range
from undivided.core.console import Console, LoggingConsole, plural
from undivided.core.errors import InputError
from undivided.data.subwords import to_one_line
from undivided.inference.engines.choice import choose_engine
from undivided.inference.engines.contract import by_length
from undivided.inference.hypothesis import Hypothesis
from undivided.inference.windows import ahead, windows

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Translation:
    """What became of one text."""

    source: str
    text: str
    score: float
    """Log-probability over length penalty; the higher the surer."""
    finished: bool
    """Whether the model ended it; if not, it was cut at the length limit."""
    alternatives: tuple[tuple[str, float], ...] = ()
    """The n best as (text, score), this one first."""
    pieces: int = 1
    """How many pieces an over-long text was translated in."""


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
    ) -> None:
        if threads < 0:
            raise InputError(f"threads: {threads} is less than 0")
        folder = None if isinstance(model, Artifact) else Path(model)
        self.artifact = model if isinstance(model, Artifact) else open_artifact(model, device, threads)
        self.engine = choose_engine(engine, self.artifact, folder, threads, console or LoggingConsole(), device)
        self.longest = self.artifact.recipe.data.max_length
        usual = self.artifact.facts.get("usual_length")
        self.usual = min(usual, self.longest) if isinstance(usual, int) and usual > 0 else self.longest
        """As long as most of what training saw: beyond it, a model translates the first sentences and forgets the others."""

    @property
    def device(self) -> torch.device:
        """Where the model itself computes."""
        return self.artifact.device

    @overload
    def translate(self, text: str, **options: Any) -> str: ...
    @overload
    def translate(self, text: Sequence[str], **options: Any) -> list[str]: ...
    def translate(self, text: str | Sequence[str], **options: Any) -> str | list[str]:
        """The translation of a text, or of each of several; `beam_size=…` and the like as in `SearchConfig`."""
        if isinstance(text, str):
            return self.translate([text], **options)[0]
        parts = [each.split("\n") for each in text]
        results = self.stream([line for part in parts for line in part], **options)
        return ["\n".join(next(results).text for _ in part) for part in parts]

    def stream(
        self,
        lines: Iterable[str],
        prefixes: Sequence[str] | None = None,
        advance: Callable[[int], None] = lambda count: None,
        first: int = 0,
        **options: Any,
    ) -> Iterator[Translation]:
        """One result for every line, in order, as soon as its window is done; memory does not grow with the input.

        `prefixes` are what the translations must begin with; `advance` is told of lines as they are translated.
        `first` is how many lines of a larger whole came before: samples are drawn by the number of the line.
        """
        several = self.engine.side_by_side and not (isinstance(lines, Sequence) and len(lines) <= CHUNK_LINES)
        begun = self._begun(lines, prefixes, advance, first, self.search_config(**options), several)
        for finished in ahead(begun) if several else begun:
            yield from finished()

    def _begun(
        self,
        lines: Iterable[str],
        prefixes: Sequence[str] | None,
        advance: Callable[[int], None],
        first: int,
        config: SearchConfig,
        several: bool,
    ) -> Iterator[Callable[[], list[Translation]]]:
        """Windows of lines as what gives their translations; where several are worked on at once, that has begun."""
        place, lock = 0, threading.Lock()
        with ThreadPoolExecutor(2) as pool:
            for window in windows(lines):
                begin = None if prefixes is None else prefixes[place : place + len(window)]
                if begin is not None and len(begin) < len(window):
                    raise InputError(f"there are only {plural(len(prefixes or ()), 'prefix line')}, fewer than lines to translate")
                work = functools.partial(self._window, window, config, first + place, begin, Counted(advance, len(window), lock))
                yield pool.submit(work).result if several else work
                place += len(window)

    def search_config(self, **options: Any) -> SearchConfig:
        """The model's own search settings with changes."""
        config = self.artifact.recipe.search
        known = {item.name: item for item in dataclasses.fields(SearchConfig)}
        for name, value in options.items():
            if name not in known:
                raise TypeError(f"no search setting {name!r}; known: {', '.join(known)}")
            try:
                check_range(value, known[name])
            except ValueError as error:
                raise InputError(f"{name}: {error}") from None
        config = dataclasses.replace(config, **options)
        if config.n_best > config.beam_size and not config.sample:
            raise InputError(f"n_best: {config.n_best} translations need a beam_size of as many; it is {config.beam_size}")
        return config

    def score(self, sources: Sequence[str], targets: Sequence[str]) -> list[list[float]]:
        """Log-probability of every token of given translations, the end symbol included."""
        from undivided.inference.search import forced_scores

        src = self.artifact.tokenizer.source.encode(sources)
        tgt = self.artifact.tokenizer.target.encode(targets)
        result: list[list[float]] = [[] for _ in src]
        for batch in by_length([max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)], beams=4):
            rows = forced_scores(self.artifact.model, [src[i] for i in batch], [tgt[i] for i in batch], self.device)
            for place, row in zip(batch, rows, strict=True):
                result[place] = row
        return result

    def _window(
        self, lines: Sequence[str], config: SearchConfig, first: int, prefixes: Sequence[str] | None, counted: Counted
    ) -> list[Translation]:
        """Translate some lines together. A line that occurs again is translated once."""
        again: dict[tuple[str, str, int], int] = {}
        jobs: list[_Job] = []
        for number, line in enumerate(lines):
            prefix = prefixes[number] if prefixes is not None else ""
            key = (line, prefix, number if config.sample else 0)
            if line.strip() and key not in again:
                again[key] = len(jobs)
                jobs.append(_Job(line, prefix, first + number))
        done = self._run(jobs, config, counted)
        results = []
        for number, line in enumerate(lines):
            prefix = prefixes[number] if prefixes is not None else ""
            key = (line, prefix, number if config.sample else 0)
            results.append(done[again[key]] if key in again else Translation(line, "", 0.0, finished=True))
        counted.rest()
        return results

    def _run(self, jobs: Sequence[_Job], config: SearchConfig, counted: Counted) -> list[Translation]:
        """Translate jobs; a text is written down as soon as it is found, while an engine with threads of its own goes on."""
        tokenizer = self.artifact.tokenizer
        encoded = tokenizer.source.encode([job.text for job in jobs])
        texts = [self._pieces(job.text, len(ids), config.sentences) for job, ids in zip(jobs, encoded, strict=True)]
        owners, sources, begin = [], [], []
        for number, (pieces, ids) in enumerate(zip(texts, encoded, strict=True)):
            owners += [number] * len(pieces)
            sources += [ids] if len(pieces) == 1 else tokenizer.source.encode([piece for piece, _ in pieces])
            begin += [jobs[number].prefix, *[""] * (len(pieces) - 1)]
        prefixes = [ids[:-1] for ids in tokenizer.target.encode(begin)]
        found: list[dict[int, list[Hypothesis]]] = [{} for _ in jobs]
        results: dict[int, Translation] = {}
        for place, hypotheses in self.engine.search(sources, config, prefixes, [jobs[number].key for number in owners]):
            number = owners[place]
            found[number][place] = hypotheses
            if len(found[number]) == len(texts[number]):
                parts = [part for _, part in sorted(found[number].items())]
                results[number] = self._result(jobs[number].text, texts[number], parts)
            counted(1)
        return [results[number] for number in range(len(jobs))]

    def _pieces(self, text: str, tokens: int, sentences: bool) -> list[tuple[str, str]]:
        """A text as (piece, the space after it); more than one where it is longer than what training saw.

        What is longer than usual is cut between sentences; what has more tokens than training ever saw, wherever it must be.
        """
        usual = self.usual if sentences else self.longest
        if tokens <= usual:
            return [(text, "")]
        # What ends with a full stop and is short may be an abbreviation; it stays with what follows it.
        comfortable, most = (max(1, len(text) * share // tokens) for share in (usual // 4, (self.longest - 2) // 2))
        return _worded(split_long(text, comfortable, most if tokens > self.longest else len(text)))

    def _result(self, source: str, pieces: list[tuple[str, str]], found: list[list[Hypothesis]]) -> Translation:
        decode = self.artifact.tokenizer.target.decode
        if len(pieces) == 1:
            texts = [to_one_line(text) for text in decode([hypothesis.tokens for hypothesis in found[0]])]
            best = found[0][0]
            ranked = tuple((text, each.score) for text, each in zip(texts, found[0], strict=True))
            return Translation(source, texts[0], best.score, best.finished, ranked)
        bests = [hypotheses[0] for hypotheses in found]
        texts = decode([best.tokens for best in bests])
        joined = to_one_line("".join(text + space for text, (_, space) in zip(texts, pieces, strict=True)))
        score = sum(best.score for best in bests)
        return Translation(source, joined, score, all(best.finished for best in bests), ((joined, score),), len(pieces))


class Counted:
    """Tells of lines as they are done, one teller at a time, and of no more than there are."""

    def __init__(self, advance: Callable[[int], None], total: int, lock: threading.Lock) -> None:
        self.advance, self.left, self.lock = advance, total, lock

    def __call__(self, count: int) -> None:
        """So many more are done."""
        count = min(count, self.left)
        self.left -= count
        with self.lock:
            self.advance(count)

    def rest(self) -> None:
        """All are done."""
        self(self.left)


@dataclass(frozen=True)
class _Job:
    text: str
    prefix: str
    key: int


SENTENCE_END = re.compile(r"((?<=[.!?])\s+|(?<=[。！？])\s*)")
SPACE = re.compile(r"(\s+)")


def split_long(text: str, comfortable: int, most: int) -> list[tuple[str, str]]:
    """Cut a text between sentences into pieces of about `comfortable` characters, and those with more than `most` at spaces,
    else anywhere; nothing is lost."""
    result: list[tuple[str, str]] = []
    for sentence, space in _packed(SENTENCE_END.split(text), comfortable):
        for part, after in _closed(_packed(SPACE.split(sentence), most), space) if len(sentence) > most else [(sentence, space)]:
            cuts = [part[start : start + most] for start in range(0, len(part), most)] or [part]
            result += [(cut, "") for cut in cuts[:-1]] + [(cuts[-1], after)]
    return result


def _packed(parts: list[str], size: int) -> list[tuple[str, str]]:
    """Texts and the spaces between them, in turn → pieces as full as `size` allows."""
    pieces: list[tuple[str, str]] = []
    for text, space in zip(parts[::2], [*parts[1::2], ""], strict=True):
        fits = pieces and len("".join(pieces[-1])) + len(text) <= size
        # A piece that is nothing but space would be translated into something.
        if pieces and not text:
            pieces[-1] = (pieces[-1][0], pieces[-1][1] + space)
        elif pieces and (fits or not pieces[-1][0]):
            pieces[-1] = ("".join(pieces[-1]) + text, space)
        else:
            pieces.append((text, space))
    return pieces


def _worded(pieces: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pieces of nothing but space would be translated into something: behind words, they are the space after those."""
    result: list[tuple[str, str]] = []
    for piece, space in pieces:
        if result and result[-1][0].strip() and not piece.strip():
            result[-1] = (result[-1][0], result[-1][1] + piece + space)
        else:
            result.append((piece, space))
    return result


def _closed(pieces: list[tuple[str, str]], space: str) -> list[tuple[str, str]]:
    return [*pieces[:-1], (pieces[-1][0], pieces[-1][1] + space)]
