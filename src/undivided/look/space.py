"""Embeddings and position encodings: similarities and nearest neighbours. [paper 3.4, 3.5]"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.artifact import Artifact
from undivided.core.ids import EOS
from undivided.data.subwords import Subwords
from undivided.look.result import Neighbour, Numbers, Space, to_readonly_array

NEIGHBOURS = 6
MIN_POSITIONS = 32
"""Positions shown at least, so that the waves can be seen with a short sentence too."""


def compute_space(artifact: Artifact, src: Sequence[int], tgt: Sequence[int], memory: Tensor) -> Space:
    """Similarities and neighbours of the tokens of one sentence and its translation."""
    model = cast(nn.Module, artifact.model)
    source, target = (cast(Tensor, model.get_submodule(name).weight).detach() for name in ("source_embedding", "target_embedding"))
    here, there = source[list(src)], target[list(tgt)]
    return Space(
        positions=_positions(model, max(len(src), len(tgt), MIN_POSITIONS)),
        source=to_readonly_array(cosines(here, here)),
        target=to_readonly_array(cosines(there, there)),
        across=to_readonly_array(cosines(there, here)) if source.data_ptr() == target.data_ptr() else None,
        memory=to_readonly_array(cosines(memory[0], memory[0])),
        source_neighbours=_neighbours(here, src, source, artifact.tokenizer.source),
        target_neighbours=_neighbours(there, tgt, target, artifact.tokenizer.target),
    )


def _positions(model: nn.Module, length: int) -> Numbers | None:
    """The position encoding, `P D`; None if the model has none."""
    positions = getattr(model.get_submodule("source_embedding"), "positions", None)
    if positions is None or positions.kind == "none":
        return None
    if positions.kind == "learned":
        length = min(length, len(positions.learned))
    return to_readonly_array(positions.rows(length))


def _neighbours(vectors: Tensor, ids: Sequence[int], weight: Tensor, subwords: Subwords) -> tuple[tuple[Neighbour, ...], ...]:
    near = cosines(vectors, weight)  # T V
    near[:, : EOS + 1] = -1.0
    near[torch.arange(len(ids)), list(ids)] = -1.0
    best, places = near.topk(min(NEIGHBOURS, near.shape[1]), dim=1)
    return tuple(
        tuple(Neighbour(*each) for each in zip(subwords.pieces(row), values, strict=True))
        for row, values in zip(places.tolist(), best.tolist(), strict=True)
    )


def cosines(left: Tensor, right: Tensor) -> Tensor:
    """Cosine similarity of every row of `left` with every row of `right`."""
    return F.normalize(left.float(), dim=-1) @ F.normalize(right.float(), dim=-1).t()
