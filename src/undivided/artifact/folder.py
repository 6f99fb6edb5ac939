"""The model folder: the only thing that leaves training. Self-contained, free of pickle, with a digest of each part.

Importing this must not import torch, which takes longer than a short translation by CTranslate2.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import safetensors.numpy
from safetensors import SafetensorError

from undivided import __version__
from undivided.artifact.card import model_card
from undivided.config import Recipe, build_recipe
from undivided.config.model import DECODER_ONLY, DRAWING, PAIRED
from undivided.config.settings import as_values
from undivided.core import manifest
from undivided.core.errors import InputError
from undivided.core.files import fsync, open_atomic, read_json, sha256_of
from undivided.core.manifest import INCOMING
from undivided.data.shortlist import Shortlist
from undivided.data.subwords import Tokenizer

if TYPE_CHECKING:
    import torch

    from undivided.models import Relative, Seq2Seq

FORMAT_VERSION = 1
SHORTLIST = "shortlist.safetensors"
SUBWORDS = {"subwords.model", "source.model", "target.model"}


@dataclass(eq=False)
class Artifact:
    """A trained model with all that it needs to turn text into text."""

    recipe: Recipe
    tokenizer: Tokenizer
    model: Seq2Seq = field(repr=False)
    facts: dict[str, Any] = field(default_factory=dict)
    """What was measured: scores with signatures, digests of the data, cost of training."""
    shortlist: Shortlist | None = None
    """Which target subwords the source's may become; older model folders have none."""
    seal: str = ""
    """Digest of the manifest of the folder that it was read from."""

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return next(self.model.parameters()).device


class UnreadArtifact(Artifact):
    """A trained model whose weights are read when they are first needed: CTranslate2 has its own."""

    def __init__(
        self,
        recipe: Recipe,
        tokenizer: Tokenizer,
        read: Callable[[], Seq2Seq],
        facts: dict[str, Any],
        shortlist: Shortlist | None,
        seal: str,
    ) -> None:
        self.recipe, self.tokenizer, self.facts, self.shortlist, self.seal = recipe, tokenizer, facts, shortlist, seal
        self._read, self._lock = read, threading.Lock()
        self._model: Seq2Seq | None = None

    @property
    def model(self) -> Seq2Seq:  # type: ignore[override]
        """Read now, by whoever asks first."""
        with self._lock:
            if self._model is None:
                self._model = self._read()
            return self._model


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


def save(artifact: Artifact | RelativeArtifact, folder: Path) -> None:
    """Write the model folder so that at every moment a whole one is there, the old or the new."""
    import torch

    from undivided.artifact.weights import weights, write_tensors

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
        fsync(part)
    fsync(building)
    building.rename(folder / INCOMING)
    fsync(folder)
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
        with part.open("rb") as source, open_atomic(folder / part.name) as target:
            shutil.copyfileobj(source, target)
    # Renamed before it is removed: half of a folder must not be taken for the model.
    incoming.rename(folder / f"{INCOMING}.settled")
    shutil.rmtree(folder / f"{INCOMING}.settled", ignore_errors=True)


def load(folder: str | Path, device: torch.device | None = None) -> Artifact:
    """Read the model folder of a translator; a part that is missing or damaged is named."""
    found = load_any(folder, device)
    return found if isinstance(found, Artifact) else _no_translator(folder, found.recipe.model.kind)


def opened(folder: str | Path, device: str = "auto", threads: int = 0) -> UnreadArtifact:
    """The model folder of a translator, checked, but for its weights, which are read when they are first needed."""
    holds = _held(folder)

    def chosen() -> torch.device:
        from undivided.nn.device import choose_device, use_threads

        use_threads(threads)
        return choose_device(device)

    return _translator(holds, chosen) or _no_translator(folder, holds.recipe.model.kind)


def _no_translator(folder: str | Path, kind: str) -> NoReturn:
    raise InputError(f"{folder}: a {kind} model; it does not translate. Use it with: undivided {verb_of(kind)}")


def open_relative(model: str | Path | RelativeArtifact, device: str, threads: int) -> tuple[RelativeArtifact, torch.device]:
    """A relative ready for use, from its folder or as given, and where it computes."""
    if isinstance(model, RelativeArtifact):
        return model, next(model.model.parameters()).device
    from undivided.nn.device import choose_device, use_threads

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
    return _read_config(manifest.current_folder(Path(folder)))[0].model.kind


