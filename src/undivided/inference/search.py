"""Greedy, beam and sampled decoding over any model, and the scores of given targets. [paper 6.1]"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeAlias

import torch
from torch import Tensor

from undivided.config import SearchConfig
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.core.random import random_bits
from undivided.data.batches import make_batch, pad_rows
from undivided.inference.finished import Finished
from undivided.inference.hypothesis import Hypothesis, NotFinite, length_penalty
from undivided.inference.loops import find_repeats
from undivided.models import DecoderState, Memory, Seq2Seq
from undivided.nn import backend


@dataclass(frozen=True)
class BeamStep:
    """The candidates of one step of beam search: `C` for each sentence, best first."""

    sentences: Tensor  # B
    parents: Tensor  # B C, which beam a candidate continues
    tokens: Tensor  # B C, with what
    totals: Tensor  # B C, log-probability of all its tokens
    ended: Tensor  # B C, whether it is taken as finished
    kept: Tensor  # B W, indices of the candidates that become the next beams


class StepDecoder(Protocol):
    """A model that decodes step by step: all that search asks of it."""

    def step(self, state: Any, tokens: Tensor) -> Tensor:
        """One more token for each sentence and beam, `B W` → the next token's logits `B W V`; updates the state."""


Constraint: TypeAlias = Callable[[Tensor, Tensor], Tensor]
"""The indices of sentences in the batch `B` and their tokens so far `B W T` → which tokens may follow, `B W V`."""


def search(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    device: torch.device,
    prefixes: Sequence[Sequence[int]] | None = None,
    keys: Sequence[int] | None = None,
    on_step: Callable[[BeamStep], None] | None = None,
    constraint: Constraint | None = None,
) -> list[list[Hypothesis]]:
    """The n best translations of each source, best first; samples in the order drawn. They do not depend on the batch.

    `prefixes` are target ids that translations begin with. Samples depend on their `keys`, whatever the batch.
    `on_step` is called after every step of beam search. A `constraint` says which tokens may follow; nothing is found where it
    allows none.
    """
    with torch.inference_mode():
        if config.sample:
            state, limits, forced = start_search(model, sources, config, device, prefixes)
            return check_found(_sample(model, state, limits, forced, config, keys if keys is not None else range(len(sources))))
        may_fail = constraint is not None
        if config.no_repeat_ngram:
            constraint = block_repeats(config.no_repeat_ngram, len(model.output_weight), constraint)
        return check_found(start_beam_search(model, sources, config, device, prefixes, on_step, constraint).run(), may_fail)


def check_found(found: list[list[Hypothesis]], may_fail: bool = False) -> list[list[Hypothesis]]:
    """What a search has found, unless the model overflowed: then a row has nothing, or a hypothesis has no probability."""
    for row in found:
        if not (row or may_fail) or any(math.isnan(each.log_probability) for each in row):
            raise NotFinite
    return found


def block_repeats(size: int, vocabulary: int, constraint: Constraint | None = None) -> Constraint:
    """A constraint under which no `size` tokens in a row occur twice; where it would allow nothing, the end."""

    def allowed(sentences: Tensor, tokens: Tensor) -> Tensor:
        shape = (*tokens.shape[:2], vocabulary)
        result = torch.ones(shape, dtype=torch.bool) if constraint is None else constraint(sentences, tokens).cpu()
        for row, beams in enumerate(tokens.tolist()):
            for beam, sofar in enumerate(beams):
                result[row, beam, [token for token in find_repeats(sofar, size) if token != EOS]] = False
        return result.to(tokens.device)

    return allowed


def continue_prompts(
    model: StepDecoder,
    state: DecoderState,
    prompts: Sequence[Sequence[int]],
    config: SearchConfig,
    limits: Tensor,
    keys: Sequence[int],
) -> list[list[Hypothesis]]:
    """The n best continuations of each prompt, prompt included, from the state before the first token."""
    with torch.inference_mode():
        forced = _pad_prefixes(prompts, limits)
        if config.sample:
            return check_found(_sample(model, state, limits, forced, config, keys))
        return check_found(BeamSearch(model, state, limits, forced, config).run())


def start_beam_search(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    device: torch.device,
    prefixes: Sequence[Sequence[int]] | None = None,
    on_step: Callable[[BeamStep], None] | None = None,
    constraint: Constraint | None = None,
) -> BeamSearch:
    """Encode the sources and prepare a beam search over them, before its first step."""
    return BeamSearch(model, *start_search(model, sources, config, device, prefixes), config, on_step, constraint)


def start_search(
    model: Seq2Seq,
    sources: Sequence[Sequence[int]],
    config: SearchConfig,
    device: torch.device,
    prefixes: Sequence[Sequence[int]] | None,
) -> tuple[DecoderState, Tensor, Tensor]:
    """Encode the sources: the state before the first step, the length limits `B` and the forced tokens `B P`."""
    memory, limits = encode_sources(model, sources, config, device)
    return model.start(memory), limits, _pad_prefixes(prefixes, limits)


