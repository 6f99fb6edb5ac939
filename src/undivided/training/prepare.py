"""Everything a run needs before its first step, as one value: recipe, digests, subwords, token store."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from undivided.config import CorpusFiles, DataConfig, Recipe, build_recipe
from undivided.config.model import PAIRED, VISION
from undivided.config.settings import Values
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import IncompatibleSettings, InputError
from undivided.core.files import BUILDING, write_atomic
from undivided.core.locks import lock_folder, remove_abandoned
from undivided.data.corpus import CorpusReport, Pair, corpus_name, hold_pairs, read_pairs
from undivided.data.holdout import Lines
from undivided.data.store import Rewrite, Store, as_it_is, open_store
from undivided.data.subwords import Tokenizer
from undivided.nn.backend import choose_precision
from undivided.nn.device import choose_device, use_threads
from undivided.training.distributed import Group
from undivided.training.protection import make_masker
from undivided.training.recipe import ResolvedRun, resolve_run
from undivided.training.resume import Record, record_path, requested_device
from undivided.training.subwords import prepare_tokenizer


@dataclass(frozen=True, eq=False)
class Prepared:
    """What tasks and the trainer are given. Files hold the same for a later resume; nobody reads them to pass it on."""

    recipe: Recipe
    folder: Path
    """Where the run keeps what is not the model itself."""
    resumes: bool
    """Whether a run was started in this folder before."""
    digests: Mapping[str, str]
    """sha256 of every corpus file, by path."""
    examples: int
    """Training examples that were found."""
    tokenizer: Tokenizer | None
    """None for a model that sees only images."""
    store: Store | None
    """The training pairs as ids; None for models that learn from no pairs."""
    held_out: Lines = ()
    """Of each training corpus, the lines that are held out for validation."""

    @property
    def out(self) -> Path:
        """The model folder."""
        return self.folder.parent

    def validation_pairs(self) -> list[Pair]:
        """What quality is measured on: the pairs of the validation files or, where none are named, those held out."""
        data = self.recipe.data
        if data.valid or not self.held_out:
            return [pair for files in data.valid for pair in hold_pairs(files, data)]
        new = len(data.train) - data.mixed
        return [
            pair
            for files, lines in zip(data.train[:new], self.held_out[:new], strict=True)
            for pair in _read_all(files, data)
            if pair.line in lines
        ]

    def data_digests(self) -> dict[str, dict[str, str]]:
        """The digests of training and validation data, for the model card."""

        def of(corpora: Iterable[CorpusFiles]) -> dict[str, str]:
            return {path: self.digests[path] for files in corpora for path in (files.source, files.target) if path}

        return {"train": of(self.recipe.data.train), "valid": of(self.recipe.data.valid)}


def _read_all(files: CorpusFiles, config: DataConfig) -> Iterator[Pair]:
    return read_pairs(files, config, CorpusReport(corpus_name(files)))


@contextmanager
def prepare(values: Values, console: Console, group: Group | None = None) -> Iterator[Prepared]:
    """Settings → what a run needs; within, no other process trains in its folder.

    Of several processes the main one prepares, and the others open what it has prepared.
    """
    group = group or Group(device=choose_device(requested_device(values)))
    # What this device cannot do is said before anything is read or written.
    choose_precision(build_recipe(values).train.precision, group.device)
    if not group.is_main:
        group.wait()
    run = resolve_run(values, console)
    use_threads(run.recipe.train.threads)
    run = run.with_micro_batches(torch.get_num_threads() if group.device.type == "cpu" else 1, group.size)
    locked: AbstractContextManager[None] = lock_run(run) if group.is_main else nullcontext()
    with locked:
        recipe, folder, record = run.recipe, run.folder, run.record
        held_out = tuple(frozenset(lines) for lines in record.held_out)
        tokenizer = store = None
        if recipe.model.kind not in VISION:
            tokenizer = prepare_tokenizer(recipe, record.pairs, folder, console, held_out)
        if tokenizer is not None and recipe.model.kind in PAIRED:
            store = _open_training_store(recipe, tokenizer, folder, record, console)
        if group.is_main:
            group.wait()
        (resumes,) = group.broadcast_values(run.resumes)
        yield Prepared(recipe, folder, bool(resumes), record.digests, record.pairs, tokenizer, store, held_out)


@contextmanager
def lock_run(run: ResolvedRun) -> Iterator[None]:
    """Within, no other process trains in this folder; a new run is written down, so that it can resume after a stop."""
    with lock_folder(run.folder, f"{run.folder.parent}: another process is training there; wait for it, or choose another --out"):
        remove_abandoned(run.folder, BUILDING)
        saved = record_path(run.folder.parent)
        if not run.resumes:
            if saved.exists():
                raise InputError(f"{run.recipe.train.out}: another training has just started there; choose another --out")
            write_atomic(saved, json.dumps(run.record._asdict(), indent=2, ensure_ascii=False))
        try:
            yield
        except IncompatibleSettings:
            # Nothing stays that a corrected run would have to agree with.
            saved.unlink(missing_ok=True)
            shutil.rmtree(run.folder / "subwords", ignore_errors=True)
            raise


def _open_training_store(recipe: Recipe, tokenizer: Tokenizer, folder: Path, record: Record, console: Console) -> Store:
    """The token store of the training corpora; pairs over the length limit are reported."""
    progress = Progress(console, "tokenising pairs", None)
    held_out = tuple(frozenset(lines) for lines in record.held_out)
    data, symbols = recipe.data, tokenizer.symbols

    def rewriter() -> Rewrite:
        return make_masker(data.train, data, held_out, symbols, tokenizer.source.has_term_marks) if symbols else as_it_is

    store = open_store(
        folder, data.train, tokenizer, data, progress.advance, record.digests, console.warn, held_out, rewriter
    )  # fmt: skip
    console.clear()
    for files, over in zip(recipe.data.train, store.over_length, strict=True):
        if over:
            limit = recipe.data.max_length
            console.say(f"{corpus_name(files)}: dropped {plural(over, 'pair')} with more than {limit} subwords on a side")
    return store
