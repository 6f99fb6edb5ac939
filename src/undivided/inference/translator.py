"""`Translator`: text → text, one output for every input, in order. Importing this must not import torch."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack, overload

from undivided.artifact import Artifact, open_artifact
from undivided.artifact.demand import BATCH_ROWS, check_demand
from undivided.config import CHUNK_LINES, SearchConfig, check_threads
from undivided.core.console import Console, LoggingConsole, plural
from undivided.core.errors import InputError
from undivided.inference.chunks import Cancelled, chunk_lines, prefetch
from undivided.inference.engines.choice import choose_engine
from undivided.inference.engines.contract import batch_by_length
from undivided.inference.search_settings import SearchChanges, change_search, check_n_best
from undivided.inference.translation import Translation, decode_translation, encode_texts, search_texts

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
        self.artifact = model if isinstance(model, Artifact) else open_artifact(model, device, threads)
        self._checked = None if trust else folder
        self._check_demand(SearchConfig(beam_size=1, max_extra=1), 1)
        self.engine = choose_engine(engine, self.artifact, folder, threads, console or LoggingConsole(), device)
        recipe = self.artifact.recipe
        self.longest = min(recipe.data.max_length, recipe.model.position_limit or recipe.data.max_length)
        """The most tokens of a training sentence that the model has positions for: a longer text is split wherever it must be."""
        usual = self.artifact.facts.get("usual_length")
        self.usual = min(usual, self.longest) if isinstance(usual, int) and usual > 0 else self.longest
        """The length of most training sentences: a longer text is split between sentences."""

    @property
    def device(self) -> torch.device:
        """The device of the PyTorch model."""
        return self.artifact.device

    @overload
    def translate(self, text: str, **changes: Unpack[SearchChanges]) -> str: ...  # type: ignore[overload-overlap]
    @overload
    def translate(self, text: Sequence[str], **changes: Unpack[SearchChanges]) -> list[str]: ...
    def translate(self, text: str | Sequence[str], **changes: Unpack[SearchChanges]) -> str | list[str]:
        """The translation of a text, or of each of several; `beam_size=…` and the like as in `SearchConfig`."""
        if isinstance(text, str):
            return self.translate([text], **changes)[0]
        parts = [each.split("\n") for each in text]
        results = self.stream([line for part in parts for line in part], **changes)
        return ["\n".join(next(results).text for _ in part) for part in parts]

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
        usual = self.usual if config.sentences else self.longest
        texts = encode_texts([each.text for each in requests], tokenizer.source, usual, self.longest)
        prefixes = [ids[:-1] for ids in tokenizer.target.encode([each.prefix for each in requests])]
        results: dict[int, Translation] = {}
        for index, hypotheses in search_texts(self.engine, texts, config, prefixes, [each.key for each in requests]):
            results[index] = decode_translation(requests[index].text, texts[index].pieces, hypotheses, tokenizer.target)
            counter.add(1)
        return [results[index] for index in range(len(requests))]


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
