"""The model folder, its weights, its card: written by training, read by everything else."""

from undivided.artifact.contents import Artifact, LazyArtifact, SingleStackArtifact
from undivided.artifact.load import (
    command_for,
    load_any,
    load_artifact,
    load_single_stack,
    model_kind,
    open_artifact,
    open_single_stack,
)
from undivided.artifact.save import FORMAT_VERSION, SHORTLIST, save_artifact

__all__ = [
    "FORMAT_VERSION",
    "SHORTLIST",
    "Artifact",
    "LazyArtifact",
    "SingleStackArtifact",
    "command_for",
    "load_any",
    "load_artifact",
    "load_single_stack",
    "model_kind",
    "open_artifact",
    "open_single_stack",
    "save_artifact",
]