def encode_sources(
    model: Seq2Seq, sources: Sequence[Sequence[int]], config: SearchConfig, device: torch.device
) -> tuple[Memory, Tensor]:
    """The memory of the sources, and the length limits of their translations `B`."""
    src = pad_rows(sources).to(device)
    src_mask = None if bool((src != PAD).all()) else src != PAD
    most = model.config.position_limit or sys.maxsize
    limits = torch.tensor([min(len(row) - 1 + config.max_extra, most) for row in sources], device=device)
    return model.encode(src, src_mask), limits


def _pad_prefixes(prefixes: Sequence[Sequence[int]] | None, limits: Tensor) -> Tensor:
    """Prefixes as `B P`, padded with −1; limits are raised where they would cut a prefix."""
    if prefixes is None or not any(len(prefix) for prefix in prefixes):
        return limits.new_empty(len(limits), 0)
    forced = torch.full((len(prefixes), max(map(len, prefixes))), -1)
    for row, prefix in enumerate(prefixes):
        forced[row, : len(prefix)] = torch.tensor(prefix, dtype=torch.long)
        limits[row] = max(int(limits[row]), len(prefix) + 1)
    return forced.to(limits.device)


def log_probabilities(logits: Tensor, forced: Tensor, place: int) -> Tensor:
    """Log-probability of each next token, `B W V`; −∞ for `<pad> <unk> <s>`, and for all but a forced token."""
    scores = logits.float().log_softmax(dim=-1)
    scores[..., [PAD, UNK, BOS]] = -math.inf
    if place < forced.shape[1]:
        only = forced[:, place, None, None]  # B 1 1
        other = torch.arange(scores.shape[-1], device=scores.device) != only
        scores.masked_fill_(other & (only >= 0), -math.inf)
    return scores


