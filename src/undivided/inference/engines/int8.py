"""Our own engine for CPUs with 8-bit instructions: products in int8, everything else in float32. It does not need torch.

Rows are quantised one by one and integers add up exactly, so a translation does not depend on its batch, nor on threads.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.core.console import Console
from undivided.core.ids import BOS, EOS
from undivided.inference.drafts import DraftCount, DraftSearch
from undivided.inference.engines.contract import INT8, ConvertedEngine, batch_by_length, follows_drafts
from undivided.inference.engines.copies import TOLERANCE, Copy, UnsupportedModel, compare_on_samples, mean_difference
from undivided.inference.engines.int8_model import (
    ACTIVATIONS,
    ARRAYS,
    LAYOUT,
    WIDE,
    Int8Model,
    Memory,
    Output,
    Past,
    Slots,
    log_probability,
    top_tokens,
    works,
    write_arrays,
)
from undivided.inference.finished import Finished
from undivided.inference.hypothesis import Hypothesis, NotFinite
from undivided.inference.loops import find_repeats
from undivided.nn.library import why_no_kernels
from undivided.nn.library.signatures import Int8Stack

Found = list[tuple[int, list[Hypothesis]]]

VERSION = 1
"""Of what `convert` writes: a model of another version is converted again."""

ROWS = 2
"""Batches are smaller by this factor than those of PyTorch: products in 8 bits are as fast with 128 rows as with 256."""


def check_supported(artifact: Artifact) -> None:
    """Raise `UnsupportedModel` with everything that stands in the way: of the processor, or of the model's settings."""
    if not works():
        raise UnsupportedModel(why_no_kernels() or "this processor has no AVX-512 VNNI, the instructions for products of 8 bits")
    model = artifact.recipe.model
    if model.kind != "transformer":
        raise UnsupportedModel(f"it has no {model.kind} models")
    width = model.d_model // model.n_heads
    faults = []
    if model.window:
        faults.append("restricted attention (model.window)")
    if model.join_positions != "add":
        faults.append("concatenated positions (model.join_positions)")
    if (model.key_width, model.value_width) != (width, width) or model.d_model % model.n_heads or width % WIDE:
        faults.append(f"heads whose width is not d_model / n_heads and a multiple of {WIDE}")
    if not model.source_eos:
        faults.append("encoder that does not read the </s> behind a source (model.source_eos)")
    if model.activation not in ACTIVATIONS:
        faults.append(f"{model.activation} between the products (model.activation)")
    if faults:
        raise UnsupportedModel(f"it has no {', no '.join(faults)}")


def convert(artifact: Artifact, folder: Path, console: Console) -> Path:
    """The model in 8 bits: the one of the user's cache if nothing changed, else a new one that proved close."""

    def write(home: Path) -> None:
        from undivided.inference.engines.int8_convert import make_arrays

        write_arrays(home, *make_arrays(artifact))

    def measure(home: Path) -> float:
        return mean_difference(*compare_on_samples(Int8Engine(home, artifact, 1), artifact))

    copy = Copy("int8", "int8", {"version": VERSION}, (ARRAYS, LAYOUT), (), "converting the model to 8 bits (once) …")
    difference, home = copy.open(artifact, folder, write, measure, console)
    if not difference <= TOLERANCE:
        raise UnsupportedModel(f"in 8 bits its log-probabilities differ by {difference:.3f} on average; {TOLERANCE} is allowed")
    return home


