"""The search settings of a model with changes, checked in one place."""

from __future__ import annotations

import dataclasses
from typing import Literal, TypedDict, Unpack

from undivided.config import SearchConfig
from undivided.config.settings import check_range
from undivided.core.errors import InputError


class RankingChanges(TypedDict, total=False):
    """The fields of `SearchConfig` but for `n_best`, none of them required."""

    beam_size: int
    length_penalty: float
    length_norm: Literal["wu", "length"]
    max_extra: int
    shortlist: bool
    sentences: bool
    no_repeat_ngram: int
    draft: int
    consensus: int
    sample: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int


class SearchChanges(RankingChanges, total=False):
    """The fields of `SearchConfig`, none of them required: what a caller may change for one call."""

    n_best: int


def change_search(config: SearchConfig, **changes: Unpack[SearchChanges]) -> SearchConfig:
    """Settings with some of them replaced; all faults are reported at once."""
    known = {item.name: item for item in dataclasses.fields(SearchConfig)}
    unknown = [name for name in changes if name not in known]
    if unknown:
        raise TypeError(f"no search setting {', '.join(map(repr, unknown))}; known: {', '.join(known)}")
    faults = []
    for name, value in changes.items():
        try:
            check_range(value, known[name])
        except ValueError as error:
            faults.append(f"{name}: {error}")
    if faults:
        raise InputError("; ".join(faults))
    changed = dataclasses.replace(config, **changes)
    if not changed.draft or is_greedy(changed):
        return changed
    if changes.get("draft"):
        raise InputError("draft: tokens are proposed in greedy search alone; set beam_size to 1 (--beam 1), without sampling")
    # A folder may ask for drafts; whoever asks for another search has none.
    return dataclasses.replace(changed, draft=0)


def is_greedy(config: SearchConfig) -> bool:
    """Whether a search follows a single hypothesis, always by its most likely token."""
    return config.beam_size == 1 and not config.sample and not config.consensus


def check_n_best(config: SearchConfig) -> None:
    """Beam search finds no more outputs than it has beams."""
    if config.n_best > config.beam_size and not config.sample:
        raise InputError(f"n_best: {config.n_best} outputs need a beam_size of at least as many; it is {config.beam_size}")
