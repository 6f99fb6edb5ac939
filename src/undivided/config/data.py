"""What is learned from: corpora, subwords, batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from undivided.config.settings import setting


@dataclass(frozen=True)
class CorpusFiles:
    """One parallel corpus: two aligned files, or one TSV file when `target` is empty."""

    source: str = setting("", "file of source lines, or a .tsv file with both columns; text alone, or images")
    target: str = setting("", "file of target lines, or of labels; empty for a .tsv file and for text alone")
    weight: float = setting(1.0, "how often an epoch holds each of its pairs", at_least=0.0)

    def faults(self) -> list[str]:
        """A corpus has a source."""
        return [] if self.source else ["a corpus names no source file"]

    @property
    def is_unpaired(self) -> bool:
        """Whether it is one file of one kind of thing, with nothing beside it."""
        return not self.target and ".tsv" not in Path(self.source).suffixes

    def pairing_faults(self, beside: str = "target file") -> list[str]:
        """What is wrong where each line, or image, must have another thing beside it."""
        if self.source and self.is_unpaired:
            return [f"{self.source} has no {beside} beside it and is not a .tsv file"]
        return []


@dataclass(frozen=True)
class DataConfig:
    """What is learned from."""

    train: list[CorpusFiles] = setting(
        [], "SOURCE TARGET files or one TSV (other kinds: TEXT, TEXT LABELS, IMAGES LABELS); may be repeated", flags=("--train",)
    )
    valid: list[CorpusFiles] = setting([], "the same, held out for validation", flags=("--valid",))
    source_lang: str = setting("", "language of the source, such as en", flags=("--source-lang",))
    target_lang: str = setting("", "language of the target, such as de", flags=("--target-lang",))
    on_bad_line: Literal["skip", "error"] = setting("skip", "drop and report bad lines, or stop at them", flags=("--on-bad-line",))
    max_chars: int = setting(5000, "pairs with a longer side are dropped and reported", at_least=1, below=1_000_001)
    max_length: int = setting(
        256,
        "training pairs with more subwords on a side are dropped and reported; the context of a language model",
        at_least=2,
        below=100_001,
    )
    rows: Literal["stream", "lines"] = setting(
        "stream", "a language model reads all lines in their order as one text, or each line as a text of its own"
    )
    classes: list[str] = setting([], "names of the classes, in the order of numbered labels; as found in the labels if not named")
    shift: int = setting(0, "in training, images are moved by up to so many pixels each way", at_least=0, below=1000)


@dataclass(frozen=True)
class TokensConfig:
    """Subwords. [paper 5.1]"""

    kind: Literal["bpe", "unigram"] = setting("bpe", "how subwords are learned (the paper: bpe)")
    vocab_size: int = setting(0, "number of subwords; 0 chooses one that suits the corpus", flags=("--vocab-size",), at_least=0)
    joint: bool = setting(True, "one vocabulary for both languages, as in the paper")
    ready: str = setting("", "folder with subwords that were learned before, to use instead of learning them")
    character_coverage: float = setting(
        0.9995, "share of characters with a subword of their own; others become bytes", at_least=0.9
    )
    dropout: float = setting(
        0.0, "subword sampling in training: chance to leave out a merge (BPE-dropout)", at_least=0.0, below=1.0
    )


@dataclass(frozen=True)
class BatchesConfig:
    """How pairs are put together. [paper 5.1]"""

    tokens: int = setting(25_000, "most tokens of a batch, padding included, per side", flags=("--batch-tokens",), at_least=1)
    accumulate: int = setting(1, "batches whose gradients make one step", at_least=1)
    pool: int = setting(200_000, "pairs shuffled and sorted by length together", at_least=1)
    parts: int = setting(
        0,
        "parts of a batch, dealt out among threads and processes; 0 is what suits those that training begins with",
        at_least=0,
    )
