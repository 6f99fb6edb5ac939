"""A faster student: translate the training text with the teacher's beam, and learn from that (Kim and Rush, 2016)."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path

from undivided.config import CorpusFiles, DataConfig, Recipe, build_recipe, preset_values
from undivided.config.settings import Values, as_values, merge
from undivided.core.console import Console, LoggingConsole, Progress, plural
from undivided.core.errors import InputError
from undivided.core.files import open_atomic, sha256_of, write_atomic
from undivided.data.corpus import CorpusReport, corpus_digests, corpus_name, hold_pairs, read_pairs
from undivided.data.text_files import BYTE_ORDER_MARK
from undivided.inference.score import bleu
from undivided.inference.search_settings import SearchChanges
from undivided.inference.translator import Translator
from undivided.training.corpora import corpora_folder, with_text_corpora
from undivided.training.loop import train
from undivided.training.synthetic import count_lines, translate_lines

WARM_UP = 8
"""Sentences that are translated before the time is taken."""


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
    if not 0 <= originals <= 100:
        raise InputError(f"--originals {originals:g}: how often each pair counts is between 0 and 100")
    recipe = check_corpora(values, console)
    taught = translate_corpora(translator, Path(teacher), recipe, console)
    if originals:
        taught += [dataclasses.replace(files, weight=files.weight * originals) for files in recipe.data.train]
    out = train(merge(values, {"data": {"train": [as_values(files) for files in taught]}}), console)
    compare(translator, out, console)
    return out


def compare(teacher: Translator, out: Path, console: Console) -> None:
    """Say how good and how fast a student is beside its teacher, on its validation data: each with its own search, once."""
    student = Translator(out, console=console)
    recipe = student.artifact.recipe
    pairs = [pair for files in recipe.data.valid for pair in hold_pairs(files, recipe.data)][: recipe.train.validate_lines]
    if not pairs:
        console.say("the student was not compared with its teacher: there is no validation data (--valid SOURCE TARGET)")
        return
    sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
    said, rates = [], []
    for name, model in (("the teacher", teacher), ("the student", student)):
        model.translate(sources[:WARM_UP])
        began = time.perf_counter()
        outputs = model.translate(sources)
        rates.append(len(sources) / (time.perf_counter() - began))
        beam = model.search_config().beam_size
        how = f"{model.engine.name}, {'greedy' if beam == 1 else f'beam {beam}'}"
        said.append(f"{name} ({how}) has BLEU {bleu(outputs, targets, recipe.data.target_lang).score:.2f} at {rates[-1]:,.1f}")
    console.say(
        f"on {plural(len(pairs), 'validation pair')} {' and '.join(said)} sentences/s, {rates[1] / rates[0]:.2f} times as fast"
    )


def distill_drafts(teacher: str | Path, values: Values, console: Console | None = None, trust: bool = False) -> Path:
    """Train a draft decoder for a model, on the model's greedy translations. Returns a model folder with both."""
    console = console or LoggingConsole()
    translator = Translator(teacher, console=console, trust=trust)
    given = [f"model.{name}" for name in values.get("model") or {} if name != "dropout"] + ["preset"] * bool(values.get("preset"))
    if given:
        raise InputError(f"--drafts: a draft decoder is shaped like the model's own layers; leave out {', '.join(given)}")
    if faults := translator.artifact.recipe.model.draft_faults():
        raise InputError(f"{teacher}: no draft decoder for this model: {'; '.join(faults)}")
    begin = {"start": str(teacher), "drafts": True, "label_smoothing": 0.0}
    inherited = inherit_settings(translator.artifact.recipe, all_sections=False)
    values = merge(merge(inherited, {"data": {"mix": 0.0, "old_train": []}, "search": {"draft": 0}, "train": begin}), values)
    taught = translate_corpora(translator, Path(teacher), check_corpora(values, console), console, greedy=True)
    out = train(merge(values, {"data": {"train": [as_values(files) for files in taught]}}), console)
    console.say(f"with its drafts: undivided translate {out} --beam 1 --draft 4")
    return out


def check_corpora(values: Values, console: Console) -> Recipe:
    """The recipe of a student, its corpora as text; an error where something is not named or not there."""
    recipe = build_recipe(values)
    if not recipe.train.out:
        raise InputError("where should the student go? Name a directory: --out DIR")
    if not recipe.data.train:
        raise InputError("what should the student learn from? Name the text that the teacher learned from: --train SOURCE TARGET")
    for files in [*recipe.data.train, *recipe.data.valid]:
        for path in filter(None, (files.source, files.target)):
            if not Path(path).exists():
                raise InputError(f"{path}: no such file; name the training text with --train and --valid")
    return build_recipe(with_text_corpora(values, corpora_folder(recipe.train.out), console))


def translate_corpora(
    translator: Translator, teacher: Path, recipe: Recipe, console: Console, greedy: bool = False
) -> list[CorpusFiles]:
    """The sources of all training corpora beside the teacher's translations of them."""
    folder = Path(recipe.train.out) / "distilled"
    return [
        translate_corpus(translator, teacher, files, recipe.data, folder / str(number), console, greedy)
        for number, files in enumerate(recipe.data.train)
    ]


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
    translator: Translator,
    teacher: Path,
    files: CorpusFiles,
    data: DataConfig,
    folder: Path,
    console: Console,
    greedy: bool = False,
) -> CorpusFiles:
    """The sources of a corpus beside the teacher's translations of them, by its own search or by greedy search."""
    folder.mkdir(parents=True, exist_ok=True)
    source, target = folder / "source.txt", folder / "target.txt"
    origin: Values = {"teacher": sha256_of(teacher / "manifest.json"), "corpus": corpus_digests([files])}
    search: SearchChanges = {"beam_size": 1, "n_best": 1, "sample": False, "consensus": 0} if greedy else {}
    if greedy:
        origin["search"] = dict(search)
    if _read_origin(folder) != origin:
        target.unlink(missing_ok=True)
        _write_sources(source, files, data)
        write_atomic(folder / "origin.json", json.dumps(origin))
    progress = Progress(console, "lines translated by the teacher", count_lines(source))
    translate_lines(translator, source, target, progress, lambda result: result.text or "-", _mark(data), **search)
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