class Int8Engine(ConvertedEngine):
    """Runs a model in 8 bits. What it cannot do (sampling, positions past its table) PyTorch does."""

    is_parallel = True
    name = INT8

    def __init__(self, home: Path, artifact: Artifact, threads: int) -> None:
        super().__init__(artifact)
        self.model = Int8Model(home)
        self.has_shortlist = artifact.shortlist is not None
        self.drafts = None if self.model.draft is None else DraftCount()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        self.threads = threads or cores
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="int8")

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Batches run in parallel, one for each thread and one more that waits."""
        longest = max((len(row) for row in sources), default=0)
        most = longest + config.max_extra + max(map(len, prefixes), default=0)
        if config.sample or (config.no_repeat_ngram and any(prefixes)) or most >= len(self.model.positions):
            yield from self.reference.search(sources, config, prefixes, keys)
            return

        drafts = self.drafts if follows_drafts(config, prefixes) else None

        def search_batch(batch: list[int]) -> Found:
            rows, begins = ([side[index] for index in batch] for side in (sources, prefixes))
            # The tokens of a prefix may be missing from the shortlist.
            output = self._likely(rows) if config.shortlist and self.has_shortlist and not any(begins) else None
            if drafts is not None:
                return list(zip(batch, self._draft(rows, config, output, drafts).run(), strict=True))
            return list(zip(batch, Int8Search(self.model, rows, config, begins, output).run(), strict=True))

        waiting: deque[Future[Found]] = deque()
        try:
            with self.share_of(self.threads) as share:
                for batch in batch_by_length([len(row) for row in sources], ROWS * config.beam_size, share):
                    if len(waiting) > self.threads:
                        yield from waiting.popleft().result()
                    waiting.append(self._pool.submit(search_batch, batch))
                while waiting:
                    yield from waiting.popleft().result()
        finally:
            # Whoever gives up the search waits for the batches that have begun, so that the engine is idle when its thread ends.
            for future in [future for future in waiting if not future.cancel()]:
                future.exception()

    def _draft(
        self, sources: Sequence[Sequence[int]], config: SearchConfig, output: Output | None, count: DraftCount
    ) -> DraftSearch:
        """Greedy search with drafts over a batch, before its first step. Drafts are likely tokens alone, if those are known."""
        model, draft = self.model, self.model.draft
        assert draft is not None, "asked for only where there is one"
        memory, drafted = model.encode_for([model.decoder, draft], sources)
        proposed = output or (self._likely(sources) if self.has_shortlist else model.output)
        limits = [len(row) - 1 + config.max_extra for row in sources]
        own = Int8Reader(model, model.decoder, memory, output or model.output)
        return DraftSearch(own, Int8Reader(model, draft, drafted, proposed), limits, config, count)

    def _likely(self, sources: Sequence[Sequence[int]]) -> Output:
        """The output layer for what the subwords of these sources may become."""
        shortlist = self.artifact.shortlist
        assert shortlist is not None
        found = np.unique(np.concatenate([np.asarray(row) for row in sources]))
        likely = [shortlist.common, shortlist.likely[found].ravel(), [EOS]]
        if self.artifact.tokenizer.joint:
            # A name, a number, a byte may stay as it is.
            likely.append(found)
        tokens = np.unique(np.concatenate(likely)).astype(np.int64)
        return self.model.narrow(tokens[tokens >= EOS])

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of every token of given targets, `</s>` included."""
        memory, past = self.model.encode(sources), Past()
        owners = np.arange(len(sources))
        padded = np.full((len(targets), max(map(len, targets))), EOS)
        for row, target in enumerate(targets):
            padded[row, : len(target)] = target
        before, columns = np.full(len(targets), BOS), []
        for column in padded.T:
            states = self.model.step(past, memory, owners, before)
            columns.append(log_probability(states, self.model.output.product, column))
            before = column
        return [row[: len(target)] for row, target in zip(np.array(columns).T.tolist(), targets, strict=True)]


class Int8Reader:
    """A decoder that reads tokens at any positions: a row's numbers are those that it has alone, so drafts change nothing."""

    def __init__(self, model: Int8Model, stack: Int8Stack, memory: Memory, output: Output) -> None:
        self.model, self.stack, self.memory, self.output = model, stack, memory, output
        self.slots = Slots(len(memory.starts))

    def read(
        self, sentences: Sequence[int], starts: Sequence[int], rows: Sequence[Sequence[int]]
    ) -> tuple[list[int], Sequence[float]]:
        """Tokens of some sentences → after each the most likely next one and its log-probability."""
        counts = [len(row) for row in rows]
        owners = np.repeat(np.array(sentences, dtype=np.int64), counts)
        at = np.concatenate([np.arange(start, start + count) for start, count in zip(starts, counts, strict=True)])
        tokens = np.array([token for row in rows for token in row])
        states = self.model.read(self.stack, self.slots, self.memory, owners, at, tokens)
        scores, best = top_tokens(states, self.output, 1)
        return best[:, 0].tolist(), scores[:, 0].tolist()


