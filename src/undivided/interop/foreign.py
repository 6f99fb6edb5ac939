"""What every import gives: a model of ours with the words and weights of another, and where it came from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from torch import Tensor

from undivided.artifact.weights import check_finite, check_weights_fit, fill_weights, read_tensors
from undivided.config import Recipe
from undivided.core.errors import InputError
from undivided.core.files import parse_json, read_bounded, sha256_of
from undivided.data.subwords import MAX_MODEL_BYTES, Tokenizer
from undivided.interop.torch_file import read_torch_file
from undivided.interop.vocabulary import Vocabulary
from undivided.models import Seq2Seq, make_model

Tensors = dict[str, Tensor]
MAX_CARD_BYTES = 1 << 20


@dataclass
class Imported:
    """A foreign model under our names, before it is saved."""

    recipe: Recipe
    tokenizer: Tokenizer
    model: Seq2Seq
    vocabularies: tuple[Vocabulary, Vocabulary]
    facts: dict[str, Any]
    runtime: Any = None
    """What the foreign runtime needs to run the same weights, for the comparison."""
    notes: list[str] = field(default_factory=list)


class Reasons:
    """Collects why a model cannot be expressed, so that all are said at once."""

    def __init__(self, what: str) -> None:
        self.what, self.found = what, list[str]()

    def check(self, fine: bool, reason: str) -> None:
        """Note a reason unless all is fine."""
        if not fine:
            self.found.append(reason)

    def refuse(self) -> None:
        """Raise an error with every reason, if there is any."""
        if self.found:
            raise InputError(f"{self.what}: {'; '.join(self.found)}")


def plain_file(folder: Path, name: str) -> Path:
    """A file directly in a folder; links are refused, for they may lead anywhere."""
    path = folder / name
    if Path(name).name != name or "\\" in name:
        raise InputError(f"{folder}: {name!r} is not directly in the folder")
    if path.is_symlink():
        raise InputError(f"{path}: is a link, which may lead out of the folder; copy the folder with its files (cp -rL)")
    if not path.is_file():
        raise InputError(f"{path}: missing; the folder is incomplete")
    return path


def read_foreign_json(path: Path) -> Any:
    """What a JSON file of a foreign folder holds."""
    try:
        return parse_json(read_bounded(path, MAX_MODEL_BYTES))
    except (ValueError, OSError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as JSON: {error}") from None


def read_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file of a foreign folder holds."""
    value = read_foreign_json(path)
    if not isinstance(value, dict):
        raise InputError(f"{path}: damaged, it holds no JSON object")
    return value


def read_foreign_weights(folder: Path) -> tuple[Tensors, str]:
    """The tensors of a folder in float32, and the name of their file; safetensors before PyTorch's own format."""
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (folder / name).exists() or (folder / name).is_symlink():
            path = plain_file(folder, name)
            tensors = read_tensors(path) if name.endswith("safetensors") else read_torch_file(path)
            return {key: value.float() if value.is_floating_point() else value for key, value in tensors.items()}, name
    raise InputError(f"{folder}: holds neither model.safetensors nor pytorch_model.bin")


def origin(source: Path, kind: str, files: Iterable[Path], license: str) -> dict[str, Any]:
    """Where a model came from, for its card."""
    return {
        "origin": {"name": source.resolve().name, "format": kind, "sha256": {path.name: sha256_of(path) for path in files}},
        "license": license or read_license(source),
    }


def read_license(folder: Path) -> str:
    """The licence that the card of a foreign folder names; empty where it names none."""
    path = folder / "README.md"
    if not path.is_file() or path.is_symlink():
        return ""
    try:
        text = read_bounded(path, MAX_CARD_BYTES).decode("utf-8", "replace")
        found = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
        card = yaml.safe_load(found[1]) if found else None
        named = card.get("license") if isinstance(card, Mapping) else None
    except (yaml.YAMLError, InputError, ValueError, RecursionError):
        return ""
    # Only plain texts: a list of aliases of lists of aliases would fill the memory as a text.
    named = " ".join(each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str))
    return re.sub(r"[^\w.+ -]", "", named)[:100]


def build_imported(
    recipe: Recipe, tokenizer: Tokenizer, tensors: Tensors, vocabularies: tuple[Vocabulary, Vocabulary], where: Path
) -> Imported:
    """A model with given weights under our names; the shapes are checked before any memory is taken."""
    sizes = [len(each.pieces) for each in vocabularies]

    def make() -> Seq2Seq:
        return make_model(recipe.model, sizes[0], sizes[1])

    check_weights_fit(recipe.model, make, tensors, str(where))
    model = make()
    fill_weights(model, tensors, str(where))
    check_finite(model, where)
    model.eval()
    facts = {"parameters": sum(each.numel() for each in model.parameters()), "vocabulary": sizes[1]}
    return Imported(recipe, tokenizer, model, vocabularies, facts)
