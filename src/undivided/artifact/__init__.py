"""The model folder, its weights, its card: written by training, read by everything else."""

from undivided.artifact.contents import Artifact, LazyArtifact, SingleStackArtifact
from undivided.artifact.load import (
    UNFINISHED,
    command_for,
    load_any,
    load_artifact,
    load_single_stack,
    model_kind,
    open_artifact,
    open_single_stack,
    warn_unfinished,
)
from undivided.artifact.save import DRAFT, FORMAT_VERSION, SHORTLIST, save_artifact
from undivided.artifact.unfinished import find_unfinished

__all__ = [
    "DRAFT",
    "FORMAT_VERSION",
    "SHORTLIST",
    "UNFINISHED",
    "Artifact",
    "LazyArtifact",
    "SingleStackArtifact",
    "command_for",
    "find_unfinished",
    "load_any",
    "load_artifact",
    "load_single_stack",
    "model_kind",
    "open_artifact",
    "open_single_stack",
    "save_artifact",
    "warn_unfinished",
]
