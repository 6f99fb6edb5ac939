"""The subwords of a run: learned from its training data, or taken over from another folder. [paper 5.1]"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence, Set
from pathlib import Path

from undivided.config import CorpusFiles, Recipe
from undivided.config.model import IMAGES, PAIRED
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import build_folder, read_bounded
from undivided.core.manifest import current_folder
from undivided.data.corpus import CorpusReport, corpus_name, read_pairs, read_texts
from undivided.data.foreign_subwords import adopt_model
from undivided.data.holdout import Lines
from undivided.data.images import read_labelled_images
from undivided.data.subwords import LEAST_PROTECTED, MAX_MODEL_BYTES, Subwords, Tokenizer


def untie_vocabularies(recipe: Recipe) -> Recipe:
    """The recipe, without sharing one embedding matrix between separate vocabularies."""
    if recipe.tokens.joint or recipe.model.tie != "all":
        return recipe
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, tie="target"))


def prepare_tokenizer(recipe: Recipe, examples: int, folder: Path, console: Console, held_out: Lines = ()) -> Tokenizer:
    """The subwords of this run, kept in its folder: learned or taken over once, then read. `examples` are those of its corpora."""
    home = folder / "subwords"
    if home.is_dir():
        return Tokenizer.load(home, recipe.data.language_code)
    if recipe.tokens.ready or recipe.train.start:
        tokenizer = ready_tokenizer(recipe)
    else:
        tokenizer = _learn_tokenizer(recipe, examples, console, held_out)
    if recipe.tokens.terms and not tokenizer.source.has_term_marks:
        has = (
            "its subwords have no marks for terms"
            if recipe.tokens.ready or recipe.train.start
            else "it cannot have marks for terms"
        )
        raise InputError(f"tokens.terms: {has}: that needs tokens.protect and {LEAST_PROTECTED:,} subwords or more, newly learned")
    with build_folder(home) as building:
        tokenizer.save(building)
    return tokenizer


def _learn_tokenizer(recipe: Recipe, examples: int, console: Console, held_out: Lines) -> Tokenizer:
    def read() -> Iterator[tuple[str, ...]]:
        for number, files in enumerate(recipe.data.train):
            yield from training_texts(recipe, files, held_out[number] if held_out else frozenset())

    protect = recipe.tokens.protect and recipe.model.kind in PAIRED
    tokenizer = Tokenizer.learn(read, recipe.tokens, examples, recipe.train.seed, protect)
    both = "joint" if tokenizer.joint else "source and target"
    kind = f"{both} " if recipe.model.kind in PAIRED else ""
    sizes = f"{len(tokenizer.source):,}" + ("" if tokenizer.joint else f" and {len(tokenizer.target):,}")
    console.say(f"learned {sizes} {kind}{recipe.tokens.kind} subwords")
    return tokenizer


def training_texts(recipe: Recipe, files: CorpusFiles, without: Set[int] = frozenset()) -> Iterator[tuple[str, ...]]:
    """What subwords are learned from: both sides of pairs; of texts with labels, the texts; of images, their captions."""
    if recipe.model.kind in IMAGES:
        yield from ((name,) for name in read_labelled_images(files.source, files.target, recipe.data.classes)[1])
    elif files.is_unpaired:
        yield from ((text,) for text in read_texts(files, recipe.data, CorpusReport(corpus_name(files))))
    else:
        sides = 2 if recipe.model.kind in PAIRED else 1
        pairs = read_pairs(files, recipe.data, CorpusReport(corpus_name(files)), without)
        yield from ((pair.source, pair.target)[:sides] for pair in pairs)


def ready_tokenizer(recipe: Recipe) -> Tokenizer:
    """The subwords that a recipe names instead of having them learned: of a folder, or files of sentencepiece."""
    name = "tokens.ready" if recipe.tokens.ready else "--from"
    where = recipe.tokens.ready or recipe.train.start
    paths = [Path(part) for part in where.split(",")]
    if recipe.tokens.ready and all(path.is_file() for path in paths):
        tokenizer = _adopt(paths)
    elif not Path(where).is_dir():
        kinds = "file or folder; two files are named as SOURCE.model,TARGET.model" if recipe.tokens.ready else "folder"
        raise InputError(f"{name}: {where}: no such {kinds}")
    else:
        tokenizer = Tokenizer.load(current_folder(Path(where)), recipe.data.language_code)
    if recipe.model.kind in PAIRED and tokenizer.source.suffix != ".model":
        raise InputError(f"{name}: {where} holds subwords without a sentencepiece model, which translators cannot use")
    if tokenizer.joint != recipe.tokens.joint:
        there, joint = ("one vocabulary", "true") if tokenizer.joint else ("separate vocabularies", "false")
        raise InputError(f"{name}: {where} holds {there} for the two sides; set tokens.joint to {joint}")
    return tokenizer


def _adopt(paths: Sequence[Path]) -> Tokenizer:
    """Subword models that were trained elsewhere."""
    if len(paths) > 2:
        raise InputError(f"tokens.ready: {len(paths)} files; name one for both languages, or SOURCE.model,TARGET.model")
    sides = []
    for path in paths:
        try:
            sides.append(Subwords(adopt_model(read_bounded(path, MAX_MODEL_BYTES))))
        except InputError as error:
            raise InputError(f"tokens.ready: {path}: {error}") from None
    return Tokenizer(*sides)