def verb_of(kind: str) -> str:
    """The command that uses a kind of model."""
    return "translate" if kind in PAIRED else "generate" if kind in DECODER_ONLY + DRAWING else "classify"


def load_any(folder: str | Path, device: torch.device | None = None) -> Artifact | RelativeArtifact:
    """Read a model folder, whatever is in it."""
    holds = _held(folder)
    translator = _translator(holds, lambda: device)
    if translator is None:
        return _relative(holds, device)
    return Artifact(holds.recipe, translator.tokenizer, translator.model, holds.facts, holds.shortlist, holds.seal)


class _Held(NamedTuple):
    """What a model folder holds beside weights."""

    folder: Path
    seal: str
    recipe: Recipe
    tokenizer: Tokenizer | None
    facts: dict[str, Any]
    shortlist: Shortlist | None

    @property
    def sizes(self) -> list[int]:
        """Of the vocabularies."""
        return [] if self.tokenizer is None else [len(self.tokenizer.source), len(self.tokenizer.target)]

    def whole(self) -> Path:
        """Where the very model lies that was opened; an error if another one has taken its place."""
        whole = manifest.current_folder(self.folder)
        if _seal(whole) != self.seal:
            raise InputError(f"{self.folder}: the model changed while it was used; begin anew")
        return whole


def _seal(whole: Path) -> str:
    return sha256_of(whole / manifest.NAME) if (whole / manifest.NAME).is_file() else ""


def _held(folder: str | Path) -> _Held:
    """Every part is checked, and what is no weight is read."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    whole = manifest.current_folder(folder)
    seal = _seal(whole)
    parts = _verify(whole)
    recipe, vocabulary, facts = _read_config(whole)
    tokenizer = None if recipe.model.kind == "vision" else Tokenizer.load(whole)
    holds = _Held(folder, seal, recipe, tokenizer, facts, None)
    if holds.sizes != vocabulary:
        raise InputError(f"{folder}: the subword models have {holds.sizes} tokens, but config.json says {vocabulary}")
    if recipe.model.kind in PAIRED and SHORTLIST in parts:
        holds = holds._replace(shortlist=_shortlist(whole / SHORTLIST, *holds.sizes))
    holds.whole()
    return holds


def _translator(holds: _Held, device: Callable[[], torch.device | None]) -> UnreadArtifact | None:
    """The translator that a folder holds, if it does."""
    recipe = holds.recipe
    if recipe.model.kind not in PAIRED or holds.tokenizer is None:
        return None

    def read() -> Seq2Seq:
        from undivided.artifact.weights import filled
        from undivided.models import make_model

        model = filled(recipe.model, lambda: make_model(recipe.model, *holds.sizes), holds.whole(), device())
        holds.whole()
        return model

    return UnreadArtifact(recipe, holds.tokenizer, read, holds.facts, holds.shortlist, holds.seal)


def _relative(holds: _Held, device: torch.device | None) -> RelativeArtifact:
    """The relative of the Transformer that a folder holds."""
    from undivided.artifact.weights import filled
    from undivided.models import make_relative

    recipe = holds.recipe
    first, classes = holds.sizes[0] if holds.sizes else 0, len(recipe.data.classes)
    model = filled(recipe.model, lambda: make_relative(recipe.model, first, classes), holds.whole(), device)
    holds.whole()
    return RelativeArtifact(recipe, holds.tokenizer, model, holds.facts)


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
        recipe = build_recipe(config["recipe"])
        model_card(recipe, config["facts"])
        return recipe, config["vocabulary"], config["facts"]
    except InputError as error:
        raise InputError(f"{folder}: config.json holds settings that this release does not know: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise InputError(f"{folder}: config.json is damaged: {type(error).__name__}: {error}") from None


def _shortlist(path: Path, source: int, target: int) -> Shortlist:
    try:
        tensors = safetensors.numpy.load_file(path)
    except (SafetensorError, OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as safetensors: {error}") from None
    if tensors.keys() == {"common", "likely"}:
        shortlist = Shortlist(tensors["common"], tensors["likely"])
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
