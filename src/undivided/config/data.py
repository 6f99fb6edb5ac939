"""Training data: corpora, subwords, batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from undivided.config.settings import setting


@dataclass(frozen=True)
class CorpusFiles:
    """One corpus: two aligned files, one TSV file, or one file of text; `target` is empty for the latter two."""

    source: str = setting(
        "", "file of source lines, or a .tsv file with both columns; for other kinds of model a file of text or images"
    )
    target: str = setting("", "file of target lines, or of labels; empty for a .tsv file and for text without labels")
    weight: float = setting(1.0, "how often each pair of this corpus occurs in an epoch", at_least=0.0, at_most=10_000.0)

    def faults(self) -> list[str]:
        """What is wrong: a corpus without a source."""
        return [] if self.source else ["a corpus names no source file"]

    @property
    def is_unpaired(self) -> bool:
        """Whether it is a single file without targets or labels."""
        return not self.target and ".tsv" not in Path(self.source).suffixes

    def pairing_faults(self, missing: str = "target file") -> list[str]:
        """What is wrong where each line or image must have a target or label."""
        if self.source and self.is_unpaired:
            return [f"{self.source} has no {missing} and is not a .tsv file"]
        return []


@dataclass(frozen=True)
class DataConfig:
    """Where the training data is, and which of it is used."""

    train: list[CorpusFiles] = setting(
        [],
        "training files: SOURCE TARGET or one .tsv (other kinds of model: TEXT, TEXT LABELS or IMAGES LABELS); may be repeated",
        flags=("--train",),
    )
    valid: list[CorpusFiles] = setting([], "validation files, named like the training files", flags=("--valid",))
    source_lang: str = setting("", "source language, e.g. en", flags=("--source-lang",))
    target_lang: str = setting("", "target language, e.g. de", flags=("--target-lang",))
    on_bad_line: Literal["skip", "error"] = setting(
        "skip", "what to do with a bad line: skip (drop and report it) or error (stop there)", flags=("--on-bad-line",)
    )
    max_chars: int = setting(
        5000, "most characters of a line; pairs with a longer side are dropped and reported", at_least=1, below=1_000_001
    )
    max_length: int = setting(
        256,
        "most subwords of a line; training pairs with a longer side are dropped and reported. For a language model: its context",
        at_least=2,
        below=100_001,
    )
    rows: Literal["stream", "lines"] = setting(
        "stream", "what a language model reads: stream (all lines in order as one text) or lines (each line as a text of its own)"
    )
    classes: list[str] = setting([], "names of the classes, in the order of numbered labels; taken from the labels if not named")
    shift: int = setting(
        0, "data augmentation: in training, shift images by up to this many pixels in each direction", at_least=0, below=1000
    )


@dataclass(frozen=True)
class TokensConfig:
    """How text is split into subwords. [paper 5.1]"""

    kind: Literal["bpe", "unigram"] = setting(
        "bpe", "how subwords are learned: bpe (byte-pair encoding, as in the paper) or unigram (unigram language model)"
    )
    vocab_size: int = setting(0, "number of subwords; 0 = chosen by the size of the corpus", flags=("--vocab-size",), at_least=0)
    joint: bool = setting(True, "one vocabulary for both languages, as in the paper")
    ready: str = setting("", "folder with existing subword models, used instead of learning new ones")
    character_coverage: float = setting(
        0.9995, "share of the corpus whose characters get a subword each; the rest is spelled in bytes", at_least=0.9
    )
    dropout: float = setting(
        0.0, "subword sampling in training: probability of skipping a merge (BPE-dropout)", at_least=0.0, below=1.0
    )


@dataclass(frozen=True)
class BatchesConfig:
    """How pairs are put into batches. [paper 5.1]"""

    tokens: int = setting(25_000, "most tokens of a batch on each side, padding included", flags=("--batch-tokens",), at_least=1)
    accumulate: int = setting(1, "batches whose gradients are accumulated into one step", at_least=1)
    pool: int = setting(200_000, "pairs that are shuffled, then sorted by length, together", at_least=1)
    parts: int = setting(
        0,
        "micro-batches per batch; 0 = one per worker",
        at_least=0,
    )
