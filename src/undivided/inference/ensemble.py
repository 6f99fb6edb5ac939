"""Several model folders that translate together. Importing this must not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from undivided.artifact import Artifact, open_artifact
from undivided.core.errors import InputError

if TYPE_CHECKING:
    from undivided.models import Seq2Seq


def open_ensemble(folders: Sequence[str | Path], device: str = "auto", threads: int = 0) -> Artifact:
    """One translator of several model folders that share their subwords; settings and facts are those of the first."""
    from undivided.models.ensemble import Ensemble

    artifacts = [open_artifact(folder, device, threads) for folder in folders]
    first = artifacts[0].tokenizer
    for folder, artifact in zip(folders[1:], artifacts[1:], strict=True):
        sides = zip((first.source, first.target), (artifact.tokenizer.source, artifact.tokenizer.target), strict=True)
        if any(ours.model != theirs.model for ours, theirs in sides):
            raise InputError(
                f"{folder}: its subwords are not those of {folders[0]}, so the two cannot write one translation together; "
                f"train it with --tokens.ready {folders[0]}"
            )
    # Search asks no more of a model than an ensemble has.
    model = cast("Seq2Seq", Ensemble([artifact.model for artifact in artifacts]))
    whole = artifacts[0]
    untrusted = tuple((folder, each.recipe) for folder, each in zip(folders, artifacts, strict=True))
    return Artifact(whole.recipe, whole.tokenizer, model, dict(whole.facts), whole.shortlist, untrusted=untrusted)
