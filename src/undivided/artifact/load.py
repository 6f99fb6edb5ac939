"""Read a model folder: every part is checked against the manifest, and what is missing or damaged is named.

Importing this must not import torch, which takes longer than a short translation by CTranslate2.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, TypeVar

import safetensors.numpy
from safetensors import SafetensorError

from undivided.artifact.card import model_card
from undivided.artifact.contents import Artifact, LazyArtifact, SingleStackArtifact
from undivided.artifact.demand import BATCH_ROWS, check_demand
from undivided.artifact.save import DRAFT, FORMAT_VERSION, SHORTLIST
from undivided.artifact.unfinished import Unfinished, find_unfinished
from undivided.config import ModelConfig, Recipe, SearchConfig, build_recipe
from undivided.config.model import DECODER_ONLY, DRAWING, ENCODER_ONLY, PAIRED, VISION
from undivided.core import manifest
from undivided.core.console import Console, LoggingConsole
from undivided.core.errors import InputError
from undivided.core.files import check_folder_name, read_json, sha256_of
from undivided.data.shortlist import Shortlist
from undivided.data.subwords import Tokenizer

if TYPE_CHECKING:
    import torch
    from torch import nn

    from undivided.models import DraftDecoder, Seq2Seq

Model = TypeVar("Model", bound="nn.Module")
UNFINISHED = "checkpoint_step"
"""The fact that says which checkpoint serves as the model of a training that has not written one yet."""
SUBWORDS = {"subwords.model", "subwords.json", "source.model", "target.model"}


def load_artifact(folder: str | Path, device: torch.device | None = None) -> Artifact:
    """Read the model folder of a translator."""
    found = load_any(folder, device)
    return found if isinstance(found, Artifact) else _refuse_translation(folder, found.recipe.model.kind)


def open_artifact(folder: str | Path, device: str = "auto", threads: int = 0) -> LazyArtifact:
    """Read and check the model folder of a translator, but for its weights, which are read when they are first needed."""
    contents = _read_contents(folder)

    def choose() -> torch.device:
        from undivided.nn.device import choose_device, use_threads

        use_threads(threads)
        return choose_device(device)

    return _lazy_translator(contents, choose) or _refuse_translation(folder, contents.recipe.model.kind)


def open_single_stack(
    model: str | Path | SingleStackArtifact, device: str, threads: int, trust: bool = False
) -> tuple[SingleStackArtifact, torch.device]:
    """A single-stack model ready for use, from its folder or as given, and where it computes."""
    if isinstance(model, SingleStackArtifact):
        return model, next(model.model.parameters()).device
    from undivided.nn.device import choose_device, use_threads

    use_threads(threads)
    chosen = choose_device(device)
    found = load_single_stack(model, chosen, trust)
    warn_unfinished(model, found.facts, LoggingConsole())
    return found, chosen


def load_single_stack(folder: str | Path, device: torch.device | None = None, trust: bool = True) -> SingleStackArtifact:
    """Read the model folder of a single-stack model; without `trust`, what it asks for is checked before its weights are read."""
    contents = _read_contents(folder)
    if contents.recipe.model.kind in PAIRED:
        raise InputError(f"{folder}: a translator ({contents.recipe.model.kind}). Use it with: undivided translate")
    if not trust:
        # Texts and images are classified in batches whatever anybody asks for.
        sentences = BATCH_ROWS if contents.recipe.model.kind in ENCODER_ONLY + VISION else 1
        check_demand(folder, contents.recipe, max(contents.sizes, default=0), SearchConfig(beam_size=1, max_extra=1), sentences)
    return _single_stack(contents, device)


def load_any(folder: str | Path, device: torch.device | None = None) -> Artifact | SingleStackArtifact:
    """Read a model folder, whatever is in it."""
    contents = _read_contents(folder)
    translator = _lazy_translator(contents, lambda: device)
    if translator is None:
        return _single_stack(contents, device)
    own = translator.tokenizer, translator.model, contents.facts, contents.shortlist, contents.seal
    return Artifact(contents.recipe, *own, draft=translator.draft)


def model_kind(folder: str | Path) -> str:
    """The kind of model that a folder holds."""
    if not Path(folder).is_dir():
        raise InputError(f"{folder}: no such model folder")
    unfinished = find_unfinished(Path(folder))
    recipe = build_recipe(unfinished.recipe) if unfinished else _read_config(manifest.current_folder(Path(folder)))[0]
    return recipe.model.kind


def warn_unfinished(folder: str | Path | None, facts: dict[str, Any], console: Console) -> None:
    """Say so where the last checkpoint of a training serves as its model."""
    if isinstance(facts.get(UNFINISHED), int):
        step = f"step {facts[UNFINISHED]:,}"
        console.warn(f"{folder}: this training has not written a model yet; its last checkpoint, {step}, is used")


def command_for(kind: str) -> str:
    """The command that uses a kind of model."""
    return "translate" if kind in PAIRED else "generate" if kind in DECODER_ONLY + DRAWING else "classify"


def _refuse_translation(folder: str | Path, kind: str) -> NoReturn:
    raise InputError(f"{folder}: a {kind} model; it does not translate. Use it with: undivided {command_for(kind)}")


class _Contents(NamedTuple):
    """What a model folder holds beside weights."""

    folder: Path
    seal: str
    recipe: Recipe
    tokenizer: Tokenizer | None
    facts: dict[str, Any]
    shortlist: Shortlist | None
    checkpoint: Path | None = None
    """Where the weights are of a training that has not written a model yet."""
    has_draft: bool = False
    """Whether there is a draft decoder."""

    @property
    def sizes(self) -> list[int]:
        """Of the vocabularies."""
        return [] if self.tokenizer is None else [len(self.tokenizer.source), len(self.tokenizer.target)]

    def unchanged_folder(self) -> Path:
        """Where the model is that was opened; an error if another one has taken its place."""
        folder = self.checkpoint or manifest.current_folder(self.folder)
        if _seal(folder) != self.seal:
            raise InputError(f"{self.folder}: the model changed while it was in use; run the command again")
        return folder


def _seal(folder: Path) -> str:
    return sha256_of(folder / manifest.NAME) if (folder / manifest.NAME).is_file() else ""


def _read_contents(folder: str | Path) -> _Contents:
    """Check every part, and read all but the weights."""
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such model folder")
    check_folder_name(folder)
    if unfinished := find_unfinished(folder):
        return _read_unfinished(folder, unfinished)
    current = manifest.current_folder(folder)
    seal = _seal(current)
    parts = _verify(current)
    recipe, vocabulary, facts = _read_config(current)
    tokenizer = None if recipe.model.kind == "vision" else Tokenizer.load(current, recipe.data.language_code)
    if tokenizer is not None and recipe.model.kind in PAIRED and tokenizer.source.suffix != ".model":
        raise InputError(f"{folder}: a translator ({recipe.model.kind}) cannot split text by subwords.json")
    contents = _Contents(folder, seal, recipe, tokenizer, facts, None)
    if contents.sizes != vocabulary:
        raise InputError(f"{folder}: the subword models have {contents.sizes} tokens, but config.json says {vocabulary}")
    if recipe.model.kind in PAIRED and SHORTLIST in parts:
        contents = contents._replace(shortlist=read_shortlist(current / SHORTLIST, *contents.sizes))
    if DRAFT in parts:
        if faults := recipe.model.draft_faults():
            raise InputError(f"{folder}: {DRAFT} cannot be of this model: {'; '.join(faults)}")
        contents = contents._replace(has_draft=True)
    contents.unchanged_folder()
    return contents


def _read_unfinished(folder: Path, found: Unfinished) -> _Contents:
    """A stopped training as a model: every sentence by itself, since its lines are measured when a model is written."""
    recipe = build_recipe(found.recipe)
    tokenizer = None if recipe.model.kind == "vision" else Tokenizer.load(found.subwords, recipe.data.language_code)
    facts = {UNFINISHED: found.step, "weights": f"checkpoint of step {found.step:,}", "usual_sentences": 1}
    return _Contents(folder, _seal(found.checkpoint), recipe, tokenizer, facts, None, found.checkpoint)


def _lazy_translator(contents: _Contents, device: Callable[[], torch.device | None]) -> LazyArtifact | None:
    """The translator that a folder holds; None where it holds something else."""
    recipe = contents.recipe
    if recipe.model.kind not in PAIRED or contents.tokenizer is None:
        return None

    def read() -> Seq2Seq:
        from undivided.artifact.weights import WEIGHTS, check_computes
        from undivided.models import make_model

        model = _read_model(contents, recipe.model, lambda: make_model(recipe.model, *contents.sizes), device(), WEIGHTS)
        check_computes(model, contents.folder / WEIGHTS)
        return model

    def read_draft() -> DraftDecoder:
        from undivided.models import DraftDecoder

        # A draft decoder has as many layers as a model with one of each.
        config = dataclasses.replace(recipe.model, encoder_layers=1, decoder_layers=1)
        return _read_model(contents, config, lambda: DraftDecoder(config), device(), DRAFT)

    own = contents.tokenizer, read, contents.facts, contents.shortlist, contents.seal
    return LazyArtifact(recipe, *own, read_draft if contents.has_draft else None)


def _single_stack(contents: _Contents, device: torch.device | None) -> SingleStackArtifact:
    """The single-stack model that a folder holds."""
    from undivided.artifact.weights import WEIGHTS
    from undivided.models import make_single_stack

    recipe = contents.recipe
    vocabulary, classes = contents.sizes[0] if contents.sizes else 0, len(recipe.data.classes)
    model = _read_model(contents, recipe.model, lambda: make_single_stack(recipe.model, vocabulary, classes), device, WEIGHTS)
    return SingleStackArtifact(recipe, contents.tokenizer, model, contents.facts)


AVERAGED = "ema.safetensors"
"""The running average of the weights, in a checkpoint."""


def _read_model(
    contents: _Contents, config: ModelConfig, make: Callable[[], Model], device: torch.device | None, part: str
) -> Model:
    """Read weights whose folder was read before."""
    from undivided.artifact.weights import WEIGHTS, build_model

    folder = contents.unchanged_folder()
    if part == WEIGHTS and contents.checkpoint is not None and (folder / AVERAGED).is_file():
        # A training that keeps a running average is measured with that, and ends with it.
        part = AVERAGED
    model = build_model(config, make, folder / part, device)
    # They may be read long after the folder was checked. What was damaged before they were read is damaged still.
    manifest.verify_part(folder, part)
    contents.unchanged_folder()
    return model


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


def read_shortlist(path: Path, source: int, target: int) -> Shortlist:
    """The shortlist that a file holds, for vocabularies of these sizes."""
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
    """Check every part against the manifest, and that there is no subword model that it does not list."""
    if not (folder / manifest.NAME).is_file():
        is_begun = (folder / "training").is_dir() and not (folder / "config.json").exists()
        training = " Training has not written a model yet." if is_begun else ""
        raise InputError(f"{folder}: not a model folder: {manifest.NAME} is missing.{training}")
    listed = manifest.verify(folder, ["config.json", "model.safetensors"])
    for part in sorted(SUBWORDS - set(listed)):
        if (folder / part).exists():
            raise InputError(f"{folder}: {part} is not listed in {manifest.NAME}; remove it, or copy the whole folder again")
    return listed
