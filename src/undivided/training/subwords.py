"""The subwords of a run: learned from its training data, or taken over from another folder. [paper 5.1]"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from undivided.config import CorpusFiles, Recipe
from undivided.config.model import IMAGES, PAIRED
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import build_folder
from undivided.core.manifest import current_folder
from undivided.data.corpus import CorpusReport, corpus_name, read_pairs, read_texts
from undivided.data.images import read_labelled_images
from undivided.data.subwords import Tokenizer


def untie_vocabularies(recipe: Recipe) -> Recipe:
    """The recipe, without sharing one embedding matrix between separate vocabularies."""
    if recipe.tokens.joint or recipe.model.tie != "all":
        return recipe
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, tie="target"))


def prepare_tokenizer(recipe: Recipe, examples: int, folder: Path, console: Console) -> Tokenizer:
    """The subwords of this run, kept in its folder: learned or taken over once, then read. `examples` are those of its corpora."""
    home = folder / "subwords"
    if home.is_dir():
        return Tokenizer.load(home)
    if recipe.tokens.ready or recipe.train.start:
        tokenizer = ready_tokenizer(recipe)
    else:
        tokenizer = _learn_tokenizer(recipe, examples, console)
    with build_folder(home) as building:
        tokenizer.save(building)
    return tokenizer


def _learn_tokenizer(recipe: Recipe, examples: int, console: Console) -> Tokenizer:
    def read() -> Iterator[tuple[str, ...]]:
        for files in recipe.data.train:
            yield from training_texts(recipe, files)

    tokenizer = Tokenizer.learn(read, recipe.tokens, examples, recipe.train.seed)
    both = "joint" if tokenizer.joint else "source and target"
    kind = f"{both} " if recipe.model.kind in PAIRED else ""
    sizes = f"{len(tokenizer.source):,}" + ("" if tokenizer.joint else f" and {len(tokenizer.target):,}")
    console.say(f"learned {sizes} {kind}{recipe.tokens.kind} subwords")
    return tokenizer


def training_texts(recipe: Recipe, files: CorpusFiles) -> Iterator[tuple[str, ...]]:
    """What subwords are learned from: both sides of pairs; of texts with labels, the texts; of images, their captions."""
    if recipe.model.kind in IMAGES:
        yield from ((name,) for name in read_labelled_images(files.source, files.target, recipe.data.classes)[1])
    elif files.is_unpaired:
        yield from ((text,) for text in read_texts(files, recipe.data, CorpusReport(corpus_name(files))))
    else:
        sides = 2 if recipe.model.kind in PAIRED else 1
        pairs = read_pairs(files, recipe.data, CorpusReport(corpus_name(files)))
        yield from ((pair.source, pair.target)[:sides] for pair in pairs)


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
