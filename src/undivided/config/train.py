"""How a model is trained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from undivided.config.settings import setting
from undivided.core.errors import InputError

MAX_THREADS = 1024
"""More CPU threads than any machine has use for; far more, and the system refuses to start them."""


def check_threads(count: int) -> None:
    """Refuse a number of CPU threads that no machine can start."""
    if not 0 <= count <= MAX_THREADS:
        raise InputError(f"threads: {count} is {'less than 0' if count < 0 else f'more than {MAX_THREADS}'}")


@dataclass(frozen=True)
class TrainConfig:
    """How a model is trained. [paper 5]"""

    out: str = setting("", "directory of the model; an existing run in it is resumed", flags=("--out", "-o"))
    seed: int = setting(1, "seed of the initial weights, the order of the data and dropout", flags=("--seed",), at_least=0)
    start: str = setting(
        "",
        "model folder to fine-tune: its settings and subwords are taken over, and its weights wherever both models have them",
        flags=("--from",),
    )
    pull: float = setting(
        0.0,
        "fine-tuning: pull back to the weights that it starts from, so that less is forgotten: each step undoes rate × pull of the "
        "way from there; 0 = none",
        flags=("--pull",),
        at_least=0.0,
    )
    ewc: float = setting(
        0.0,
        "fine-tuning: the same pull, but for each weight as strong as it matters to what the model knows (elastic weight "
        "consolidation), measured on 500 old pairs (--old-train); on average as strong as --pull of the same number; 0 = none",
        flags=("--ewc",),
        at_least=0.0,
    )
    drafts: bool = setting(
        False,
        "train a draft decoder for the model that training starts from, whose own weights stay as they are (as undivided distill "
        "--drafts does)",
    )
    mask: float = setting(
        0.15, "share of tokens that are masked and predicted, where an encoder_only model has no classes", at_least=0.01, below=1.0
    )
    max_steps: int = setting(100_000, "steps to train", flags=("--max-steps",), at_least=1)
    max_epochs: int = setting(0, "stop after this many passes over the data; 0 = no limit", flags=("--max-epochs",), at_least=0)
    minutes: float = setting(0.0, "stop after this many minutes of training; 0 = no limit", flags=("--minutes",), at_least=0.0)
    optimizer: Literal["adam", "adamw"] = setting("adam", "adam (paper), or adamw: Adam with decoupled weight decay")
    beta1: float = setting(0.9, "Adam β₁", at_least=0.0, below=1.0)
    beta2: float = setting(0.98, "Adam β₂", at_least=0.0, below=1.0)
    epsilon: float = setting(1e-9, "Adam ε", at_least=0.0)
    weight_decay: float = setting(0.0, "weight decay of adamw", at_least=0.0)
    schedule: Literal["paper", "inverse_sqrt", "cosine"] = setting(
        "paper",
        "learning rate after warmup: paper (Eq. 3 of the paper), inverse_sqrt (from the peak rate down by 1/√step), "
        "cosine (from the peak rate down to zero at max_steps)",
    )
    warmup_steps: int = setting(4000, "steps of linear warmup of the learning rate", flags=("--warmup-steps",), at_least=1)
    rate: float = setting(1.0, "factor on Eq. 3, or the peak rate of the other schedules", flags=("--rate",), at_least=0.0)
    label_smoothing: float = setting(0.1, "label smoothing ε_ls", flags=("--label-smoothing",), at_least=0.0, below=1.0)
    consistency: float = setting(
        0.0,
        "R-Drop's α: weight of the divergence between two passes with different dropout; 0 = a single pass",
        at_least=0.0,
    )
    clip: float = setting(0.0, "clip the norm of the gradient to this; 0 = no clipping", at_least=0.0)
    precision: Literal["auto", "float32", "bfloat16", "float16"] = setting(
        "auto",
        "number format of matrix products: float32, bfloat16, float16 (with loss scaling), or auto: bfloat16 where this GPU or CPU "
        "supports it and it is faster, else float32",
    )
    device: str = setting("auto", "auto, cpu, cuda, cuda:N or mps; auto = a GPU if there is one", flags=("--device",))
    threads: int = setting(0, "CPU threads; 0 = all cores", flags=("--threads",), at_least=0, at_most=MAX_THREADS)
    shard: bool = setting(False, "shard weights, gradients and optimizer state over the processes (FSDP2)", flags=("--shard",))
    validate_every: int = setting(1000, "steps between validations", flags=("--validate-every",), at_least=1)
    validate_beam: int = setting(1, "beam size of the validation BLEU; 1 = greedy", at_least=1, below=1001)
    validate_lines: int = setting(1000, "validation pairs that are translated for BLEU", at_least=1)
    patience: int = setting(
        0, "stop after this many validations without a better BLEU; 0 = never", flags=("--patience",), at_least=0
    )
    save_every: int = setting(1000, "steps between checkpoints", flags=("--save-every",), at_least=1)
    keep_last: int = setting(5, "how many of the newest checkpoints to keep", at_least=1)
    keep_best: bool = setting(False, "also save and keep a checkpoint at the best validation", flags=("--keep-best",))
    snapshots: int = setting(
        0,
        "keep up to this many copies of the weights, with half their precision, spread over the training, closest in its "
        "beginning: undivided look RUN --training shows them; 0 = none",
        flags=("--snapshots",),
        at_least=0,
        at_most=1000,
    )
    max_skipped: int = setting(
        10,
        "steps in a row with infinite or NaN gradients after which training returns to the last checkpoint and halves the rate",
        at_least=1,
    )
    average: int = setting(
        5, "checkpoints averaged into the final weights (paper: 5 for base, 20 for big)", flags=("--average",), at_least=1
    )
    ema: float = setting(0.0, "decay of an exponential moving average of the weights, e.g. 0.999; 0 = off", at_least=0.0, below=1.0)
    log_every: int = setting(100, "steps between log lines", at_least=1)
    tensorboard: bool = setting(False, "also write a TensorBoard log (needs the extra: tensorboard)")
