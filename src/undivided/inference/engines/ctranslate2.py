"""CTranslate2 runs a converted model, without torch, which is imported only for what CTranslate2 cannot do."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from undivided.artifact import Artifact
from undivided.config import ModelConfig, SearchConfig
from undivided.core.ids import BOS, EOS, PAD
from undivided.inference.engines.contract import batch_by_length
from undivided.inference.hypothesis import Hypothesis, length_penalty

if TYPE_CHECKING:
    from undivided.inference.engines.torch import TorchEngine

SHORTLIST = "vmap.txt"
"""The file in which CTranslate2 looks for a shortlist."""

DEFAULT_POSITIONS = 2048
"""Rows of the table of positions where the model itself has no limit."""


def position_count(model: ModelConfig) -> int:
    """The number of positions of a converted model."""
    return model.max_positions if model.positions == "learned" else DEFAULT_POSITIONS


class CTranslate2Engine:
    """Runs a converted model. What it cannot do (our seeded sampling, positions past its table) PyTorch does."""

    is_parallel = True

    def __init__(self, home: Path, artifact: Artifact, threads: int) -> None:
        import ctranslate2

        self.name = home.name.partition(".")[0]
        self.artifact, self._lock = artifact, threading.Lock()
        self._reference: TorchEngine | None = None
        self.has_shortlist = (home / SHORTLIST).is_file()
        self.positions = position_count(artifact.recipe.model)
        subwords = artifact.tokenizer.source, artifact.tokenizer.target
        self.pieces = [side.pieces(range(len(side))) for side in subwords]
        self.ids = {piece: token for token, piece in enumerate(self.pieces[1])}
        workers = threads or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else threads or os.cpu_count() or 1
        # Workers with one thread each beat one worker whose threads share every operation.
        self.translator = ctranslate2.Translator(str(home), inter_threads=workers, intra_threads=1, max_queued_batches=-1)

    @property
    def reference(self) -> TorchEngine:
        """The PyTorch engine of the same model."""
        from undivided.inference.engines.torch import TorchEngine

        with self._lock:
            if self._reference is None:
                self._reference = TorchEngine(self.artifact)
            return self._reference

    def search(
        self,
        sources: Sequence[Sequence[int]],
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]],
        keys: Sequence[int],
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """All batches are submitted at once and run in parallel."""
        longest = max((len(row) for row in sources), default=0)
        if config.sample or longest + config.max_extra + max(map(len, prefixes), default=0) >= self.positions:
            yield from self.reference.search(sources, config, prefixes, keys)
            return
        waiting = []
        for batch in batch_by_length([len(row) for row in sources], config.beam_size, self.translator.num_translators):
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
                return_scores=True,
                return_end_token=True,
                disable_unk=True,
                # The tokens of a prefix may be missing from the shortlist.
                use_vmap=config.shortlist and self.has_shortlist and not any(prefixes[place] for place in batch),
                suppress_sequences=[self._words(1, [PAD]), self._words(1, [BOS])],
            )
            waiting.append((batch, limits, results))
        for each in waiting:
            for place, limit, result in zip(*each, strict=True):
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
            ours = log_probability / float(length_penalty(len(tokens), config.length_penalty))
            found.append(Hypothesis(tokens[:-1] if finished else tokens, log_probability, ours, finished))
        return sorted(found, key=lambda each: (-each.finished, -each.score))[: config.n_best]

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of every token of given targets, `</s>` included."""
        results = self.translator.score_batch(
            [self._words(0, row[:-1]) for row in sources], [self._words(1, row[:-1]) for row in targets], max_input_length=0
        )
        return [list(result.log_probs) for result in results]
