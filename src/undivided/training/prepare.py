"""What a run needs before its first step: the full recipe, subwords, the token store; or the run to go on with."""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from undivided.config import CorpusFiles, Recipe, build_recipe, preset_for, preset_values
from undivided.config.model import DECODER_ONLY, DRAWING, ENCODER_ONLY, IMAGES, PAIRED, VISION
from undivided.config.settings import Values, as_values, list_faults, merge
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import IncompatibleSettings, InputError
from undivided.core.files import build_folder, read_json, sha256_of, write_atomic
from undivided.core.locks import lock_folder
from undivided.core.manifest import current_folder
from undivided.data.corpus import CorpusReport, check_corpora, corpus_digests, corpus_name, read_pairs, read_texts
from undivided.data.images import read_labelled_images
from undivided.data.store import Store, open_store
from undivided.data.subwords import Tokenizer, vocab_size_for


class Plan(NamedTuple):
    """The full recipe of a run, and what is to be written down if it is a new one."""

    recipe: Recipe
    record: Values | None

    @property
    def folder(self) -> Path:
        """Where the run keeps what is not the model itself."""
        return Path(self.recipe.train.out) / "training"

    def dealt(self, workers: int, processes: int = 1) -> Plan:
        """With as many parts of a batch as suit so many workers, if it is not said yet; the run keeps to that number.

        Processes share the batches of a step out among them, and the workers of a process cut each: so a process needs no more
        memory than one batch.
        """
        if self.recipe.batches.parts:
            return self
        parts = workers * processes // math.gcd(processes, self.recipe.batches.accumulate)
        recipe = dataclasses.replace(self.recipe, batches=dataclasses.replace(self.recipe.batches, parts=parts))
        return Plan(recipe, self.record and self.record | {"recipe": as_values(recipe)})

    @contextmanager
    def begun(self) -> Iterator[None]:
        """Within, no other process trains here; a new run is written down, so that it can go on after a stop."""
        busy = f"{self.folder.parent}: another process is training there; wait for it, or choose another --out"
        with lock_folder(self.folder, busy):
            saved = self.folder / "recipe.json"
            if self.record is not None:
                if saved.exists():
                    raise InputError(f"{self.recipe.train.out}: another training was begun there just now; choose another --out")
                write_atomic(saved, json.dumps(self.record, indent=2, ensure_ascii=False).encode())
            try:
                yield
            except IncompatibleSettings:
                # Nothing stays that a corrected run would have to agree with.
                saved.unlink(missing_ok=True)
                shutil.rmtree(self.folder / "subwords", ignore_errors=True)
                raise


PARTS = ("config.json", "manifest.json", "model.safetensors", "README.md")
"""What every model folder holds."""


def prepare_recipe(values: Values, console: Console) -> Plan:
    """The full recipe of a new run, or of one that was begun before and goes on."""
    draft = build_recipe(values)
    if not draft.train.out:
        raise InputError("where should the model go? Name a directory: --out DIR")
    if Path(draft.train.out).exists() and not Path(draft.train.out).is_dir():
        raise InputError(f"{draft.train.out}: is a file; name a folder with --out")
    saved = Path(draft.train.out) / "training" / "recipe.json"
    if saved.exists():
        record = read_record(saved)
        _same_kind(values, record["recipe"].get("model", {}), f"{draft.train.out}: holds the training of", "choose another --out")
        return Plan(_continued(record, values), None)
    foreign = [name for name in PARTS if (Path(draft.train.out) / name).exists()]
    if foreign:
        there = f"what is there ({', '.join(foreign)})"
        raise InputError(f"{draft.train.out}: the model would replace {there}; name a new folder with --out")
    values = _with_start(values)
    draft = build_recipe(values)
    files = _wanted(draft.model.kind)
    if not draft.data.train:
        raise InputError(f"what should it learn from? Name {files[0]}: --train {files[1]}")
    pairs, found = _surveyed(draft, console)
    preset = _suited(draft, pairs, console)
    if not draft.data.valid:
        console.warn(f"no validation data (--valid {files[1]}): quality will not be measured during training")
    recipe = untied(build_recipe(merge(values, found), preset))
    if recipe.tokens.ready or (recipe.train.start and recipe.model.kind not in VISION):
        size = len(ready_tokenizer(recipe).source)
        if recipe.tokens.vocab_size not in (0, size):
            there = recipe.tokens.ready or recipe.train.start
            console.warn(f"tokens.vocab_size {recipe.tokens.vocab_size:,} is not used: the {size:,} subwords are those of {there}")
    if recipe.model.tie != draft.model.tie:
        console.say("separate vocabularies: the source embedding has a matrix of its own (model.tie: target)")
    digests = corpus_digests([*recipe.data.train, *recipe.data.valid])
    sizes = {path: Path(path).stat().st_size for path in digests}
    return Plan(recipe, {"recipe": as_values(recipe), "digests": digests, "bytes": sizes, "pairs": pairs})


