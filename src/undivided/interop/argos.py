"""Argos packages (`.argosmodel`): a zip with a CTranslate2 model, a sentencepiece model and the names of the languages."""

from __future__ import annotations

import json
import re
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from undivided.artifact import Artifact
from undivided.core.errors import InputError
from undivided.core.files import open_atomic
from undivided.data.subwords import MAX_MODEL_BYTES
from undivided.interop.ctranslate2_in import MAX_BYTES, Package, import_package, parse_config, parse_vocabulary
from undivided.interop.ctranslate2_out import export_ctranslate2
from undivided.interop.foreign import Imported, Reasons, origin

MOST_COMPRESSED = 20
"""Weights hardly become smaller: an entry that grows more than this when it is unpacked is a trap."""


def import_argos(path: Path, license: str = "") -> Imported:
    """Read the translator of a package; its other files, such as a pickle for splitting sentences, are never opened."""
    try:
        with zipfile.ZipFile(path) as archive:
            package, text = _read(archive, path)
    except (zipfile.BadZipFile, OSError, RuntimeError, EOFError, NotImplementedError, ValueError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as a package: {error}") from None
    if not all(re.fullmatch(r"[\w-]{0,40}", language) for language in package.languages):
        raise InputError(f"{path}: metadata.json names languages that are no codes: {package.languages}")
    found = import_package(package)
    named = re.search(r"licensed (?:under )?([A-Z][\w.-]*(?: \d[\d.]*)?)", text)
    found.facts |= origin(path, "Argos package", [path], license or (named[1] if named else ""))
    return found


def _read(archive: zipfile.ZipFile, path: Path) -> tuple[Package, str]:
    names = archive.namelist()
    odd = [name for name in names if name.startswith(("/", "\\")) or ".." in re.split(r"[/\\]", name) or ":" in name]
    if odd:
        raise InputError(f"{path}: holds an entry outside of its folder: {odd[0]!r}")
    roots = {name.split("/")[0] for name in names}
    if len(roots) != 1:
        raise InputError(f"{path}: expected one folder in it, found {len(roots)}")
    root = roots.pop()

    def read(name: str, limit: int = MAX_MODEL_BYTES) -> bytes:
        try:
            entry = archive.getinfo(f"{root}/{name}")
        except KeyError:
            raise InputError(f"{path}: {name} is missing in it") from None
        if entry.file_size > min(limit, MOST_COMPRESSED * (entry.compress_size + 4096)):
            raise InputError(f"{path}: {name} claims {entry.file_size:,} bytes, more than is believable")
        return archive.read(entry)

    metadata = parse_config(read("metadata.json"), f"{path}: metadata.json")
    shared = f"{root}/model/shared_vocabulary.json" in names
    lists = ["shared_vocabulary.json"] if shared else ["source_vocabulary.json", "target_vocabulary.json"]
    package = Package(
        str(path), read("model/model.bin", MAX_BYTES), parse_config(read("model/config.json"), f"{path}: model/config.json"),
        [parse_vocabulary(read(f"model/{name}"), f"{path}: {name}") for name in lists], [read("sentencepiece.model")],
        (str(metadata.get("from_code", "")), str(metadata.get("to_code", ""))),
    )  # fmt: skip
    return package, read("README.md").decode("utf-8", "replace") if f"{root}/README.md" in names else ""


def export_argos(artifact: Artifact, path: Path, weights: str) -> dict[str, Any]:
    """Write a package that Argos Translate and LibreTranslate install."""
    data, reasons = artifact.recipe.data, Reasons("cannot be exported as an Argos package")
    reasons.check(path.suffix == ".argosmodel", f"{path.name} does not end with .argosmodel")
    reasons.check(bool(data.source_lang and data.target_lang), "the languages are not named (data.source_lang, data.target_lang)")
    plain = all(re.fullmatch(r"[\w-]{0,40}", language) for language in (data.source_lang, data.target_lang))
    reasons.check(plain, "its languages are no codes that may be part of a file's name")
    reasons.refuse()
    root = f"translate-{data.source_lang}_{data.target_lang}-1_0"
    metadata = {
        "package_version": "1.0", "argos_version": "1.9.0", "from_code": data.source_lang, "from_name": data.source_lang,
        "to_code": data.target_lang, "to_name": data.target_lang,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "model"
        folder.mkdir()
        record = export_ctranslate2(artifact, folder, weights)
        with open_atomic(path) as stream, zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{root}/metadata.json", json.dumps(metadata))
            archive.writestr(
                f"{root}/README.md", f"# {data.source_lang} → {data.target_lang}\n\n{artifact.facts.get('license', '')}\n"
            )
            archive.writestr(f"{root}/sentencepiece.model", artifact.tokenizer.source.model)
            for part in sorted(folder.iterdir()):
                if part.suffix in (".bin", ".json"):
                    archive.write(part, f"{root}/model/{part.name}")
    return record
