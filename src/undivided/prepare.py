"""What a run needs before its first step: the full recipe, subwords, the token store; or the run to go on with."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from undivided.batches import Store, open_store
from undivided.config import Recipe, Values, as_values, build, merge, preset_for
from undivided.console import Console, InputError, Progress, plural
from undivided.corpus import Findings, corpus_digests, digest, examine, name_of, read_pairs
from undivided.tokens import Tokenizer


def prepare_recipe(values: Values, console: Console) -> tuple[Recipe, bool]:
    """The full recipe, and whether it goes on with a run that was begun before."""
    draft = build(values)
    if not draft.train.out:
        raise InputError("where should the model go? Name a directory: --out DIR")
    saved = Path(draft.train.out) / "training" / "recipe.json"
    if saved.exists():
        console.say(f"{draft.train.out}: going on with the training that was begun there")
        return _continued(read_record(saved), values), True
    if not draft.data.train:
        raise InputError("what should it learn from? Name parallel text: --train SOURCE TARGET")
    findings = examine([*draft.data.train, *draft.data.valid], draft.data)
    for finding in findings:
        console.say(finding.summary())
    pairs = sum(finding.kept for finding in findings[: len(draft.data.train)])
    preset = draft.preset or preset_for(pairs)
    if not draft.preset:
        console.say(f"preset {preset}: suits a corpus of {plural(pairs, 'pair')} (another: --preset NAME)")
    if not draft.data.valid:
        console.warn("no validation data (--valid SOURCE TARGET): quality will not be measured during training")
    recipe = untied(build(values, preset))
    if recipe.model.tie != draft.model.tie:
        console.say("separate vocabularies: the source embedding has a matrix of its own (model.tie: target)")
    saved.parent.mkdir(parents=True, exist_ok=True)
    digests = corpus_digests([*recipe.data.train, *recipe.data.valid])
    record = {"recipe": as_values(recipe), "digests": digests, "pairs": pairs}
    saved.write_text(json.dumps(record, indent=2, ensure_ascii=False), encoding="utf-8")
    return recipe, False


def untied(recipe: Recipe) -> Recipe:
    """Separate vocabularies cannot share one matrix."""
    if recipe.tokens.joint or recipe.model.tie != "all":
        return recipe
    return dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, tie="target"))


def read_record(path: Path) -> dict[str, Any]:
    """What was written down when a run began: its recipe, the digests of its corpora, the count of pairs."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        build(record["recipe"])
        return {"digests": dict(record["digests"]), "recipe": record["recipe"], "pairs": int(record["pairs"])}
    except (ValueError, KeyError, TypeError, AttributeError, InputError) as error:
        raise InputError(f"{path}: damaged, so this run cannot go on: {error}; choose another --out") from None


MAY_CHANGE = {"max_steps", "max_epochs", "minutes", "patience", "device", "threads", "out", "log_every", "tensorboard",
              "validate_every", "validate_beam", "validate_lines", "save_every", "keep_last", "average"}  # fmt: skip
"""Settings of `train` that a resumed run may be given anew; all else would make it another run."""


def _continued(record: Mapping[str, Any], values: Values) -> Recipe:
    """The saved recipe with what may change; refused if the data or anything else differs."""
    old = build(record["recipe"])
    new = untied(build(merge(record["recipe"], values)))
    faults = []
    for name, before, after in _differences(as_values(old), as_values(new)):
        section, _, key = name.partition(".")
        if section != "search" and not (section == "train" and key in MAY_CHANGE):
            faults.append(f"{name} was {before!r}, now {after!r}")
    for path, sha256 in record["digests"].items():
        if not Path(path).exists() or digest(path) != sha256:
            faults.append(f"{path} is no longer the file that training began with")
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
    """The subwords of this run: learned once, then read."""
    home = folder / "subwords"
    if home.is_dir():
        return Tokenizer.load(home)

    def read() -> Iterator[tuple[str, str]]:
        for files in recipe.data.train:
            yield from ((pair.source, pair.target) for pair in read_pairs(files, recipe.data, Findings(name_of(files))))

    pairs = read_record(folder / "recipe.json")["pairs"]
    tokenizer = Tokenizer.learn(read, recipe.tokens, pairs, recipe.train.seed)
    kind = "joint" if tokenizer.joint else "source and target"
    sizes = f"{len(tokenizer.source):,}" + ("" if tokenizer.joint else f" and {len(tokenizer.target):,}")
    console.say(f"learned {sizes} {kind} {recipe.tokens.kind} subwords")
    building = folder / "subwords.building"
    building.mkdir(parents=True, exist_ok=True)
    tokenizer.save(building)
    building.rename(home)
    return tokenizer


def open_training_store(recipe: Recipe, tokenizer: Tokenizer, folder: Path, console: Console) -> Store:
    """The token store of the training corpora; pairs over the length limit are reported."""
    progress = Progress(console, "tokenising pairs", None)
    store = open_store(folder, recipe.data.train, tokenizer, recipe.data, progress.advance)
    console.clear()
    for files, over in zip(recipe.data.train, store.over_length, strict=True):
        if over:
            console.say(
                f"{name_of(files)}: dropped {plural(over, 'pair')} with more than {recipe.data.max_length} subwords on a side"
            )
    return store