def foreseen(values: Values, console: Console) -> Recipe:
    """The recipe that a training would have, as far as its data is there to tell."""
    values = _with_start(values)
    draft = build_recipe(values)
    files = [name for files in draft.data.train + draft.data.valid for name in (files.source, files.target) if name]
    pairs = 0
    if draft.data.train and draft.model.kind in PAIRED and all(Path(name).exists() for name in files):
        pairs = _surveyed(draft, console)[0]
    recipe = untied(build_recipe(values, _suited(draft, pairs, console) if pairs else draft.preset))
    size = recipe.tokens.vocab_size or (vocab_size_for(pairs) if pairs else 0)
    if recipe.tokens.ready or recipe.train.start:
        size = len(ready_tokenizer(recipe).source)
    return dataclasses.replace(recipe, tokens=dataclasses.replace(recipe.tokens, vocab_size=size))


def device_of(values: Values) -> str:
    """The device that a run asks for, now or when it was begun."""
    draft = build_recipe(values)
    saved = Path(draft.train.out) / "training" / "recipe.json"
    if not draft.train.out or not saved.exists():
        return draft.train.device
    return build_recipe(merge(read_record(saved)["recipe"], values)).train.device


def _suited(draft: Recipe, pairs: int, console: Console) -> str:
    """The preset that is named, or the one that suits the data, said aloud."""
    if draft.preset:
        return draft.preset
    preset, what = preset_for(pairs), plural(pairs, _wanted(draft.model.kind)[2])
    but = f"; the model is as in {draft.train.start}" if draft.train.start else ""
    console.say(f"preset {preset}: suits a corpus of {what} (another: --preset NAME){but}")
    return preset


def _with_start(values: Values) -> Values:
    """Settings, above those of the folder that training starts from, if it does; a preset that is named stands in between."""
    draft = build_recipe(values)
    if not draft.train.start:
        return values
    begin = started(draft.train.start)
    _same_kind(values, begin["model"], f"train.start: {draft.train.start} holds", "start from another")
    return merge(merge(begin, preset_values(draft.preset, begin)), values)


def started(folder: str) -> Values:
    """The settings of the folder that training starts from: what neither a person nor a preset says is as it is there."""
    if not Path(folder).is_dir():
        raise InputError(f"train.start: {folder}: no such folder")
    recipe = read_json(current_folder(Path(folder)) / "config.json").get("recipe")
    if not isinstance(recipe, dict) or not isinstance(recipe.get("model"), dict):
        raise InputError(f"train.start: {folder}: config.json describes no model")
    wanted = {"tokens": ("joint",), "data": ("source_lang", "target_lang"), "search": ("beam_size", "length_penalty")}
    there = {section: recipe.get(section) for section in wanted}
    kept = {
        section: {name: found[name] for name in wanted[section] if name in found}
        for section, found in there.items()
        if isinstance(found, dict)
    }
    return {"model": recipe["model"]} | kept


def _same_kind(values: Values, there: Mapping[str, Any], what: str, advice: str) -> None:
    """Refuse another kind of model than a person asks for, before each of its settings is called wrong."""
    asked, found = (values.get("model") or {}).get("kind"), there.get("kind", "transformer")
    if asked not in (None, found):
        raise InputError(f"{what} a model of kind {found}, not {asked}; {advice}")


def _wanted(kind: str) -> tuple[str, str, str]:
    """What a kind of model learns from: in words, as files, and one of it."""
    if kind in IMAGES:
        return "images and what they show", "IMAGES LABELS", "image"
    if kind in PAIRED:
        return "parallel text", "SOURCE TARGET", "pair"
    return ("text", "FILE", "line") if kind in DECODER_ONLY else ("text, or text with labels", "FILE [LABELS]", "line")


