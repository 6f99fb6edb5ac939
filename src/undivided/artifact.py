"""The model folder: the only thing that leaves training. Self-contained, free of pickle, with a digest of each part."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from undivided import __version__, manifest
from undivided.card import model_card
from undivided.config import ModelConfig, Recipe, build
from undivided.config.model import DECODER_ONLY, DRAWING, PAIRED
from undivided.console import InputError
from undivided.device import choose_device, use_threads
from undivided.files import fresh, read_json, sync
from undivided.manifest import INCOMING
from undivided.models import Relative, Seq2Seq, make_model, make_relative
from undivided.settings import as_values
from undivided.shortlist import Shortlist
from undivided.tokens import Tokenizer

FORMAT_VERSION = 1
SHORTLIST = "shortlist.safetensors"
SUBWORDS = {"subwords.model", "source.model", "target.model"}

Shapes = dict[str, tuple[int, ...]]
Model = TypeVar("Model", bound=nn.Module)


@dataclass
class Artifact:
    """A trained model with all that it needs to turn text into text."""

    recipe: Recipe
    tokenizer: Tokenizer
    model: Seq2Seq
    facts: dict[str, Any] = field(default_factory=dict)
    """What was measured: scores with signatures, digests of the data, cost of training."""
    shortlist: Shortlist | None = None
    """Which target subwords the source's may become; older model folders have none."""


@dataclass
class RelativeArtifact:
    """A trained relative of the Transformer with all that it needs; one that sees only images has no tokenizer."""

    recipe: Recipe
    tokenizer: Tokenizer | None
    model: Relative
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> Tokenizer:
        """The tokenizer of a model that has one."""
        if self.tokenizer is None:
            raise TypeError(f"{self.recipe.model.kind} models have no text")
        return self.tokenizer


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, also where it is tied, in memory of its own."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def fill(model: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Copy weights into a model; all that does not fit is named."""
    parameters = dict(model.named_parameters())
    check_fit(shapes_of(parameters), shapes_of(tensors), origin)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """Of each tensor its shape."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_fit(wanted: Shapes, found: Shapes, origin: str) -> None:
    """An error that names what is missing, too much, or of another shape."""
    faults = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name} is not of this model" for name in found.keys() - wanted.keys()]
    for name in wanted.keys() & found.keys():
        if wanted[name] != found[name]:
            faults.append(f"{name} has shape {found[name]}, expected {wanted[name]}")
    if faults:
        raise InputError(f"{origin}: the weights do not fit the config: {'; '.join(sorted(faults)[:5])}")


def check_weights(config: ModelConfig, make: Callable[[], nn.Module], path: Path) -> None:
    """Compare a config with the weights it came with before any memory is taken: a config may claim any size."""
    try:
        with safe_open(path, "pt") as stored:
            found: Shapes = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as safetensors: {error}") from None
    layers = sum(value for name, value in dataclasses.asdict(config).items() if name.endswith("layers"))
    if layers > len(found):
        raise InputError(f"{path}: the config has {layers:,} layers, but there are only {len(found):,} tensors")
    try:
        with torch.device("meta"), _NoChance():
            wanted = shapes_of(dict(make().named_parameters()))
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InputError(f"{path.with_name('config.json')}: describes no model that can be built: {error}") from None
    check_fit(wanted, found, str(path))


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


def save(artifact: Artifact | RelativeArtifact, folder: Path) -> None:
    """Write the model folder so that at every moment a whole one is there, the old or the new."""
    folder.mkdir(parents=True, exist_ok=True)
    _settle(folder)
    building = folder / f"{INCOMING}.{os.getpid()}"
    shutil.rmtree(building, ignore_errors=True)
    building.mkdir()
    tokenizer = artifact.tokenizer
    config = {
        "format": "undivided",
        "format_version": FORMAT_VERSION,
        "undivided_version": __version__,
        "vocabulary": [] if tokenizer is None else [len(tokenizer.source), len(tokenizer.target)],
        "recipe": as_values(artifact.recipe),
        "facts": artifact.facts,
    }
    (building / "config.json").write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    write_tensors(building / "model.safetensors", weights(artifact.model))
    parts = ["config.json", "model.safetensors", *([] if tokenizer is None else tokenizer.save(building))]
    if isinstance(artifact, Artifact) and artifact.shortlist is not None:
        shortlist = artifact.shortlist
        write_tensors(building / SHORTLIST, {"common": torch.tensor(shortlist.common), "likely": torch.tensor(shortlist.likely)})
        parts.append(SHORTLIST)
    manifest.write(building, parts)
    # Not in the manifest: a person may edit the card, nothing reads it, and all it says is in config.json.
    (building / "README.md").write_text(model_card(artifact.recipe, artifact.facts), encoding="utf-8")
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
    for part in sorted(incoming.iterdir(), key=lambda part: part.name == manifest.NAME):
        if part.is_symlink() or not part.is_file():
            continue
        copy = folder / f"{part.name}.new"
        with part.open("rb") as source, fresh(copy) as target:
            shutil.copyfileobj(source, target)
        sync(copy)
        copy.replace(folder / part.name)
    sync(folder)
    # Renamed before it is removed: half of a folder must not be taken for the model.
    incoming.rename(folder / f"{INCOMING}.settled")
    shutil.rmtree(folder / f"{INCOMING}.settled", ignore_errors=True)


def load(folder: str | Path, device: torch.device | None = None) -> Artifact:
    """Read the model folder of a translator; a part that is missing or damaged is named."""
    found = load_any(folder, device)
    if isinstance(found, Artifact):
        return found
    kind = found.recipe.model.kind
    raise InputError(f"{folder}: a {kind} model; it does not translate. Use it with: undivided {verb_of(kind)}")


def open_relative(model: str | Path | RelativeArtifact, device: str, threads: int) -> tuple[RelativeArtifact, torch.device]:
    """A relative ready for use, from its folder or as given, and where it computes."""
    if isinstance(model, RelativeArtifact):
        return model, next(model.model.parameters()).device
    use_threads(threads)
    chosen = choose_device(device)
    return load_relative(model, chosen), chosen


def load_relative(folder: str | Path, device: torch.device | None = None) -> RelativeArtifact:
    """Read the model folder of a relative of the Transformer; a part that is missing or damaged is named."""
    found = load_any(folder, device)
    if isinstance(found, RelativeArtifact):
        return found
    raise InputError(f"{folder}: a translator ({found.recipe.model.kind}). Use it with: undivided translate")


def kind_of(folder: str | Path) -> str:
    """The kind of model that a folder holds."""
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such model folder")
    return _read_config(manifest.current(Path(folder)))[0].model.kind


def verb_of(kind: str) -> str:
    """The command that uses a kind of model."""
    return "translate" if kind in PAIRED else "generate" if kind in DECODER_ONLY + DRAWING else "classify"


def load_any(folder: str | Path, device: torch.device | None = None) -> Artifact | RelativeArtifact:
    """Read a model folder, whatever is in it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    folder = manifest.current(folder)
    listed = _verify(folder)
    recipe, vocabulary, facts = _read_config(folder)
    tokenizer = None if recipe.model.kind == "vision" else Tokenizer.load(folder)
    sizes = [] if tokenizer is None else [len(tokenizer.source), len(tokenizer.target)]
    if sizes != vocabulary:
        raise InputError(f"{folder}: the subword models have {sizes} tokens, but config.json says {vocabulary}")
    if recipe.model.kind in PAIRED and tokenizer is not None:
        model = _filled(recipe.model, lambda: make_model(recipe.model, *sizes), folder, device)
        return Artifact(recipe, tokenizer, model, facts, _shortlist(folder / SHORTLIST, *sizes) if SHORTLIST in listed else None)
    first, classes = sizes[0] if sizes else 0, len(recipe.data.classes)
    relative = _filled(recipe.model, lambda: make_relative(recipe.model, first, classes), folder, device)
    return RelativeArtifact(recipe, tokenizer, relative, facts)