class Int8Search:
    """Beam search over a batch, as `inference.search.BeamSearch` does it, without torch. [paper 6.1]"""

    def __init__(
        self,
        model: Int8Model,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        output: Output | None = None,
    ) -> None:
        self.model, self.config, self.output = model, config, output or model.output
        self.memory, self.past = model.encode(sources), Past()
        self.finished = Finished(len(sources), config)
        self.limits = np.array(
            [max(len(row) - 1 + config.max_extra, len(prefix) + 1) for row, prefix in zip(sources, prefixes, strict=True)]
        )
        self.prefixes = prefixes
        self.longest_prefix = max(map(len, prefixes), default=0)
        self.sentences = np.arange(len(sources))  # B
        self.tokens = np.full((len(sources), 1, 1), BOS)  # B W T
        self.scores = np.zeros((len(sources), 1), dtype=np.float32)  # B W

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is done."""
        while len(self.sentences):
            self._step()
        found = self.finished.best()
        # Where a model overflows, its numbers compare with nothing and a sentence stays without a hypothesis.
        if not all(found) or any(each.log_probability != each.log_probability for row in found for each in row):
            raise NotFinite
        return found

    def _step(self) -> None:
        length, beam = self.tokens.shape[2], self.config.beam_size
        best, parents, tokens = self._candidates(length, 2 * beam)
        ended = (tokens == EOS) & (best > -np.inf)
        for row, column in np.argwhere(ended[:, :beam]).tolist():
            text = self.tokens[row, parents[row, column], 1:].tolist()
            self.finished.add(int(self.sentences[row]), text, float(best[row, column]), length)
        # Of twice as many candidates as beams, at least as many as beams are unfinished: each parent ends once.
        open_first = np.argsort(ended, axis=1, kind="stable")[:, : min(beam, best.shape[1])]
        scores = np.take_along_axis(np.where(ended, -np.inf, best), open_first, axis=1).astype(np.float32)
        parents, tokens = (np.take_along_axis(each, open_first, axis=1) for each in (parents, tokens))
        width = self.tokens.shape[1]
        before = np.take_along_axis(self.tokens, parents[:, :, None], axis=1)
        self.tokens, self.scores = np.concatenate([before, tokens[:, :, None]], axis=2), scores
        keep = self._unfinished_rows(length)
        self.tokens, self.scores, self.sentences = self.tokens[keep], scores[keep], self.sentences[keep]
        self.limits = self.limits[keep]
        self.past.select((keep[:, None] * width + parents[keep]).ravel())

    def _candidates(self, length: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The best continuations, best first, each `B C`: their total log-probabilities, the beams they extend, the new tokens."""
        sentences, width = self.tokens.shape[:2]
        owners = np.repeat(self.sentences, width)
        states = self.model.step(self.past, self.memory, owners, np.ascontiguousarray(self.tokens[:, :, -1]).ravel())
        scores, listed = self._open_tokens(states, count)
        if length <= self.longest_prefix:
            self._force(scores, listed, states, owners, length)
        totals = (self.scores[:, :, None] + scores.reshape(sentences, width, -1)).reshape(sentences, -1)
        places = np.argsort(-totals, axis=1, kind="stable")[:, :count]
        tokens = np.take_along_axis(listed.reshape(sentences, -1), places, axis=1)
        return np.take_along_axis(totals, places, axis=1), places // scores.shape[1], tokens

    def _open_tokens(self, states: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The best next tokens of each row; those that would repeat a sequence cannot be chosen."""
        size = self.config.no_repeat_ngram
        if not size:
            return top_tokens(states, self.output, count)
        rows = self.tokens.reshape(len(states), -1).tolist()
        repeated = [[token for token in find_repeats(row[1:], size) if token != EOS] for row in rows]
        scores, listed = top_tokens(states, self.output, count + max(map(len, repeated)))
        for row, tokens in enumerate(repeated):
            scores[row, np.isin(listed[row], tokens)] = -np.inf
        return scores, listed

    def _force(self, scores: np.ndarray, listed: np.ndarray, states: np.ndarray, owners: np.ndarray, length: int) -> None:
        """Where a translation has a prefix, only its next token may follow."""
        for row, owner in enumerate(owners.tolist()):
            if length <= len(self.prefixes[owner]):
                token = np.array([self.prefixes[owner][length - 1]])
                scores[row] = -np.inf
                scores[row, 0] = log_probability(states[row : row + 1], self.model.output.product, token)[0]
                listed[row, 0] = token[0]

    def _unfinished_rows(self, length: int) -> np.ndarray:
        """The rows whose search continues."""

        def beams(row: int) -> list[tuple[list[int], float]]:
            return [(tokens[1:], score) for tokens, score in zip(self.tokens[row].tolist(), self.scores[row].tolist(), strict=True)]

        open_rows = zip(self.sentences.tolist(), self.limits.tolist(), self.scores[:, 0].tolist(), strict=True)
        rows = [
            row
            for row, (sentence, limit, best) in enumerate(open_rows)
            if self.finished.continues(sentence, best, length, limit, partial(beams, row))
        ]
        return np.array(rows, dtype=np.int64)
