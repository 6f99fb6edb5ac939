"""Every setting, defined once: dataclass → YAML recipe → command-line flag → saved in the model."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from undivided.config.data import BatchesConfig, CorpusFiles, DataConfig, TokensConfig
from undivided.config.model import DECODER_ONLY, ENCODER_ONLY, IMAGES, PAIRED, SINGLE_STACK, ModelConfig, applies, join_names
from undivided.config.settings import Values, build_config, iter_settings, list_faults, merge, setting, suggest
from undivided.core.errors import InputError

__all__ = [
    "CHUNK_LINES",
    "ENGINES",
    "PRESETS",
    "BatchesConfig",
    "CorpusFiles",
    "DataConfig",
    "ModelConfig",
    "Recipe",
    "SearchConfig",
    "TokensConfig",
    "TrainConfig",
    "build_recipe",
    "preset_for",
]

CHUNK_LINES = 2000
"""Lines sorted by length and translated together: what a file of any size needs of memory."""


@dataclass(frozen=True)
class TrainConfig:
    """How it is trained. [paper 5]"""

    out: str = setting("", "directory of the model; training goes on if it was begun there", flags=("--out", "-o"))
    seed: int = setting(1, "seed of initialisation, order of data and dropout", flags=("--seed",), at_least=0)
    start: str = setting(
        "", "model folder to start from (fine-tuning): its settings, subwords, and weights of the layers that both have"
    )
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
        "weigh only target subwords that the source's became in training, in CTranslate2: less work where the vocabulary is large, "
        "and some translations come out otherwise",
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
                if kind in DECODER_ONLY and not files.is_unpaired:
                    faults.append(f"{part}: {kind} models read text alone, but {files.source} has two sides")
                elif kind not in DECODER_ONLY + ENCODER_ONLY:
                    faults += [f"{part}: {fault}" for fault in files.pairing_faults("labels" if kind in IMAGES else "target file")]
        if kind in ENCODER_ONLY:
            faults += self._labelling_faults()
        if self.data.classes and kind not in ENCODER_ONLY + IMAGES:
            faults.append(f"data.classes: {kind} models know no classes")
        repeated = sorted({name for name in self.data.classes if self.data.classes.count(name) > 1})
        if repeated:
            faults.append(f"data.classes: named twice: {', '.join(repeated)}")
        if self.data.rows == "lines" and kind not in DECODER_ONLY:
            faults.append(f"data.rows: a setting of {join_names(DECODER_ONLY)} models; model.kind is {kind}")
        if self.train.consistency and kind not in PAIRED:
            faults.append(f"train.consistency: a setting of {join_names(PAIRED)} models; model.kind is {kind}")
        if kind in SINGLE_STACK and self.model.positions == "learned" and self.max_sequence > self.model.max_positions:
            faults.append(f"model.max_positions: {self.model.max_positions} learned positions, but {self.max_sequence} are needed")
        return faults

    @property
    def max_sequence(self) -> int:
        """The longest sequence that a relative sees: its context, or an image with what stands before it."""
        images = {"vision": self.model.n_patches + 1, "drawing": self.model.n_patches + self.data.max_length}
        return images.get(self.model.kind, self.data.max_length)

    def _labelling_faults(self) -> list[str]:
        """All text has labels, or none has."""
        corpora = [*self.data.train, *self.data.valid]
        if len({files.is_unpaired for files in corpora}) > 1:
            return ["data.train, data.valid: some texts have labels beside them and some have not"]
        if self.data.classes and any(files.is_unpaired for files in corpora):
            return ["data.classes: there are classes, but no labels beside the texts"]
        return []


ENGINES = ("auto", "torch", "torch-bfloat16", "ctranslate2")
"""What may run a translator."""

SIZES = ("d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "dropout")
"""What makes a model a base one: the defaults, said aloud where other settings stand below a preset."""

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
    "base": {"model": {name: getattr(ModelConfig(), name) for name in SIZES}},
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


def preset_values(preset: str, values: Mapping[str, Any]) -> Values:
    """What a preset says, without the settings that this kind of model has not."""
    model = values.get("model")
    kind = model.get("kind", "transformer") if isinstance(model, Mapping) else "transformer"
    others = {item.name for item in fields(ModelConfig) if not applies(item.metadata["of"], kind)}
    chosen = dict(PRESETS.get(preset, {}))
    if "model" in chosen:
        chosen["model"] = {key: value for key, value in chosen["model"].items() if key not in others}
    return chosen


def build_recipe(values: Mapping[str, Any], preset: str = "") -> Recipe:
    """A full recipe: defaults, under a preset, under what the person wrote. All faults are listed at once."""
    faults: list[str] = []
    preset = preset or str(values.get("preset") or "")
    if preset and preset not in PRESETS:
        faults.append(f"preset: {preset!r} is none of {', '.join(PRESETS)}{suggest(preset, PRESETS)}")
    merged = merge(preset_values(preset, values), values) | {"preset": preset}
    recipe = typing.cast(Recipe, build_config(Recipe, merged, "", faults, [name for name, _, _ in iter_settings(Recipe)]))
    if faults:
        raise InputError(list_faults("the settings have", faults))
    return recipe
