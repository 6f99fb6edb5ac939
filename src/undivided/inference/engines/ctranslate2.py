"""CTranslate2 runs a converted model, without torch, which is imported only for what CTranslate2 cannot do."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from undivided.artifact import Artifact
from undivided.config import ModelConfig, SearchConfig
from undivided.core.ids import BOS, EOS, PAD
from undivided.inference.engines.contract import ConvertedEngine, batch_by_length
from undivided.inference.hypothesis import Hypothesis, length_penalty

SHORTLIST = "vmap.txt"
"""The file in which CTranslate2 looks for a shortlist."""

DEFAULT_POSITIONS = 2048
"""Rows of the table of positions where the model itself has no limit."""


AHEAD = 4
"""Batches of a search that are submitted at once, for each worker."""


PLANNED_WORKERS = 4
"""Workers that batches are cut for, however many there are: sums in batches of another size are rounded differently, and in a
rare line that decides."""


class _Submitted(NamedTuple):
    """A batch at work: indices of its sources, the most tokens of each translation, and where each will be."""

    batch: list[int]
    limits: list[int]
    results: list[Any]


def position_count(model: ModelConfig) -> int:
    """The number of positions of a converted model."""
    return model.max_positions if model.positions == "learned" else DEFAULT_POSITIONS


class CTranslate2Engine(ConvertedEngine):
    """Runs a converted model. What it cannot do (our seeded sampling, positions past its table) PyTorch does."""

    is_parallel = True

    def __init__(self, home: Path, artifact: Artifact, threads: int) -> None:
        import ctranslate2

        self.name = home.name.partition(".")[0]
        super().__init__(artifact)
        self.has_shortlist = (home / SHORTLIST).is_file()
        self.positions = position_count(artifact.recipe.model)
        subwords = artifact.tokenizer.source, artifact.tokenizer.target
        self.pieces = [side.pieces(range(len(side))) for side in subwords]
        self.ids = {piece: token for token, piece in enumerate(self.pieces[1])}
        workers = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads or os.cpu_count() or 1
        # Workers with one thread each beat one worker whose threads share every operation.
        self.threads = workers
        self.translator = ctranslate2.Translator(os.fsencode(home), inter_threads=workers, intra_threads=1, max_queued_batches=-1)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """Batches run in parallel, a few of them submitted ahead: CTranslate2 cannot take one back when the search is given up."""
        longest = max((len(row) for row in sources), default=0)
        if config.sample or longest + config.max_extra + max(map(len, prefixes), default=0) >= self.positions:
            yield from self.reference.search(sources, config, prefixes, keys)
            return
        waiting: deque[_Submitted] = deque()
        try:
            with self.share_of(self.threads) as share:
                # Alone its batches depend on nothing but the sentences: in 8 bits they decide about a translation here and there.
                workers = 1 if self.is_shared and share == 1 else PLANNED_WORKERS
                for batch in batch_by_length([len(row) for row in sources], config.beam_size, workers):
                    if len(waiting) >= AHEAD * self.translator.num_translators:
                        yield from self._finish(waiting.popleft(), config)
                    waiting.append(self._submit(batch, sources, config, prefixes))
                while waiting:
                    yield from self._finish(waiting.popleft(), config)
        finally:
            # Whoever gives up the search waits for what is submitted, so that the engine is idle when its thread ends.
            with suppress(RuntimeError):
                for submitted in waiting:
                    submitted.results[-1].result()

    def _submit(
        self, batch: list[int], sources: Sequence[Sequence[int]], config: SearchConfig, prefixes: Sequence[Sequence[int]]
    ) -> _Submitted:
        """Start the search of a batch."""
        limits = [max(len(sources[place]) - 1 + config.max_extra, len(prefixes[place]) + 1) for place in batch]
        results = self.translator.translate_batch(
            [self._words(0, sources[place][:-1]) for place in batch],
            target_prefix=[self._words(1, prefixes[place]) for place in batch],
            asynchronous=True,
            beam_size=config.beam_size,
            num_hypotheses=config.beam_size,
            length_penalty=config.length_penalty,
            max_decoding_length=max(limits),
            max_input_length=0,
            no_repeat_ngram_size=config.no_repeat_ngram,
            return_scores=True,
            return_end_token=True,
            disable_unk=True,
            # The tokens of a prefix may be missing from the shortlist.
            use_vmap=config.shortlist and self.has_shortlist and not any(prefixes[place] for place in batch),
            suppress_sequences=[self._words(1, [PAD]), self._words(1, [BOS])],
        )
        return _Submitted(batch, limits, results)

    def _finish(self, submitted: _Submitted, config: SearchConfig) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of a batch, when they are found."""
        for place, limit, result in zip(*submitted, strict=True):
            yield place, self._rank(result.result(), config, limit)

    def _words(self, side: int, row: Sequence[int]) -> list[str]:
        return [self.pieces[side][token] for token in row]

    def _rank(self, result: Any, config: SearchConfig, limit: int) -> list[Hypothesis]:
        """Hypotheses ranked by our length penalty (CTranslate2 divides by |Y|^α), each cut at its own limit, not the batch's."""
        found = []
        for words, score in zip(result.hypotheses, result.scores, strict=True):
            tokens = [self.ids[word] for word in words[:limit]]
            finished = bool(tokens) and tokens[-1] == EOS
            share = len(tokens) / len(words)  # a hypothesis that is cut keeps about this share of its log-probability
            log_probability = share * score * len(words) ** config.length_penalty
            ours = log_probability / float(length_penalty(len(tokens), config.length_penalty, config.length_norm))
            found.append(Hypothesis(tokens[:-1] if finished else tokens, log_probability, ours, finished))
        return sorted(found, key=lambda each: (-each.finished, -each.score))[: config.n_best]

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of every token of given targets, `</s>` included."""
        results = self.translator.score_batch(
            [self._words(0, row[:-1]) for row in sources], [self._words(1, row[:-1]) for row in targets], max_input_length=0
        )
        return [list(result.log_probs) for result in results]
