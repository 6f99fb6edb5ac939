"""The model folder: the only thing that leaves training. Self-contained, free of pickle, with a digest of each part."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from undivided import __version__
from undivided.card import model_card
from undivided.config import Recipe, build
from undivided.console import InputError
from undivided.corpus import digest
from undivided.models import Seq2Seq, make_model
from undivided.settings import as_values
from undivided.tokens import Tokenizer

FORMAT_VERSION = 1
INCOMING = ".incoming"
"""A complete newer folder that waits to be moved into place; where it is there, it is the model."""


@dataclass
class Artifact:
    """A trained model with all that it needs to turn text into text."""

    recipe: Recipe
    tokenizer: Tokenizer
    model: Seq2Seq
    facts: dict[str, Any] = field(default_factory=dict)
    """What was measured: scores with signatures, digests of the data, cost of training."""


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, also where it is tied, in memory of its own."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def fill(model: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Copy weights into a model; all that does not fit is named."""
    parameters = dict(model.named_parameters())
    faults = [f"{name} is missing" for name in parameters.keys() - tensors.keys()]
    faults += [f"{name} is not of this model" for name in tensors.keys() - parameters.keys()]
    for name in parameters.keys() & tensors.keys():
        if parameters[name].shape != tensors[name].shape:
            faults.append(f"{name} has shape {tuple(tensors[name].shape)}, expected {tuple(parameters[name].shape)}")
    if faults:
        raise InputError(f"{origin}: the weights do not fit the config: {'; '.join(sorted(faults)[:5])}")
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def read_tensors(path: Path) -> dict[str, Tensor]:
    """A safetensors file, or a clear error."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as safetensors: {error}") from None


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """A safetensors file; the library's own error for a full disk becomes an OSError like all others."""
    try:
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        full = "No space left" in str(error) or "code: 28" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(path)) from None


def sync(path: Path) -> None:
    """Make sure that a file or directory has reached the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def save(artifact: Artifact, folder: Path) -> None:
    """Write the model folder so that at every moment a whole one is there, the old or the new."""
    folder.mkdir(parents=True, exist_ok=True)
    _settle(folder)
    building = folder / f"{INCOMING}.{os.getpid()}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    config = {
        "format": "undivided",
        "format_version": FORMAT_VERSION,
        "undivided_version": __version__,
        "vocabulary": [len(artifact.tokenizer.source), len(artifact.tokenizer.target)],
        "recipe": as_values(artifact.recipe),
        "facts": artifact.facts,
    }
    (building / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write_tensors(building / "model.safetensors", weights(artifact.model))
    parts = ["config.json", "model.safetensors", *artifact.tokenizer.save(building)]
    manifest = {"sha256": {part: digest(building / part) for part in parts}}
    (building / "README.md").write_text(model_card(artifact.recipe, artifact.facts), encoding="utf-8")
    (building / "manifest.json").write_text(json.dumps(manifest, indent=2) + "\n")
    for part in building.iterdir():
        sync(part)
    sync(building)
    building.rename(folder / INCOMING)
    sync(folder)
    _settle(folder)


def _settle(folder: Path) -> None:
    """Move a complete incoming folder into place."""
    incoming = folder / INCOMING
    shutil.rmtree(folder / f"{INCOMING}.settled", ignore_errors=True)
    if not incoming.is_dir():
        return
    # The manifest goes last: until then the incoming folder is still the model.
    for part in sorted(incoming.iterdir(), key=lambda part: part.name == "manifest.json"):
        shutil.copyfile(part, folder / f"{part.name}.new")
        sync(folder / f"{part.name}.new")
        (folder / f"{part.name}.new").replace(folder / part.name)
    sync(folder)
    # Renamed before it is removed: half of a folder must not be taken for the model.
    incoming.rename(folder / f"{INCOMING}.settled")
    shutil.rmtree(folder / f"{INCOMING}.settled", ignore_errors=True)


def load(folder: str | Path, device: torch.device | None = None) -> Artifact:
    """Read a model folder; a part that is missing or damaged is named."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    if (folder / INCOMING).is_dir():
        folder = folder / INCOMING
    _verify(folder)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    version = config.get("format_version")
    if config.get("format") != "undivided" or not isinstance(version, int):
        raise InputError(f"{folder}: config.json does not describe a model of undivided")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{folder}: written in format {version} by undivided {config.get('undivided_version')}, newer than this release; "
            "upgrade with: pip install -U undivided"
        )
    recipe = build(config["recipe"])
    tokenizer = Tokenizer.load(folder)
    sizes = [len(tokenizer.source), len(tokenizer.target)]
    if sizes != config["vocabulary"]:
        raise InputError(f"{folder}: the subword models have {sizes} tokens, but config.json says {config['vocabulary']}")
    model = make_model(recipe.model, *sizes)
    fill(model, read_tensors(folder / "model.safetensors"), f"{folder}/model.safetensors")
    model.eval()
    return Artifact(recipe, tokenizer, model.to(device) if device is not None else model, config["facts"])


def _verify(folder: Path) -> None:
    """Check every part against the manifest."""
    try:
        expected = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["sha256"]
        if not {"config.json", "model.safetensors"} <= expected.keys():
            raise ValueError("parts are not listed")
    except FileNotFoundError:
        training = " Training has not written a model yet." if (folder / "training").is_dir() else ""
        raise InputError(f"{folder}: not a model folder: manifest.json is missing.{training}") from None
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise InputError(f"{folder}: manifest.json is damaged: {error}") from None
    for part, sha256 in expected.items():
        if Path(part).name != part:
            raise InputError(f"{folder}: manifest.json names a part outside the folder: {part}")
        if not (folder / part).is_file():
            raise InputError(f"{folder}: {part} is missing; copy the whole model folder again")
        if digest(folder / part) != sha256:
            raise InputError(f"{folder}: {part} is damaged (its sha256 differs from the manifest); copy it again")
