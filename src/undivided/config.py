"""Every setting, defined once: dataclass → YAML recipe → command-line flag → saved in the model."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal

from undivided.console import InputError
from undivided.settings import Values, fill, leaves, listed, merge, setting, suggestion

WINDOW = 2000
"""Lines sorted by length and translated together: what a file of any size needs of memory."""


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
    def alone(self) -> bool:
        """Whether it is one file of one kind of thing, with nothing beside it."""
        return not self.target and ".tsv" not in Path(self.source).suffixes

    def unpaired(self, beside: str = "target file") -> list[str]:
        """What is wrong where each line, or image, must have another thing beside it."""
        if self.source and self.alone:
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


TRANSFORMER, RECURRENT, CONVOLUTIONAL = ("transformer",), ("recurrent",), ("convolutional",)
DECODER_ONLY, ENCODER_ONLY, VISION, DRAWING = ("decoder_only",), ("encoder_only",), ("vision",), ("drawing",)
"""Kinds of model, for the settings that only some of them have."""
PAIRED = TRANSFORMER + RECURRENT + CONVOLUTIONAL
"""Sequence to sequence: they learn from pairs of text, and translate."""
RELATIVES = DECODER_ONLY + ENCODER_ONLY + VISION + DRAWING
"""What came after, from the same layers."""
ATTENTIVE = TRANSFORMER + RELATIVES
IMAGES = VISION + DRAWING


MOST_PATCHES = 16_384
"""Tokens of an image: a model folder may come from a stranger, and memory must bear what it claims."""


@dataclass(frozen=True)
class ModelConfig:
    """The model; the defaults are base. [paper Table 3]"""

    kind: Literal["transformer", "recurrent", "convolutional", "decoder_only", "encoder_only", "vision", "drawing"] = setting(
        "transformer",
        "the Transformer; before it: recurrent or convolutional sequence-to-sequence; after it: decoder_only (as GPT), "
        "encoder_only (as BERT), vision (as ViT), drawing (images from words, as DALL·E)",
    )
    d_model: int = setting(512, "width of embeddings and of every layer's output", at_least=1)
    d_ff: int = setting(2048, "inner width of the feed-forward layers", at_least=1, of=ATTENTIVE)
    n_heads: int = setting(8, "attention heads", at_least=1, of=ATTENTIVE)
    d_k: int = setting(0, "width of a head's queries and keys; 0 is d_model / n_heads", at_least=0, of=ATTENTIVE)
    d_v: int = setting(0, "width of a head's values; 0 is d_model / n_heads", at_least=0, of=ATTENTIVE)
    d_hidden: int = setting(
        0, "width of recurrent states or of convolutions; 0 is d_model", at_least=0, of=RECURRENT + CONVOLUTIONAL
    )
    encoder_layers: int = setting(6, "encoder depth N", at_least=1, of=PAIRED + ENCODER_ONLY + VISION)
    decoder_layers: int = setting(6, "decoder depth N", at_least=1, of=PAIRED + DECODER_ONLY + DRAWING)
    dropout: float = setting(0.1, "on sub-layer outputs and on embedding + position", at_least=0.0, below=1.0)
    attention_dropout: float = setting(0.0, "on attention weights", at_least=0.0, below=1.0, of=ATTENTIVE)
    activation_dropout: float = setting(0.0, "inside the feed-forward layers", at_least=0.0, below=1.0, of=ATTENTIVE)
    norm: Literal["post", "pre"] = setting(
        "post", "LayerNorm after each residual sum (paper) or before each sub-layer", of=ATTENTIVE
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"] = setting(
        "relu", "non-linearity of the feed-forward layers; gelu_tanh is GPT-2's approximation of gelu", of=ATTENTIVE
    )
    attention_bias: bool = setting(False, "biases in the attention projections", of=ATTENTIVE)
    window: int = setting(
        0,
        "restrict self-attention to window/2 places to each side (r of paper section 4); 0 is off",
        at_least=0,
        of=TRANSFORMER + DECODER_ONLY,
    )
    positions: Literal["sinusoidal", "halves", "learned", "index", "none"] = setting(
        "sinusoidal",
        "position encoding: interleaved sinusoids (paper), the same in halves (Marian), …",
        of=ATTENTIVE + CONVOLUTIONAL,
    )
    join_positions: Literal["add", "concatenate"] = setting("add", "how positions meet embeddings", of=ATTENTIVE + CONVOLUTIONAL)
    max_positions: int = setting(1024, "size of the table of learned positions", at_least=1, of=ATTENTIVE + CONVOLUTIONAL)
    scale_embeddings: bool = setting(True, "embeddings × √d_model, as in the paper; GPT-2 and BERT do without", of=RELATIVES)
    norm_epsilon: float = setting(1e-5, "what LayerNorm adds to a variance", at_least=0.0, of=RELATIVES)
    cell: Literal["rnn", "lstm", "gru"] = setting("lstm", "recurrent cell; rnn is the plain tanh cell", of=RECURRENT)
    bidirectional: bool = setting(True, "half of each encoder layer reads from the end", of=RECURRENT)
    attention: Literal["none", "additive", "multiplicative"] = setting(
        "multiplicative", "how the decoder reads the source: its final state alone, Bahdanau's or Luong's attention", of=RECURRENT
    )
    input_feeding: bool = setting(False, "the decoder is told what it attended to one step before", of=RECURRENT)
    kernel_width: int = setting(3, "tokens that one convolution sees", at_least=1, of=CONVOLUTIONAL)
    patch: int = setting(2, "side of the square patches of an image, each a token", at_least=1, below=1025, of=IMAGES)
    image_height: int = setting(0, "pixels; 0 is as the training images are", at_least=0, below=4097, of=IMAGES)
    image_width: int = setting(0, "pixels; 0 is as the training images are", at_least=0, below=4097, of=IMAGES)
    channels: int = setting(1, "colours of an image", at_least=1, below=5, of=IMAGES)
    codes: int = setting(64, "size of the learned codebook of patches", at_least=2, below=65_537, of=DRAWING)
    d_code: int = setting(8, "width of a code", at_least=1, below=4097, of=DRAWING)
    tie: Literal["all", "target", "none"] = setting(
        "all", "one matrix for source, target and output (paper), target and output, or none", of=PAIRED + DECODER_ONLY + DRAWING
    )

    def faults(self) -> list[str]:
        """What is wrong between settings that are each right."""
        faults = [
            f"{item.name}: a setting of {_enumerated(item.metadata['of'])} models; model.kind is {self.kind}"
            for item in fields(self)
            if not _applies(item.metadata["of"], self.kind) and getattr(self, item.name) != item.default
        ]
        positioned = _applies(ATTENTIVE + CONVOLUTIONAL, self.kind)
        if self.kind in ATTENTIVE and self.d_model % self.n_heads and not (self.d_k and self.d_v):
            faults.append(
                f"n_heads: {self.n_heads} does not divide model.d_model {self.d_model}; "
                "change one of them, or set both model.d_k and model.d_v"
            )
        if positioned and self.d_model % 2 and self.positions in ("sinusoidal", "halves"):
            faults.append(f"d_model: {self.d_model} is odd, but sinusoidal positions need an even width")
        if positioned and self.positions == "none" and self.join_positions == "concatenate":
            faults.append("join_positions: there is nothing to concatenate while model.positions is none")
        if self.kind == "recurrent":
            faults += self._recurrent_faults()
        for side in ("image_height", "image_width") if self.kind in IMAGES else ():
            if getattr(self, side) % self.patch:
                faults.append(
                    f"{side}: patches of {self.patch} × {self.patch} (model.patch) do not divide {getattr(self, side)} pixels"
                )
        if self.kind in IMAGES and self.places > MOST_PATCHES:
            faults.append(f"patch: {self.places:,} patches an image are more than {MOST_PATCHES:,}; make them larger")
        return faults

    def _recurrent_faults(self) -> list[str]:
        faults = []
        if self.input_feeding and self.attention == "none":
            faults.append("input_feeding: there is nothing to feed without model.attention; set that to additive or multiplicative")
        if self.bidirectional and (self.d_hidden or self.d_model) % 2:
            name = "d_hidden" if self.d_hidden else "d_model"
            faults.append(
                f"{name}: {self.d_hidden or self.d_model} is odd, but with model.bidirectional each direction has half of it"
            )
        return faults

    @property
    def places(self) -> int:
        """How many patches an image has."""
        return (self.image_height // self.patch) * (self.image_width // self.patch)


def _enumerated(names: tuple[str, ...]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])


def _applies(of: tuple[str, ...], kind: str) -> bool:
    return not of or kind in of


@dataclass(frozen=True)
class TrainConfig:
    """How it is trained. [paper 5]"""

    out: str = setting("", "directory of the model; training goes on if it was begun there", flags=("--out", "-o"))
    seed: int = setting(1, "seed of initialisation, order of data and dropout", flags=("--seed",), at_least=0)
    start: str = setting("", "model folder to start from (fine-tuning): its subwords, and its weights where they fit")
    mask: float = setting(0.15, "share of tokens that an encoder_only model without classes has to guess", at_least=0.01, below=1.0)
    max_steps: int = setting(100_000, "steps to train", flags=("--max-steps",), at_least=1)
    max_epochs: int = setting(0, "stop after so many passes over the data; 0 is no limit", flags=("--max-epochs",), at_least=0)
    minutes: float = setting(0.0, "stop after so many minutes of training; 0 is no limit", flags=("--minutes",), at_least=0.0)
    optimizer: Literal["adam", "adamw"] = setting("adam", "Adam (paper) or AdamW")
    beta1: float = setting(0.9, "Adam β₁", at_least=0.0, below=1.0)
    beta2: float = setting(0.98, "Adam β₂", at_least=0.0, below=1.0)
    epsilon: float = setting(1e-9, "Adam ε", at_least=0.0)
    weight_decay: float = setting(0.0, "decay of AdamW", at_least=0.0)
    schedule: Literal["paper", "inverse_sqrt", "cosine"] = setting(
        "paper", "Eq. 3, or up to a peak rate and down by 1/√step, or by a cosine to zero at max_steps"
    )
    warmup_steps: int = setting(4000, "steps of growing learning rate", flags=("--warmup-steps",), at_least=1)
    rate: float = setting(1.0, "factor on Eq. 3, or the peak rate of the other schedules", flags=("--rate",), at_least=0.0)
    label_smoothing: float = setting(0.1, "ε_ls", flags=("--label-smoothing",), at_least=0.0, below=1.0)
    consistency: float = setting(
        0.0, "how much two passes with other dropout may not contradict each other (R-Drop, α); 0 is one pass", at_least=0.0
    )
    clip: float = setting(0.0, "largest norm of the gradient; 0 is no limit", at_least=0.0)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto", "products of training: auto is bfloat16 on GPUs that have it and CPUs that are far faster so, else float32"
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:N or mps", flags=("--device",))
    threads: int = setting(0, "CPU threads; 0 is all cores", flags=("--threads",), at_least=0)
    shard: bool = setting(False, "cut weights, gradients and Adam's averages over the processes (FSDP2)", flags=("--shard",))
    validate_every: int = setting(1000, "steps between validations", flags=("--validate-every",), at_least=1)
    validate_beam: int = setting(1, "beam size of the validation BLEU; 1 is greedy", at_least=1)
    validate_lines: int = setting(1000, "validation pairs that are decoded for BLEU", at_least=1)
    patience: int = setting(
        0, "stop after so many validations without a better BLEU; 0 is never", flags=("--patience",), at_least=0
    )
    save_every: int = setting(1000, "steps between checkpoints", flags=("--save-every",), at_least=1)
    keep_last: int = setting(5, "checkpoints to keep", at_least=1)
    keep_best: bool = setting(False, "save at the best validation, and keep that checkpoint too", flags=("--keep-best",))
    max_skipped: int = setting(
        10,
        "steps in a row without a finite gradient, after which training goes back to the last checkpoint with half the rate",
        at_least=1,
    )
    average: int = setting(5, "checkpoints averaged at the end (paper: 5 for base, 20 for big)", flags=("--average",), at_least=1)
    ema: float = setting(0.0, "decay of a running average of the weights, such as 0.999; 0 is off", at_least=0.0, below=1.0)
    log_every: int = setting(100, "steps between log lines", at_least=1)
    tensorboard: bool = setting(False, "also log for TensorBoard (extra: tensorboard)")


@dataclass(frozen=True)
class SearchConfig:
    """How translations are found. [paper 6.1]

    A model folder carries these settings, and it may come from a stranger: each has a bound that memory can bear.
    """

    beam_size: int = setting(
        4, "hypotheses kept at each step; 1 is greedy", flags=("--beam-size", "--beam"), at_least=1, below=1001
    )
    length_penalty: float = setting(
        0.6, "α: larger favours longer outputs", flags=("--length-penalty", "--lenpen"), at_least=0.0, below=50.0
    )
    max_extra: int = setting(50, "an output has at most input + so many tokens", flags=("--max-extra",), at_least=1, below=100_001)
    shortlist: bool = setting(
        False,
        "weigh only target subwords that the source's became in training: faster in CTranslate2, rarely another translation",
        flags=("--shortlist",),
    )
    sentences: bool = setting(
        True, "translate a line that is longer than 19 in 20 of training sentence by sentence", flags=("--sentences",)
    )
    n_best: int = setting(1, "outputs given for each line", flags=("--n-best",), at_least=1, below=1001)
    sample: bool = setting(False, "draw outputs at random instead of searching", flags=("--sample",))
    temperature: float = setting(1.0, "sharpness of sampling; smaller is safer", flags=("--temperature",), at_least=1e-6)
    top_k: int = setting(0, "sample from the k likeliest tokens; 0 is all", flags=("--top-k",), at_least=0)
    top_p: float = setting(
        1.0, "sample from the likeliest tokens that hold this probability", flags=("--top-p",), at_least=1e-6, at_most=1.0
    )
    seed: int = setting(1, "seed of sampling", at_least=0)


@dataclass(frozen=True)
class Recipe:
    """Everything that makes a model."""

    preset: str = setting("", "tiny, small, base, fast or big; chosen by the size of the corpus if not named", flags=("--preset",))
    data: DataConfig = field(default_factory=DataConfig)
    tokens: TokensConfig = field(default_factory=TokensConfig)
    batches: BatchesConfig = field(default_factory=BatchesConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    search: SearchConfig = field(default_factory=SearchConfig)

    def faults(self) -> list[str]:
        """What is wrong between sections: data of another kind than the model learns from, a context without positions."""
        kind, faults = self.model.kind, []
        for part, corpora in (("data.train", self.data.train), ("data.valid", self.data.valid)):
            for files in corpora:
                if kind in DECODER_ONLY and not files.alone:
                    faults.append(f"{part}: {kind} models read text alone, but {files.source} has two sides")
                elif kind not in DECODER_ONLY + ENCODER_ONLY:
                    faults += [f"{part}: {fault}" for fault in files.unpaired("labels" if kind in IMAGES else "target file")]
        if kind in ENCODER_ONLY:
            faults += self._labelling_faults()
        if self.data.classes and kind not in ENCODER_ONLY + IMAGES:
            faults.append(f"data.classes: {kind} models know no classes")
        repeated = sorted({name for name in self.data.classes if self.data.classes.count(name) > 1})
        if repeated:
            faults.append(f"data.classes: named twice: {', '.join(repeated)}")
        if self.data.rows == "lines" and kind not in DECODER_ONLY:
            faults.append(f"data.rows: a setting of {_enumerated(DECODER_ONLY)} models; model.kind is {kind}")
        if self.train.consistency and kind not in PAIRED:
            faults.append(f"train.consistency: a setting of {_enumerated(PAIRED)} models; model.kind is {kind}")
        if self.train.start and kind not in RELATIVES:
            faults.append(f"train.start: a setting of {_enumerated(RELATIVES)} models; model.kind is {kind}")
        if kind in RELATIVES and self.model.positions == "learned" and self.places > self.model.max_positions:
            faults.append(f"model.max_positions: {self.model.max_positions} learned positions, but {self.places} are needed")
        return faults

    @property
    def places(self) -> int:
        """The longest sequence that a relative sees: its context, or an image with what stands before it."""
        images = {"vision": self.model.places + 1, "drawing": self.model.places + self.data.max_length}
        return images.get(self.model.kind, self.data.max_length)

    def _labelling_faults(self) -> list[str]:
        """All text has labels, or none has."""
        corpora = [*self.data.train, *self.data.valid]
        if len({files.alone for files in corpora}) > 1:
            return ["data.train, data.valid: some texts have labels beside them and some have not"]
        if self.data.classes and any(files.alone for files in corpora):
            return ["data.classes: there are classes, but no labels beside the texts"]
        return []


ENGINES = ("auto", "torch", "torch-bfloat16", "ctranslate2")
"""What may run a translator."""

PRESETS: dict[str, Values] = {
    "tiny": {
        "model": {"d_model": 128, "d_ff": 256, "n_heads": 4, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.3},
        "batches": {"tokens": 4096},
        "train": {"max_steps": 8000, "warmup_steps": 2000, "rate": 2.5, "average": 10, "keep_last": 10,
                  "save_every": 200, "validate_every": 400, "patience": 10},
    },
    "small": {
        "model": {"d_model": 256, "d_ff": 1024, "n_heads": 4, "encoder_layers": 4, "decoder_layers": 4, "dropout": 0.2},
        "batches": {"tokens": 8192},
        "train": {"max_steps": 50_000, "warmup_steps": 4000, "rate": 2.0},
    },
    "base": {},
    "fast": {"model": {"encoder_layers": 8, "decoder_layers": 1}},
    "big": {
        "model": {"d_model": 1024, "d_ff": 4096, "n_heads": 16, "dropout": 0.3},
        "train": {"max_steps": 300_000, "average": 20, "keep_last": 20},
    },
}  # fmt: skip


def preset_for(pairs: int) -> str:
    """The preset that suits a corpus of so many pairs."""
    if pairs < 100_000:
        return "tiny"
    return "small" if pairs < 1_000_000 else "base"


def _preset_values(preset: str, values: Mapping[str, Any]) -> Values:
    """What a preset says, without the settings that this kind of model has not."""
    model = values.get("model")
    kind = model.get("kind", "transformer") if isinstance(model, Mapping) else "transformer"
    others = {item.name for item in fields(ModelConfig) if not _applies(item.metadata["of"], kind)}
    chosen = dict(PRESETS.get(preset, {}))
    if "model" in chosen:
        chosen["model"] = {key: value for key, value in chosen["model"].items() if key not in others}
    return chosen


def build(values: Mapping[str, Any], preset: str = "") -> Recipe:
    """A full recipe: defaults, under a preset, under what the person wrote. All faults are listed at once."""
    faults: list[str] = []
    preset = preset or str(values.get("preset") or "")
    if preset and preset not in PRESETS:
        faults.append(f"preset: {preset!r} is none of {', '.join(PRESETS)}{suggestion(preset, PRESETS)}")
    merged = merge(_preset_values(preset, values), values) | {"preset": preset}
    recipe = typing.cast(Recipe, fill(Recipe, merged, "", faults, [name for name, _, _ in leaves(Recipe)]))
    if faults:
        raise InputError(listed("the settings have", faults))
    return recipe
