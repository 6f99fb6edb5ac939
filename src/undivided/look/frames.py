"""One sentence and its translation as a model knows them after some steps of training: a frame of a page that shows it learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import nn

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.data.batches import make_batch
from undivided.data.subwords import to_one_line
from undivided.inference.search import search
from undivided.look.capture import record_pass
from undivided.look.result import Numbers, to_readonly_array
from undivided.look.space import MIN_POSITIONS


@dataclass(frozen=True)
class Frame:
    """What a model does with a sentence after some steps: `L` layers, `H` heads, `S` source, `T` target, `P` positions."""

    step: int
    translation: str
    """What it writes itself."""
    probabilities: tuple[float, ...]
    """Of each token of the fixed translation, teacher-forced, `T`."""
    log_probability: float
    """Of the fixed translation."""
    encoder: Numbers
    """`L H S S`."""
    decoder: Numbers
    """`L H T T`."""
    cross: Numbers
    """`L H T S`."""
    positions: Numbers | None
    """`P D`, where positions are learned."""


def translate_ids(artifact: Artifact, src: list[int], config: SearchConfig) -> str:
    """The translation of a source."""
    best = search(artifact.model, [src], config, artifact.device)[0][0]
    return to_one_line(artifact.tokenizer.target.decode([best.tokens])[0])


def capture_frame(artifact: Artifact, step: int, src: list[int], tgt: list[int], config: SearchConfig) -> Frame:
    """Follow a sentence and its fixed translation through a model."""
    batch = make_batch([src], [tgt]).to(artifact.device)
    with torch.inference_mode():
        recording = record_pass(artifact.model, batch)
        scores = artifact.model.logits(recording.states[0]).float().log_softmax(dim=-1)  # T V
        own = scores.gather(1, batch.tgt_out[0, :, None])[:, 0]
    return Frame(
        step=step,
        translation=translate_ids(artifact, src, config),
        probabilities=tuple(own.exp().tolist()),
        log_probability=float(own.sum()),
        encoder=recording.attention("encoder", len(src), len(src)),
        decoder=recording.attention("decoder", len(tgt), len(tgt)),
        cross=recording.attention("cross", len(tgt), len(src)),
        positions=_learned_positions(artifact, max(len(src), len(tgt), MIN_POSITIONS)),
    )


def _learned_positions(artifact: Artifact, length: int) -> Numbers | None:
    positions = getattr(cast(nn.Module, artifact.model).get_submodule("source_embedding"), "positions", None)
    if positions is None or positions.kind != "learned":
        return None
    return to_readonly_array(positions.rows(min(length, len(positions.learned))))


@dataclass(frozen=True)
class Curve:
    """Numbers of a training by step."""

    name: str
    points: tuple[tuple[int, float], ...]
    logarithmic: bool = False
    """Whether it is drawn on a logarithmic scale."""


@dataclass(frozen=True)
class History:
    """A training as a page shows it: one sentence in every frame, and the curves of the log."""

    artifact: Artifact
    text: str
    target: str
    is_reference: bool
    """Whether the fixed translation was given; else it is that of the last frame."""
    src: Sequence[int]
    tgt: Sequence[int]
    frames: tuple[Frame, ...]
    curves: tuple[Curve, ...]