def _filled(config: ModelConfig, make: Callable[[], Model], folder: Path, device: torch.device | None) -> Model:
    """A model with the weights of a folder, which are looked at before any memory is taken."""
    path = folder / "model.safetensors"
    check_weights(config, make, path)
    with _NoChance():
        model = make()
    fill(model, read_tensors(path), str(path))
    model.eval()
    return model.to(device) if device is not None else model


class _NoChance(TorchFunctionMode):
    """Within, no random number is drawn for weights, which takes long in a large model: they are about to be read."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drawn = func in (Tensor.uniform_, Tensor.normal_)
        return args[0] if drawn else func(*args, **(kwargs or {}))


def _read_config(folder: Path) -> tuple[Recipe, object, dict[str, Any]]:
    """The recipe, the sizes of the vocabularies and the facts that config.json holds."""
    config = read_json(folder / "config.json")
    version = config.get("format_version")
    if config.get("format") != "undivided" or type(version) is not int:
        raise InputError(f"{folder}: config.json does not describe a model of undivided")
    if version > FORMAT_VERSION:
        raise InputError(
            f"{folder}: written in format {version} by undivided {config.get('undivided_version')}, newer than this release; "
            "upgrade with: pip install -U undivided"
        )
    try:
        recipe = build(config["recipe"])
        model_card(recipe, config["facts"])
        return recipe, config["vocabulary"], config["facts"]
    except InputError as error:
        raise InputError(f"{folder}: config.json holds settings that this release does not know: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{folder}: config.json is damaged: {type(error).__name__}: {error}") from None


def _shortlist(path: Path, source: int, target: int) -> Shortlist:
    tensors = read_tensors(path)
    if tensors.keys() == {"common", "likely"}:
        shortlist = Shortlist(tensors["common"].numpy(), tensors["likely"].numpy())
        if shortlist.fits(source, target):
            return shortlist
    raise InputError(f"{path}: damaged, it does not fit the vocabularies")


def _verify(folder: Path) -> list[str]:
    """Check every part against the manifest, and that no subword model lies there beside it."""
    if not (folder / manifest.NAME).is_file():
        training = " Training has not written a model yet." if (folder / "training").is_dir() else ""
        raise InputError(f"{folder}: not a model folder: {manifest.NAME} is missing.{training}")
    listed = manifest.verify(folder, ["config.json", "model.safetensors"])
    for part in sorted(SUBWORDS - set(listed)):
        if (folder / part).exists():
            raise InputError(f"{folder}: {part} is not listed in {manifest.NAME}; remove it, or copy the whole folder again")
    return listed
