"""Models on a Hugging Face hub: push a model folder, pull one, fetch a foreign model to import. Extra: hub.

Only files with known names are ever fetched, none of which is a program; their digests are checked before anything is used.
"""

from __future__ import annotations

import importlib.util
import os
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from undivided.artifact import load_any
from undivided.artifact.card import model_card
from undivided.config import Recipe
from undivided.config.model import PAIRED
from undivided.core.console import Console, plural
from undivided.core.errors import InputError, UndividedError
from undivided.core.files import build_folder, sha256_of
from undivided.core.manifest import NAME as MANIFEST
from undivided.core.manifest import current_folder

CARD = "README.md"
OURS = (
    "config.json",
    "model.safetensors",
    "subwords.model",
    "subwords.json",
    "source.model",
    "target.model",
    "shortlist.safetensors",
    MANIFEST,
    CARD,
)
"""What a model folder may hold."""
FOREIGN = (
    "config.json", "generation_config.json", "tokenizer_config.json", "source.spm", "target.spm", "vocab.json", "target_vocab.json",
    "model.bin", "shared_vocabulary.json", "source_vocabulary.json", "target_vocabulary.json", "sentencepiece.model",
    "source.model", "target.model", "decoder.yml", "preprocessor_config.json", "spiece.model", "tokenizer.model", "tokenizer.json",
    "merges.txt", "vocab.txt", CARD,
)  # fmt: skip
"""What an import may read, beside the weights."""
MAX_BYTES = 16 << 30


def is_hub_name(name: str) -> bool:
    """Whether a name is that of a model on a hub, `owner/name` or `owner/name@revision`, and not of something here."""
    return bool(re.fullmatch(r"[\w-][\w.-]{0,95}/[\w-][\w.-]{0,95}(@[\w./-]{1,95})?", name)) and not Path(name).exists()


def push(model: str | Path, name: str, console: Console, license: str = "", private: bool = False) -> str:
    """Upload a model folder, its card with metadata; returns the address of the commit."""
    folder = current_folder(Path(model))
    artifact = load_any(model)
    license = license or str(artifact.facts.get("license") or "")
    if not license:
        raise InputError(f"{model}: under which licence is it published? Name it: --license NAME")
    parts = [part for part in OURS if (folder / part).is_file() and part != CARD]
    card = hub_card(artifact.recipe, artifact.facts, license, name)
    with _hub_errors(name):
        hub = _hub()
        from huggingface_hub import CommitOperationAdd

        hub.create_repo(name, private=private, exist_ok=True)
        files = [CommitOperationAdd(part, folder / part) for part in parts]
        card_file = CommitOperationAdd(CARD, card.encode("utf-8"))
        made = hub.create_commit(name, [*files, card_file], commit_message="A model of undivided")
    console.say(f"{model}: {plural(len(parts) + 1, 'file')} pushed to {name}")
    return str(made.commit_url)


def pull(name: str, out: str | Path, console: Console) -> None:
    """Download a model folder that was pushed; it appears when every digest is right."""
    target = Path(out)
    if target.exists():
        raise InputError(f"{target}: exists already; choose a new folder")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent}: no such folder")
    with build_folder(target) as building, tempfile.TemporaryDirectory(dir=target.parent, prefix=".pull-") as fetched:
        fetch(name, Path(fetched), OURS)
        if not (Path(fetched) / MANIFEST).is_file():
            raise InputError(
                f"{name}: no model folder of undivided: it has no {MANIFEST}. Another engine's model: undivided import"
            )
        for part in OURS:
            if (Path(fetched) / part).is_file():
                (Path(fetched) / part).rename(building / part)
        # Opened as any folder of a stranger: manifest, settings, shapes and weights are checked.
        load_any(building)
    console.say(f"{name} is in {target}")


@contextmanager
def fetched_model(name: str) -> Iterator[tuple[Path, str]]:
    """Within, the files of a foreign model in a folder of its own, and the commit that they are of."""
    with tempfile.TemporaryDirectory(prefix="undivided-hub-") as folder:
        place = Path(folder) / name.partition("@")[0].rpartition("/")[2]
        place.mkdir()
        yield place, fetch(name, place, FOREIGN)


