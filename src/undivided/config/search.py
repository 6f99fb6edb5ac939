"""How translations are searched for, and what runs a translator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from undivided.config.settings import setting

CHUNK_LINES = 2000
"""Lines that are sorted by length and translated together: what bounds the memory for a file of any size."""

ENGINES = ("auto", "torch", "torch-bfloat16", "int8", "ctranslate2")
"""What may run a translator."""


@dataclass(frozen=True)
class SearchConfig:
    """How outputs are found: beam search, or sampling. [paper 6.1]

    A model folder carries these settings and may come from a stranger, so each has an upper bound.
    """

    beam_size: int = setting(4, "hypotheses kept at each step; 1 = greedy", flags=("--beam-size", "--beam"), at_least=1, below=1001)
    length_penalty: float = setting(
        0.6, "length penalty α: larger favours longer outputs", flags=("--length-penalty", "--lenpen"), at_least=0.0, below=50.0
    )
    length_norm: Literal["wu", "length"] = setting(
        "wu", "what divides log-probabilities: wu, ((5 + length) / 6)^α as in the paper, or length, length^α as Marian does"
    )
    max_extra: int = setting(
        50, "an output has at most this many tokens more than its input", flags=("--max-extra",), at_least=1, below=100_001
    )
    shortlist: bool = setting(
        False,
        "CTranslate2 only: consider only target subwords that occurred with the source's in training; faster with a large "
        "vocabulary, but some translations change",
        flags=("--shortlist",),
    )
    sentences: bool = setting(
        True,
        "translate a line sentence by sentence if it has more sentences than the lines that the model was trained on, or is longer "
        "than 95 % of them; a translation that is much too short is tried again in pieces",
        flags=("--sentences",),
    )
    no_repeat_ngram: int = setting(
        0,
        "no sequence of this many tokens occurs twice in an output; 0 = any may. An output that repeats itself is always decoded "
        "again with 4",
        flags=("--no-repeat-ngram",),
        at_least=0,
        below=1001,
    )
    draft: int = setting(
        0,
        "greedy search with drafts: at each step a draft decoder (undivided distill --drafts) proposes up to this many tokens, of "
        "which the model keeps those that it would have written itself, so the output is the same; 0 = none",
        flags=("--draft",),
        at_least=0,
        below=33,
    )
    consensus: int = setting(
        0,
        "of this many outputs (the n best, or samples) take the one that agrees most with the others by chrF; 0 = the most likely",
        flags=("--consensus",),
        at_least=0,
        below=1001,
    )
    n_best: int = setting(1, "outputs for each line", flags=("--n-best",), at_least=1, below=1001)
    sample: bool = setting(False, "sample outputs at random instead of beam search", flags=("--sample",))
    temperature: float = setting(
        1.0, "sampling temperature; below 1 favours likely tokens", flags=("--temperature",), at_least=1e-6, at_most=1000.0
    )
    top_k: int = setting(0, "sample from the k most likely tokens; 0 = all", flags=("--top-k",), at_least=0, below=1 << 31)
    top_p: float = setting(
        1.0,
        "sample from the smallest set of most likely tokens with this total probability",
        flags=("--top-p",),
        at_least=1e-6,
        at_most=1.0,
    )
    seed: int = setting(1, "seed of sampling", at_least=0)