class BeamSearch:
    """Beam search over a batch; sentences leave the batch when they are done. With beam size 1 it is greedy search."""

    def __init__(
        self,
        model: StepDecoder,
        state: DecoderState,
        limits: Tensor,
        forced: Tensor,
        config: SearchConfig,
        on_step: Callable[[BeamStep], None] | None = None,
        constraint: Constraint | None = None,
    ) -> None:
        self.model, self.state, self.config, self.on_step, self.constraint = model, state, config, on_step, constraint
        self.finished = Finished(len(limits), config)
        self.limits, self.forced = limits, forced  # B, B P
        self.sentences = torch.arange(len(limits), device=limits.device)  # B
        self.tokens = torch.full((len(limits), 1, 1), BOS, device=limits.device)  # B W T
        self.scores = torch.zeros(len(limits), 1, device=limits.device)  # B W

    def run(self) -> list[list[Hypothesis]]:
        """Step until every sentence is done."""
        while len(self.sentences):
            self._step()
        return self.finished.best()

    def _step(self) -> None:
        length = self.tokens.shape[2]  # tokens after this step, `<s>` aside
        beam = self.config.beam_size
        best, parents, tokens = self._candidates(length, 2 * beam)
        ended = (tokens == EOS) & (best > -math.inf)
        self._finish(best[:, :beam], parents[:, :beam], ended[:, :beam], length)
        # Of twice as many candidates as beams, at least as many as beams are unfinished: each parent ends once.
        scores, kept = best.masked_fill(ended, -math.inf).topk(min(beam, best.shape[1]), dim=1)
        if self.on_step is not None:
            taken = ended & (torch.arange(ended.shape[1], device=ended.device) < beam)
            self.on_step(BeamStep(self.sentences, parents, tokens, best, taken, kept))
        parents, tokens = parents.gather(1, kept), tokens.gather(1, kept)
        before = self.tokens.gather(1, parents[:, :, None].expand(-1, -1, length))
        self.tokens, self.scores = torch.cat([before, tokens[:, :, None]], dim=2), scores
        keep = self._unfinished_rows(scores, length)
        self.tokens, self.scores, self.sentences = self.tokens[keep], scores[keep], self.sentences[keep]
        self.limits, self.forced = self.limits[keep], self.forced[keep]
        if len(keep):
            self.state = self.state.select(keep, parents[keep])

    def _candidates(self, length: int, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best continuations, best first, each `B C`: their total log-probabilities, the beams they extend, the new tokens."""
        logits = self.model.step(self.state, self.tokens[:, :, -1])
        if self.constraint is None and length > self.forced.shape[1] and backend.decodes_with_kernels(logits):
            # The best of all are among the best of each beam.
            scores, listed = backend.top_tokens(logits, min(count, logits.shape[-1]), EOS)
        else:
            scores, listed = log_probabilities(logits, self.forced, length - 1), None
            if self.constraint is not None:
                scores.masked_fill_(~self.constraint(self.sentences, self.tokens[:, :, 1:]), -math.inf)
        totals = (self.scores[:, :, None] + scores).flatten(1)  # B (W V), or of each beam only its best
        best, places = totals.topk(min(count, totals.shape[1]), dim=1)
        tokens = places % scores.shape[-1] if listed is None else listed.flatten(1).gather(1, places)
        return best, places // scores.shape[-1], tokens

    def _finish(self, best: Tensor, parents: Tensor, ended: Tensor, length: int) -> None:
        """Collect the hypotheses that have just ended."""
        for row, column in ended.nonzero().tolist():
            tokens = self.tokens[row, parents[row, column], 1:].tolist()
            self.finished.add(int(self.sentences[row]), tokens, float(best[row, column]), length)

    def _unfinished_rows(self, scores: Tensor, length: int) -> Tensor:
        """The rows whose search continues."""

        def beams(row: int) -> list[tuple[list[int], float]]:
            return [(tokens[1:], score) for tokens, score in zip(self.tokens[row].tolist(), scores[row].tolist(), strict=True)]

        open_rows = zip(self.sentences.tolist(), self.limits.tolist(), scores[:, 0].tolist(), strict=True)
        rows = [
            row
            for row, (sentence, limit, best) in enumerate(open_rows)
            if self.finished.continues(sentence, best, length, limit, partial(beams, row))
        ]
        return torch.tensor(rows, dtype=torch.long, device=scores.device)


def _sample(
    model: StepDecoder, state: DecoderState, limits: Tensor, forced: Tensor, config: SearchConfig, keys: Sequence[int]
) -> list[list[Hypothesis]]:
    """`n_best` independent samples for each source; they depend on (seed, key) alone."""
    batch, draws = len(limits), config.n_best
    parents = torch.zeros(batch, draws, dtype=torch.long, device=limits.device)
    state = state.select(torch.arange(batch, device=limits.device), parents)
    longest = int(limits.max())
    chance = torch.stack([uniform_numbers(longest, config.seed, key, each) for key in keys for each in range(draws)])
    chance = chance.view(batch, draws, longest).to(limits.device)
    tokens = torch.full((batch, draws, 1), BOS, device=limits.device)
    total = torch.zeros(batch, draws, device=limits.device)
    ended = torch.zeros(batch, draws, dtype=torch.bool, device=limits.device)
    for place in range(longest):
        scores = log_probabilities(model.step(state, tokens[:, :, -1]), forced, place)
        chosen = draw_tokens(scores, chance[:, :, place], config)
        gain = scores.gather(2, chosen[:, :, None])[:, :, 0]
        total = total + gain.masked_fill(ended, 0.0)
        tokens = torch.cat([tokens, chosen.masked_fill(ended, PAD)[:, :, None]], dim=2)
        ended = ended | (chosen == EOS) | (place + 1 >= limits[:, None])
        if bool(ended.all()):
            break
    return [
        [_to_hypothesis(row, float(score), config) for row, score in zip(*both, strict=True)]
        for both in zip(tokens.tolist(), total, strict=True)
    ]


def _to_hypothesis(row: list[int], log_probability: float, config: SearchConfig) -> Hypothesis:
    ids = [token for token in row[1:] if token != PAD]
    finished = bool(ids) and ids[-1] == EOS
    score = log_probability / float(length_penalty(len(ids), config.length_penalty, config.length_norm))
    return Hypothesis(ids[:-1] if finished else ids, log_probability, score, finished)


def uniform_numbers(count: int, *key: int) -> Tensor:
    """Random numbers from 0 to 1 that depend on the key alone."""
    bits = random_bits(count, *key)
    return torch.from_numpy((bits >> 11).astype("float64") * 2.0**-53)


def draw_tokens(scores: Tensor, chance: Tensor, config: SearchConfig) -> Tensor:
    """Tokens `B W` at the quantiles `chance` of the distributions `B W V`, after temperature, top-p and top-k."""
    probability, order = (scores / config.temperature).softmax(dim=-1).sort(dim=-1, descending=True)
    before = probability.cumsum(dim=-1) - probability
    probability = probability.masked_fill(before >= config.top_p, 0.0)
    if config.top_k:
        probability[..., config.top_k :] = 0.0
    cumulated = probability.double().cumsum(dim=-1)
    wanted = chance[..., None] * cumulated[..., -1:]
    place = torch.searchsorted(cumulated, wanted, right=True).clamp(max=scores.shape[-1] - 1)
    return order.gather(-1, place)[..., 0]


def forced_scores(
    model: Seq2Seq, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]], device: torch.device
) -> list[list[float]]:
    """Log-probability of every token of given targets, `</s>` included."""
    batch = make_batch(sources, targets).to(device)
    with torch.inference_mode():
        states = model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)
        scores = states.new_empty(batch.tgt_out.shape)
        for row in range(len(states)):
            scores[row] = model.logits(states[row]).float().log_softmax(dim=-1).gather(1, batch.tgt_out[row, :, None])[:, 0]
    return [row[: len(target)] for row, target in zip(scores.tolist(), targets, strict=True)]