def fetch(name: str, folder: Path, known: Collection[str]) -> str:
    """Download the known files of a model, and its weights, into a folder; returns the commit."""
    repository, _, revision = name.partition("@")
    with _hub_errors(name):
        hub = _hub()
        found = hub.model_info(repository, revision=revision or "main", files_metadata=True)
        there = {each.rfilename: each for each in found.siblings or []}
        wanted = _choose(there, known)
        if not wanted:
            raise InputError(f"{name}: has no files of a model that can be read here")
        size = sum(each.size or 0 for each in wanted)
        if size > MAX_BYTES:
            raise InputError(f"{name}: its files have {size:,} bytes, more than {MAX_BYTES:,}")
        for each in wanted:
            path = Path(hub.hf_hub_download(repository, each.rfilename, revision=found.sha, local_dir=folder))
            _check(path, each, name)
    return str(found.sha)


def _choose(there: dict[str, Any], known: Collection[str]) -> list[Any]:
    """The files to fetch: of several forms of the weights, the safest."""
    names = [name for name in known if name in there]
    if known is FOREIGN:
        weights = ["model.safetensors"] if "model.safetensors" in there else ["pytorch_model.bin"]
        vocabularies = [name for name in there if "/" not in name and _is_marian_part(name)]
        names += [name for name in [*weights, *vocabularies] if name in there and "model.bin" not in there]
    return [there[name] for name in dict.fromkeys(names)]


def _check(path: Path, told: Any, name: str) -> None:
    """Compare a file with what the hub says of it."""
    if path.is_symlink() or not path.is_file():
        raise InputError(f"{name}: {told.rfilename} did not arrive as a plain file")
    if told.size is not None and path.stat().st_size != told.size:
        raise InputError(f"{name}: {told.rfilename} has {path.stat().st_size:,} bytes, but the hub says {told.size:,}; try again")
    sha256 = None if told.lfs is None else told.lfs.sha256
    if sha256 is not None and sha256_of(path) != sha256:
        raise InputError(f"{name}: {told.rfilename} is damaged: its sha256 is not the one that the hub says; try again")


def _hub() -> Any:
    if importlib.util.find_spec("huggingface_hub") is None:
        raise InputError("models of a hub need the extra hub: pip install 'undivided[hub]'")
    from huggingface_hub import HfApi

    return HfApi(endpoint=os.environ.get("HF_ENDPOINT") or None, library_name="undivided")


@contextmanager
def _hub_errors(name: str) -> Iterator[None]:
    """Within, what goes wrong on the way to a hub becomes one line."""
    try:
        yield
    except UndividedError:
        raise
    except (OSError, ValueError, RuntimeError) as error:
        raise InputError(f"{name}: the hub could not do that: {' '.join(str(error).split())[:300]}") from None
    except Exception as error:  # Errors of its HTTP library, which has no common base with the rest.
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpcore", "httpx2", "huggingface_hub", "requests"):
            raise
        raise InputError(f"{name}: the hub cannot be reached: {' '.join(str(error).split())[:300]}") from None


def hub_card(recipe: Recipe, facts: dict[str, Any], license: str, name: str) -> str:
    """The card of a model folder behind the metadata that a hub reads."""
    translates = recipe.model.kind in PAIRED
    languages = [code for code in (recipe.data.source_lang, recipe.data.target_lang) if code]
    task = (
        "translation"
        if translates
        else {"decoder_only": "text-generation", "vision": "image-classification"}.get(recipe.model.kind)
    )
    metrics = [
        {"type": found.rpartition(" ")[2].lower(), "name": f"{found} {score['signature']}", "value": score["score"]}
        for found, score in facts.get("scores", {}).items()
    ]
    metadata: dict[str, Any] = {"license": license, "library_name": "undivided", "tags": ["undivided"]}
    metadata |= {"language": languages} if languages else {}
    metadata |= {"pipeline_tag": task} if task else {}
    if metrics and task:
        result = {"task": {"type": task}, "dataset": {"name": "held-out pairs", "type": "held-out"}, "metrics": metrics}
        metadata["model-index"] = [{"name": name.partition("@")[0].rpartition("/")[2], "results": [result]}]
    front = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True)
    use = f"```\nundivided pull {name} my-model\n```\n"
    return f"---\n{front}---\n\n{model_card(recipe, facts)}\n{use}"


def note_origin(facts: dict[str, Any], name: str, commit: str) -> None:
    """Say in the facts of an imported model that it came from a hub."""
    facts["origin"] |= {"name": name.partition("@")[0], "commit": commit}


def _is_marian_part(name: str) -> bool:
    """Whether a file is weights of Marian, or one of its vocabularies."""
    return name.endswith(".npz") or ("vocab" in name and name.endswith((".yml", ".spm")))
