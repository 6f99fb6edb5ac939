"""What the data of a run holds: how much there is to learn from, and the settings that only the data can tell."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from undivided.config import CorpusFiles, Recipe
from undivided.config.model import DECODER_ONLY, DRAWING, ENCODER_ONLY, IMAGES, PAIRED
from undivided.config.settings import Values, list_faults
from undivided.core.console import Console, plural
from undivided.core.errors import InputError
from undivided.data.corpus import CorpusReport, check_corpora, corpus_name, read_pairs
from undivided.data.images import read_labelled_images


class Wanted(NamedTuple):
    """What a kind of model learns from."""

    data: str
    files: str
    example: str


class Survey(NamedTuple):
    """What was found in the data."""

    examples: int
    """Training examples that can be used."""
    settings: Values
    """Settings that only the data can tell: classes, size of images."""
    target_bytes: int = 0
    """Of the target sides of training pairs, in UTF-8."""


def wanted_data(kind: str) -> Wanted:
    """What a kind of model learns from, in words, as files, and one example of it."""
    if kind in IMAGES:
        return Wanted("images and what they show", "IMAGES LABELS", "image")
    if kind in PAIRED:
        return Wanted("parallel text", "SOURCE TARGET", "pair")
    return Wanted("text", "FILE", "line") if kind in DECODER_ONLY else Wanted("text, or text with labels", "FILE [LABELS]", "line")


def survey_data(draft: Recipe, console: Console) -> Survey:
    """Read all data of a recipe once and report what is in it."""
    corpora = [*draft.data.train, *draft.data.valid]
    if draft.model.kind in IMAGES:
        return _survey_images(draft, corpora, console)
    reports = check_corpora(corpora, draft.data)
    for report in reports:
        console.say(report.summary())
    of_training = reports[: len(draft.data.train)]
    count = sum(report.kept for report in of_training)
    if draft.model.kind not in ENCODER_ONLY or corpora[0].is_unpaired:
        return Survey(count, {}, sum(report.target_bytes for report in of_training))
    silent = CorpusReport("")
    labels = [[pair.target for pair in read_pairs(files, draft.data, silent)] for files in corpora]
    return Survey(count, {"data": {"classes": _classes(draft, labels, corpora)}})


def _survey_images(draft: Recipe, corpora: Sequence[CorpusFiles], console: Console) -> Survey:
    found = [read_labelled_images(files.source, files.target, draft.data.classes) for files in corpora]
    model, faults = draft.model, []
    channels, height, width = found[0][0].shape[1:]
    for files, (images, _) in zip(corpora, found, strict=True):
        console.say(f"{corpus_name(files)}: {plural(len(images), 'image')} of {images.shape[2]} × {images.shape[3]} pixels")
        if images.shape[1:] != (channels, model.image_height or height, model.image_width or width):
            wanted = f"{model.image_height or height} × {model.image_width or width} × {channels}"
            faults.append(f"{files.source}: images of {images.shape[2]} × {images.shape[3]} × {images.shape[1]}, not {wanted}")
    classes: list[str] = []
    try:
        classes = draft.data.classes if model.kind in DRAWING else _classes(draft, [names for _, names in found], corpora)
    except InputError as error:
        faults.append(str(error))
    for side, size in (("height", height), ("width", width)):
        if size % model.patch:
            faults.append(f"model.patch: patches of {model.patch} × {model.patch} do not divide a {side} of {size} pixels")
    if faults:
        raise InputError(list_faults("the data has", faults))
    shape = {"image_height": height, "image_width": width, "channels": channels}
    count = sum(len(images) for images, _ in found[: len(draft.data.train)])
    return Survey(count, {"model": shape, "data": {"classes": classes}})


def _classes(draft: Recipe, labels: Sequence[Sequence[str]], corpora: Sequence[CorpusFiles]) -> list[str]:
    """The classes by name: as listed, if labels and list agree, else as the training labels have them."""
    learned = {name for names in labels[: len(draft.data.train)] for name in names}
    classes = draft.data.classes or sorted(learned)
    faults = []
    for files, names in zip(corpora, labels, strict=True):
        unknown = sorted(set(names) - set(classes))
        if unknown:
            known = "data.classes" if draft.data.classes else "the training labels"
            faults.append(f"{files.target or files.source}: {_quote_some(unknown)} not in {known}")
    unused = sorted(set(classes) - learned)
    if unused:
        faults.append(f"data.classes: no training label is {_quote_some(unused)}")
    if len(classes) < 2:
        faults.append(f"{corpus_name(corpora[0])}: one class ({_quote_some(classes)}) leaves nothing to learn")
    if faults:
        raise InputError(list_faults("classes and labels have", faults))
    return classes


def _quote_some(names: Sequence[str]) -> str:
    quoted = ", ".join(repr(name) for name in names[:5])
    return quoted if len(names) <= 5 else f"{quoted} and {len(names) - 5:,} more"
