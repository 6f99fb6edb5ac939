"""Write a model folder so that at every moment a whole one is there, the old or the new."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from undivided import __version__
from undivided.artifact.card import model_card
from undivided.artifact.contents import Artifact, SingleStackArtifact
from undivided.config.settings import as_values
from undivided.core import manifest
from undivided.core.files import encode_text, fsync, open_atomic
from undivided.core.locks import make_temporary_folder, remove_abandoned
from undivided.core.manifest import INCOMING

FORMAT_VERSION = 1
SHORTLIST = "shortlist.safetensors"
DRAFT = "draft.safetensors"
"""The weights of a draft decoder."""


def save_artifact(artifact: Artifact | SingleStackArtifact, folder: Path) -> None:
    """Write the model folder: aside, to the disk, by one rename to `.incoming`, and from there into place."""
    folder.mkdir(parents=True, exist_ok=True)
    _settle(folder)
    remove_abandoned(folder, f"{INCOMING}.[0-9]*")
    with make_temporary_folder(folder / f"{INCOMING}.{os.getpid()}") as building:
        manifest.write(building, _write_parts(artifact, building))
        # Not in the manifest: a person may edit the card, nothing reads it, and all it says is in config.json.
        (building / "README.md").write_bytes(encode_text(model_card(artifact.recipe, artifact.facts)))
        for part in building.iterdir():
            fsync(part)
        fsync(building)
        building.rename(folder / INCOMING)
    fsync(folder)
    _settle(folder)


def _write_parts(artifact: Artifact | SingleStackArtifact, folder: Path) -> list[str]:
    """Write config, weights, subword models, shortlist and draft decoder; their names."""
    import torch

    from undivided.artifact.weights import weights, write_tensors

    tokenizer = artifact.tokenizer
    config = {
        "format": "undivided",
        "format_version": FORMAT_VERSION,
        "undivided_version": __version__,
        "vocabulary": [] if tokenizer is None else [len(tokenizer.source), len(tokenizer.target)],
        "recipe": as_values(artifact.recipe),
        "facts": artifact.facts,
    }
    (folder / "config.json").write_bytes(encode_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n"))
    write_tensors(folder / "model.safetensors", weights(artifact.model))
    parts = ["config.json", "model.safetensors", *([] if tokenizer is None else tokenizer.save(folder))]
    if isinstance(artifact, Artifact) and artifact.shortlist is not None:
        shortlist = artifact.shortlist
        write_tensors(folder / SHORTLIST, {"common": torch.tensor(shortlist.common), "likely": torch.tensor(shortlist.likely)})
        parts.append(SHORTLIST)
    if isinstance(artifact, Artifact) and artifact.draft is not None:
        write_tensors(folder / DRAFT, weights(artifact.draft))
        parts.append(DRAFT)
    return parts


def _settle(folder: Path) -> None:
    """Move a complete incoming folder into place."""
    incoming = folder / INCOMING
    shutil.rmtree(folder / f"{INCOMING}.settled", ignore_errors=True)
    if not incoming.is_dir():
        return
    # The manifest goes last: until then the incoming folder is still the model.
    for part in sorted(incoming.iterdir(), key=lambda part: part.name == manifest.NAME):
        if part.is_symlink() or not part.is_file():
            continue
        with part.open("rb") as source, open_atomic(folder / part.name) as target:
            shutil.copyfileobj(source, target)
    # Renamed before it is removed: half of a folder must not be taken for the model.
    incoming.rename(folder / f"{INCOMING}.settled")
    shutil.rmtree(folder / f"{INCOMING}.settled", ignore_errors=True)