def _surveyed(draft: Recipe, console: Console) -> tuple[int, Values]:
    """How much there is to learn from, said aloud, and the settings that only the data can tell: classes, size of images."""
    corpora = [*draft.data.train, *draft.data.valid]
    if draft.model.kind in IMAGES:
        return _surveyed_images(draft, corpora, console)
    findings = check_corpora(corpora, draft.data)
    for finding in findings:
        console.say(finding.summary())
    count = sum(finding.kept for finding in findings[: len(draft.data.train)])
    if draft.model.kind not in ENCODER_ONLY or corpora[0].is_unpaired:
        return count, {}
    silent = CorpusReport("")
    labels = [[pair.target for pair in read_pairs(files, draft.data, silent)] for files in corpora]
    return count, {"data": {"classes": _classes(draft, labels, corpora)}}


def _surveyed_images(draft: Recipe, corpora: Sequence[CorpusFiles], console: Console) -> tuple[int, Values]:
    read = [read_labelled_images(files.source, files.target, draft.data.classes) for files in corpora]
    model, faults = draft.model, []
    channels, height, width = read[0][0].shape[1:]
    for files, (images, _) in zip(corpora, read, strict=True):
        console.say(f"{corpus_name(files)}: {plural(len(images), 'image')} of {images.shape[2]} × {images.shape[3]} pixels")
        if images.shape[1:] != (channels, model.image_height or height, model.image_width or width):
            wanted = f"{model.image_height or height} × {model.image_width or width} × {channels}"
            faults.append(f"{files.source}: images of {images.shape[2]} × {images.shape[3]} × {images.shape[1]}, not {wanted}")
    classes: list[str] = []
    try:
        classes = draft.data.classes if model.kind in DRAWING else _classes(draft, [names for _, names in read], corpora)
    except InputError as error:
        faults.append(str(error))
    for side, size in (("height", height), ("width", width)):
        if size % model.patch:
            faults.append(f"model.patch: patches of {model.patch} × {model.patch} do not divide a {side} of {size} pixels")
    if faults:
        raise InputError(list_faults("the data has", faults))
    size = {"image_height": height, "image_width": width, "channels": channels}
    return sum(len(images) for images, _ in read[: len(draft.data.train)]), {"model": size, "data": {"classes": classes}}


def _classes(draft: Recipe, labels: Sequence[Sequence[str]], corpora: Sequence[CorpusFiles]) -> list[str]:
    """The classes by name: as listed, if labels and list agree, else as the training labels have them."""
    trained = {name for names in labels[: len(draft.data.train)] for name in names}
    classes = draft.data.classes or sorted(trained)
    faults = []
    for files, names in zip(corpora, labels, strict=True):
        unknown = sorted(set(names) - set(classes))
        if unknown:
            known = "data.classes" if draft.data.classes else "the training labels"
            faults.append(f"{files.target or files.source}: {_some(unknown)} not in {known}")
    unused = sorted(set(classes) - trained)
    if unused:
        faults.append(f"data.classes: no training label is {_some(unused)}")
    if len(classes) < 2:
        faults.append(f"{corpus_name(corpora[0])}: one class ({_some(classes)}) leaves nothing to learn")
    if faults:
        raise InputError(list_faults("classes and labels have", faults))
    return classes


def _some(names: Sequence[str]) -> str:
    quoted = ", ".join(repr(name) for name in names[:5])
    return quoted if len(names) <= 5 else f"{quoted} and {len(names) - 5:,} more"


def untied(recipe: Recipe) -> Recipe:
    """Separate vocabularies cannot share one matrix."""
    if recipe.tokens.joint or recipe.model.tie != "all":
        return recipe
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, tie="target"))


def read_record(path: Path) -> dict[str, Any]:
    """What was written down when a run began: its recipe, the digests of its corpora, the count of pairs."""
    try:
        record = read_json(path)
        build_recipe(record["recipe"])
        return {
            "digests": dict(record["digests"]),
            "bytes": dict(record.get("bytes", {})),
            "recipe": record["recipe"],
            "pairs": int(record["pairs"]),
        }
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        raise InputError(f"{path}: damaged, so this run cannot go on: {error}; choose another --out") from None


MAY_CHANGE = {"max_steps", "max_epochs", "minutes", "patience", "device", "threads", "out", "log_every", "tensorboard",
              "validate_every", "validate_beam", "validate_lines", "save_every", "keep_last", "keep_best", "average",
              "max_skipped", "shard"}  # fmt: skip
"""Settings of `train` that a resumed run may be given anew; all else would make it another run."""


