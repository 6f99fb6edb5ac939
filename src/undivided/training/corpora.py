"""Documents to train from → two text files in the run's folder: the one seam between training and `formats`."""

from __future__ import annotations

import dataclasses
import hashlib
import re
from pathlib import Path

from undivided.config import CorpusFiles, Recipe, build_recipe
from undivided.config.settings import Values, as_values, merge
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.core.files import open_atomic, sha256_of
from undivided.formats.contract import DocumentOptions
from undivided.formats.datasets import is_dataset
from undivided.formats.pairs import DocumentPairs, document_files, read_document_pairs


def corpora_folder(out: str) -> Path:
    """Where a run keeps the text of its documents."""
    return Path(out) / "training" / "corpora"


def with_text_corpora(values: Values, folder: Path, console: Console) -> Values:
    """Settings whose corpora are text: documents are converted into this folder, each once.

    The names of the text files are made of the content of the documents: where that changes, a run in the folder is refused as with
    any other change of its data. Languages that no setting names are taken from the documents.
    """
    draft = build_recipe(values)
    named = {"train": draft.data.train, "valid": draft.data.valid, "old_train": draft.data.old_train}
    if not any(files.is_document for corpora in named.values() for files in corpora):
        return values
    source_lang, target_lang = draft.data.source_lang, draft.data.target_lang
    parts: dict[str, list[Values]] = {}
    for part, corpora in named.items():
        parts[part] = []
        for files in corpora:
            if files.is_document:
                found = read_document_pairs(files.source, files.target, DocumentOptions(source_lang, target_lang))
                source_lang, target_lang = source_lang or found.source_lang, target_lang or found.target_lang
                files = _convert(files, found, folder, draft, console)
            parts[part].append(as_values(files))
    return merge(values, {"data": {**parts, "source_lang": source_lang, "target_lang": target_lang}})


def _convert(files: CorpusFiles, found: DocumentPairs, folder: Path, draft: Recipe, console: Console) -> CorpusFiles:
    names = [sha256_of(path) for path in document_files(files.source, files.target)]
    digest = hashlib.sha256(
        " ".join([*names, *([] if names else [files.source]), found.source_lang, found.target_lang]).encode()
    ).hexdigest()[:16]
    name = re.sub(r"[^\w. -]", "_", Path(files.source).name) if is_dataset(files.source) else Path(files.source).name
    stem = f"{name or 'folder'}.{digest}"
    source, target = folder / f"{stem}.source", folder / f"{stem}.target"
    if not (source.exists() and target.exists()):
        folder.mkdir(parents=True, exist_ok=True)
        count = 0
        with open_atomic(source) as ours, open_atomic(target) as theirs:
            for one, two in found.pairs:
                ours.write(one.encode("utf-8", "replace") + b"\n")
                theirs.write(two.encode("utf-8", "replace") + b"\n")
                count += 1
            if not count:
                raise InputError(f"{files.source}: holds no translated texts to train from")
        way = f" ({found.source_lang or '?'} → {found.target_lang or '?'})" if found.source_lang or found.target_lang else ""
        console.say(f"{files.source}: {plural(count, 'pair')}{way}")
    return dataclasses.replace(files, source=str(source), target=str(target))
