"""`import_model`: whatever a path holds, as a model folder of ours, compared with its own runtime where that is installed."""

from __future__ import annotations

import dataclasses
import lzma
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from undivided.artifact import Artifact, SingleStackArtifact, save_artifact
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.interop.fairseq_in import import_fairseq, is_fairseq
from undivided.interop.foreign import Imported, plain_file, read_object
from undivided.interop.hub import fetched_model, is_hub_name, note_origin
from undivided.interop.marian_bin import is_bin
from undivided.interop.marian_npz import find_models, import_npz
from undivided.interop.parity import compare_logits, transformers_runtime
from undivided.interop.relatives_in import KINDS as RELATIVES
from undivided.interop.relatives_in import import_relative

BROKEN = (
    ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, RuntimeError, TypeError, ValueError,
    lzma.LZMAError, struct.error, zlib.error,
)  # fmt: skip
"""What reading a file that is not as it should be may raise beside an error of ours, which names the file and the fault."""


def import_model(
    path: str | Path, out: str | Path, console: Console, license: str = "", target_lang: str = ""
) -> Artifact | SingleStackArtifact:
    """Import a model into a new folder; nothing is written unless all of it was read and compared."""
    target = Path(out)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target}: exists already; choose a new folder")
    with _located(str(path)) as (source, commit), _one_line(source):
        artifact, notes = _read(source, license, target_lang)
    if commit:
        note_origin(artifact.facts, str(path), commit)
    for note in notes:
        console.say(note)
    console.say(describe_parity(artifact.facts["parity"]))
    save_artifact(artifact, target)
    return artifact


@contextmanager
def _located(path: str) -> Iterator[tuple[Path, str]]:
    """Within, where a model is, and of one on a hub, which is fetched, the commit."""
    if not is_hub_name(path):
        yield Path(path), ""
        return
    with fetched_model(path) as found:
        yield found


def _read(source: Path, license: str, target_lang: str) -> tuple[Artifact | SingleStackArtifact, list[str]]:
    """The model of a path, and what is to be said of it."""
    if (source / "config.json").is_file() and read_object(plain_file(source, "config.json")).get("model_type") in RELATIVES:
        return import_relative(source, license), []
    found = read_model(source, license)
    notes = [*found.notes, *_choose_language(found, target_lang)]
    found.facts["parity"] = _compare(found)
    return Artifact(found.recipe, found.tokenizer, found.model, found.facts), notes


@contextmanager
def _one_line(source: Path) -> Iterator[None]:
    """Within, whatever a damaged or hostile file makes our readers stumble over is an error of one line."""
    try:
        yield
    except BROKEN as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise InputError(f"{source}: damaged, or of another form than expected: {said}") from None


def read_model(source: Path, license: str = "") -> Imported:
    """Read a foreign model, of whatever format it is."""
    if not source.exists():
        raise InputError(f"{source}: no such file or folder")
    if source.is_file() and (source.suffix == ".npz" or (source.suffix == ".bin" and is_bin(source))):
        source = source.parent
    if source.is_file():
        if zipfile.is_zipfile(source) and source.suffix in (".argosmodel", ".zip"):
            from undivided.interop.argos import import_argos

            return import_argos(source, license)
        raise InputError(
            f"{source}: expected a folder of Marian, CTranslate2, GPT-2, BERT or ViT, or an .argosmodel, .npz or .bin file"
        )
    if (source / "model.bin").exists() and not is_bin(source / "model.bin"):
        from undivided.interop.ctranslate2_in import import_ctranslate2

        return import_ctranslate2(source, license)
    if not (source / "config.json").exists() and find_models(source):
        return import_npz(source, license)
    if not (source / "config.json").exists() and is_fairseq(source):
        return import_fairseq(source, license)
    if not (source / "config.json").exists() and any(source.glob("*.pt")):
        from undivided.interop.opennmt_in import import_opennmt

        return import_opennmt(source, license)
    if read_object(plain_file(source, "config.json")).get("format") == "undivided":
        raise InputError(f"{source}: a model folder of undivided already; use it as it is")
    from undivided.interop.marian_in import import_marian

    return import_marian(source, license)


def _choose_language(found: Imported, code: str) -> list[str]:
    """Of a model for several target languages, take the one that is meant; say so where none is."""
    languages = found.tokenizer.source.languages
    if code:
        found.tokenizer.source.choose_language(code)
        data = dataclasses.replace(found.recipe.data, language_code=code, target_lang=code)
        found.recipe = dataclasses.replace(found.recipe, data=data)
    elif languages:
        some = ", ".join(languages[:10]) + (" …" if len(languages) > 10 else "")
        return [f"it translates into several languages ({some}): import it with --target-lang CODE, or begin texts with >>CODE<<"]
    return []


def _compare(found: Imported) -> dict[str, Any]:
    """How far our model is from the foreign runtime."""
    if isinstance(found.runtime, dict):
        return found.runtime
    runtime = None if found.runtime is None else transformers_runtime(*found.runtime)
    if runtime is None:
        return {"runtime": "none", "reason": "transformers is not installed"}
    return compare_logits(found.model, found.vocabularies, runtime, "transformers")


def describe_parity(record: dict[str, Any]) -> str:
    """The comparison in one line."""
    if record["runtime"] == "none":
        return f"not compared with its own runtime: {record['reason']}"
    if "mean_difference" in record:
        return f"compared with {record['runtime']}: log-probabilities differ by {record['mean_difference']:.4f} on average"
    if "largest_score_difference" in record:
        return (
            f"compared with {record['runtime']} on {record['sentences']} sentences: "
            f"log-probabilities differ by at most {record['largest_score_difference']:.2g}"
        )
    return (
        f"compared with {record['runtime']} on {record['sentences']} sentences: "
        f"logits differ by at most {record['largest_logit_difference']:.2g}"
    )