def _continued(record: Mapping[str, Any], values: Values) -> Recipe:
    """The saved recipe with what may change; refused if the data or anything else differs."""
    old = build_recipe(record["recipe"])
    new = untied(build_recipe(merge(record["recipe"], values)))
    faults = []
    for name, before, after in _differences(as_values(old), as_values(new)):
        section, _, key = name.partition(".")
        if section != "search" and not (section == "train" and key in MAY_CHANGE):
            faults.append(f"{name} was {before!r}, now {after!r}")
    for path, sha256 in record["digests"].items():
        if not Path(path).exists():
            faults.append(f"{path} is gone; training began with it")
        elif sha256_of(path) != sha256:
            size, before = Path(path).stat().st_size, record["bytes"].get(path)
            how = "" if before is None else f": it had {before:,} bytes, now {size:,}" if size != before else ": other bytes"
            faults.append(f"{path} is no longer the file that training began with{how}")
    if faults:
        raise InputError("this would be another training; undo the change or choose another --out:\n  - " + "\n  - ".join(faults))
    return new


def _differences(before: Values, after: Values, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, f"{prefix}{key}.")
        elif old != new:
            yield f"{prefix}{key}", old, new


def prepare_tokenizer(recipe: Recipe, folder: Path, console: Console) -> Tokenizer:
    """The subwords of this run: learned once, or taken over, then read."""
    home = folder / "subwords"
    if home.is_dir():
        return Tokenizer.load(home)
    if recipe.tokens.ready or recipe.train.start:
        return _kept(ready_tokenizer(recipe), folder)

    def read() -> Iterator[tuple[str, ...]]:
        for files in recipe.data.train:
            yield from training_texts(recipe, files)

    pairs = read_record(folder / "recipe.json")["pairs"]
    tokenizer = Tokenizer.learn(read, recipe.tokens, pairs, recipe.train.seed)
    both = "joint" if tokenizer.joint else "source and target"
    kind = f"{both} " if recipe.model.kind in PAIRED else ""
    sizes = f"{len(tokenizer.source):,}" + ("" if tokenizer.joint else f" and {len(tokenizer.target):,}")
    console.say(f"learned {sizes} {kind}{recipe.tokens.kind} subwords")
    return _kept(tokenizer, folder)


def training_texts(recipe: Recipe, files: CorpusFiles) -> Iterator[tuple[str, ...]]:
    """What subwords are learned from: both sides of pairs; of texts with labels, the texts; of images, what is said of them."""
    if recipe.model.kind in IMAGES:
        yield from ((name,) for name in read_labelled_images(files.source, files.target, recipe.data.classes)[1])
    elif files.is_unpaired:
        yield from ((text,) for text in read_texts(files, recipe.data, CorpusReport(corpus_name(files))))
    else:
        sides = 2 if recipe.model.kind in PAIRED else 1
        pairs = read_pairs(files, recipe.data, CorpusReport(corpus_name(files)))
        yield from ((pair.source, pair.target)[:sides] for pair in pairs)


def _kept(tokenizer: Tokenizer, folder: Path) -> Tokenizer:
    with build_folder(folder / "subwords") as building:
        tokenizer.save(building)
    return tokenizer


def ready_tokenizer(recipe: Recipe) -> Tokenizer:
    """The subwords that a recipe names instead of having them learned."""
    name = "tokens.ready" if recipe.tokens.ready else "train.start"
    home = Path(recipe.tokens.ready or recipe.train.start)
    if not home.is_dir():
        raise InputError(f"{name}: {home}: no such folder")
    tokenizer = Tokenizer.load(current_folder(home))
    if tokenizer.joint != recipe.tokens.joint:
        there, joint = ("one vocabulary", "true") if tokenizer.joint else ("separate vocabularies", "false")
        raise InputError(f"{name}: {home} holds {there} for the two sides; set tokens.joint to {joint}")
    return tokenizer


def open_training_store(recipe: Recipe, tokenizer: Tokenizer, folder: Path, console: Console) -> Store:
    """The token store of the training corpora; pairs over the length limit are reported."""
    progress = Progress(console, "tokenising pairs", None)
    store = open_store(folder, recipe.data.train, tokenizer, recipe.data, progress.advance)
    console.clear()
    for files, over in zip(recipe.data.train, store.over_length, strict=True):
        if over:
            console.say(
                f"{corpus_name(files)}: dropped {plural(over, 'pair')} with more than {recipe.data.max_length} subwords on a side"
            )
    return store
