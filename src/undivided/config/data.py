"""Training data: corpora, subwords, batches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from undivided.config.settings import setting

BILINGUAL = (".tmx", ".po", ".mo", ".xlf", ".xliff", ".ts", ".csv", ".jsonl", ".ndjson")
"""Names of files that hold sources and their translations."""
DATASET = "dataset:"
"""What the name of a dataset of Hugging Face begins with."""
CATALOGUES = (".json", ".arb", ".yaml", ".yml", ".strings", ".xml", ".srt", ".vtt")
"""Names of files in one language whose texts have keys or times: two of them are aligned by these."""
NO_ENCODING = "is no encoding of text; some are utf-8, utf-16, cp1252, latin-1, shift_jis, cp949"


def is_encoding(name: str) -> bool:
    """Whether a name is that of an encoding of text; an empty one means UTF-8."""
    try:
        known = not name or " ".encode(name).decode(name) == " "
    except (LookupError, UnicodeError, ValueError):
        return False
    return known and name.lower().replace("-", "_") not in ("idna", "punycode", "unicode_escape", "raw_unicode_escape", "utf_7")


@dataclass(frozen=True)
class CorpusFiles:
    """One corpus: two aligned files, one file or folder with both sides, or one file of text; `target` is empty for the latter."""

    source: str = setting(
        "",
        "file of source lines, or one with both sides (.tsv .tmx .po .mo .xlf .ts .csv .jsonl), a catalogue (.json .yaml .strings "
        ".xml .srt .vtt), a folder of such, or dataset:NAME[:CONFIG][:SPLIT]; for other kinds of model a file of text or images",
    )
    target: str = setting("", "file of target lines, or of labels; empty for a .tsv file and for text without labels")
    weight: float = setting(1.0, "how often each pair of this corpus occurs in an epoch", at_least=0.0, at_most=10_000.0)

    def faults(self) -> list[str]:
        """What is wrong: a corpus without a source."""
        return [] if self.source else ["a corpus names no source file"]

    @property
    def is_document(self) -> bool:
        """Whether it is not text but files that `undivided.formats` reads."""
        if self.source.startswith(DATASET):
            return not self.target
        if self.target:
            return all(Path(name).suffix.lower() in CATALOGUES for name in (self.source, self.target))
        return Path(self.source).suffix.lower() in BILINGUAL or (bool(self.source) and Path(self.source).is_dir())

    @property
    def is_unpaired(self) -> bool:
        """Whether it is a single file without targets or labels."""
        return not self.target and ".tsv" not in Path(self.source).suffixes and not self.is_document

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
        "training files: SOURCE TARGET, or one .tsv, .tmx, .po or the like, or a folder of catalogues (other kinds of model: TEXT, "
        "TEXT LABELS or IMAGES LABELS); may be repeated",
        flags=("--train",),
    )
    valid: list[CorpusFiles] = setting([], "validation files, named like the training files", flags=("--valid",))
    mix: float = setting(
        0.0,
        "fine-tuning: share of pairs that are old ones (--old-train), so that less is forgotten, e.g. 0.5; 0 = none",
        flags=("--mix",),
        at_least=0.0,
        at_most=0.95,
    )
    old_train: list[CorpusFiles] = setting(
        [],
        "training files of the model to fine-tune, for --mix and --ewc; by default its own, where they are still in place",
        flags=("--old-train",),
    )
    old_valid: list[CorpusFiles] = setting(
        [],
        "validation files of the model to fine-tune, to say what it forgot; by default its own, where they are still in place",
        flags=("--old-valid",),
    )
    hold_out: int = setting(
        500,
        "pairs of the training data that are held out for validation where --valid names no files, at most one in twenty; 0 = none",
        flags=("--hold-out",),
        at_least=0,
        at_most=100_000,
    )
    source_lang: str = setting("", "source language, e.g. en", flags=("--source-lang",))
    target_lang: str = setting("", "target language, e.g. de", flags=("--target-lang",))
    language_code: str = setting(
        "", "of a model that translates into several languages: the one that is meant, as it names it, e.g. deu for >>deu<<"
    )
    on_bad_line: Literal["skip", "error"] = setting(
        "skip", "what to do with a bad line: skip (drop and report it) or error (stop there)", flags=("--on-bad-line",)
    )
    max_bad: float = setting(
        0.05, "largest share of bad lines that is dropped; above it, training stops and asks", at_least=0.0, at_most=1.0
    )
    encoding: str = setting(
        "",
        "encoding of the text files, such as cp1252 (often called Latin-1); not set = UTF-8, or UTF-16 where a file says so",
        flags=("--encoding",),
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

    @property
    def mixed(self) -> int:
        """How many of the training corpora, the last ones, are old ones that fine-tuning mixes in."""
        return len(self.old_train) if self.mix else 0

    def faults(self) -> list[str]:
        """What is wrong: an unknown encoding."""
        return [] if is_encoding(self.encoding) else [f"encoding: {self.encoding!r} {NO_ENCODING}"]


@dataclass(frozen=True)
class TokensConfig:
    """How text is split into subwords. [paper 5.1]"""

    kind: Literal["bpe", "unigram"] = setting(
        "bpe", "how subwords are learned: bpe (byte-pair encoding, as in the paper) or unigram (unigram language model)"
    )
    vocab_size: int = setting(0, "number of subwords; 0 = chosen by the size of the corpus", flags=("--vocab-size",), at_least=0)
    joint: bool = setting(True, "one vocabulary for both languages, as in the paper")
    ready: str = setting(
        "", "existing subwords, used instead of learning new ones: a folder, a model of sentencepiece, or SOURCE.model,TARGET.model"
    )
    character_coverage: float = setting(
        0.9995, "share of the corpus whose characters get a subword each; the rest is spelled in bytes", at_least=0.9
    )
    protect: bool = setting(
        True,
        "reserve subwords that stand for placeholders, tags, addresses, codes and the like, and learn to copy them "
        "(translators with 1,000 subwords or more)",
    )
    terms: bool = setting(
        False,
        "learn to obey glossaries: in training, some words of the source are followed by their translation "
        "(needs the symbols of tokens.protect)",
        flags=("--terms",),
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
