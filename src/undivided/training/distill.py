"""A faster student: translate the training text with the teacher's beam, and learn from that (Kim and Rush, 2016)."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from undivided.config import CorpusFiles, DataConfig, Recipe, build_recipe, preset_values
from undivided.config.settings import Values, as_values, merge
from undivided.core.console import Console, LoggingConsole, Progress
from undivided.core.errors import InputError
from undivided.core.files import open_atomic, sha256_of, write_atomic
from undivided.data.corpus import CorpusReport, corpus_digests, corpus_name, read_pairs
from undivided.data.text_files import BYTE_ORDER_MARK
from undivided.inference.translator import Translator
from undivided.training.corpora import corpora_folder, with_text_corpora
from undivided.training.loop import train
from undivided.training.synthetic import count_lines, translate_lines


def distill(
    teacher: str | Path, values: Values, console: Console | None = None, originals: float = 0.0, trust: bool = False
) -> Path:
    """Train a student on the teacher's translations of the training text, or resume that. Returns the model folder.

    `originals` is how often an epoch holds each pair as people wrote it, beside the teacher's. `trust` as for a `Translator`.
    """
    console = console or LoggingConsole()
    translator = Translator(teacher, console=console, trust=trust)
    inherited = inherit_settings(translator.artifact.recipe, all_sections=not values.get("preset"))
    values = merge(merge(inherited, preset_values(values.get("preset", ""), values)), values)
    draft = build_recipe(values)
    if not 0 <= originals <= 100:
        raise InputError(f"--originals {originals:g}: how often each pair counts is between 0 and 100")
    if not draft.train.out:
        raise InputError("where should the student go? Name a directory: --out DIR")
    if not draft.data.train:
        raise InputError("what should the student learn from? Name the text that the teacher learned from: --train SOURCE TARGET")
    for files in [*draft.data.train, *draft.data.valid]:
        for path in filter(None, (files.source, files.target)):
            if not Path(path).exists():
                raise InputError(f"{path}: no such file; name the training text with --train and --valid")
    draft = build_recipe(with_text_corpora(values, corpora_folder(draft.train.out), console))
    folder = Path(draft.train.out) / "distilled"
    taught = [
        translate_corpus(translator, Path(teacher), files, draft.data, folder / str(number), console)
        for number, files in enumerate(draft.data.train)
    ]
    if originals:
        taught += [dataclasses.replace(files, weight=files.weight * originals) for files in draft.data.train]
    corpora = {"train": [as_values(files) for files in taught]}
    return train(merge(values, {"data": corpora}), console)


def inherit_settings(teacher: Recipe, all_sections: bool) -> Values:
    """The settings a student inherits by default: data and search; where no preset is named, all others too.

    Then it has one decoder layer, which makes translation fast, and a deeper encoder, which makes up for it.
    """
    values = as_values(teacher)
    if not all_sections:
        return {"data": values["data"], "search": values["search"]}
    depth = {"encoder_layers": teacher.model.encoder_layers + 2, "decoder_layers": 1}
    train = {"out": "", "start": "", "pull": 0.0, "ewc": 0.0}
    return merge(values, {"model": depth, "train": train, "data": {"mix": 0.0, "old_train": []}})


def translate_corpus(
    translator: Translator, teacher: Path, files: CorpusFiles, data: DataConfig, folder: Path, console: Console
) -> CorpusFiles:
    """The sources of a corpus beside the teacher's translations of them."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / "source.txt", folder / "target.txt"
    origin = {"teacher": sha256_of(teacher / "manifest.json"), "corpus": corpus_digests([files])}
    if _read_origin(folder) != origin:
        target.unlink(missing_ok=True)
        _write_sources(source, files, data)
        write_atomic(folder / "origin.json", json.dumps(origin))
    progress = Progress(console, "lines translated by the teacher", count_lines(source))
    translate_lines(translator, source, target, progress, lambda result: result.text or "-", _mark(data))
    return CorpusFiles(str(source), str(target), files.weight)


def _read_origin(folder: Path) -> Values:
    try:
        return dict(json.loads((folder / "origin.json").read_text()))
    except (OSError, ValueError):
        return {}


def _write_sources(path: Path, files: CorpusFiles, data: DataConfig) -> None:
    """The source side of the usable pairs, so that both sides have as many lines whatever was dropped."""
    with open_atomic(path) as out:
        out.write(_mark(data))
        for pair in read_pairs(files, data, CorpusReport(corpus_name(files))):
            out.write(f"{pair.source}\n".encode())


def _mark(data: DataConfig) -> bytes:
    """What the files begin with where others are not UTF-8: these are."""
    return BYTE_ORDER_MARK if data.encoding else b""
