"""A run as frames for a page that shows it learning: its snapshots and checkpoints, a fixed sentence in each, and the log."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch import nn

from undivided.artifact import Artifact
from undivided.artifact.weights import fill_weights
from undivided.config import build_recipe
from undivided.config.model import PAIRED
from undivided.core.console import Console, Progress, plural
from undivided.core.errors import InputError
from undivided.core.ids import EOS
from undivided.data.subwords import Tokenizer
from undivided.inference.search_settings import SearchChanges, change_search
from undivided.look.frames import Curve, History, capture_frame, translate_ids
from undivided.models import make_model
from undivided.training import checkpoint, snapshots
from undivided.training.resume import read_record, record_path

LOGGED = {"loss": "loss", "perplexity": "perplexity", "rate": "learning rate", "gradient_norm": "gradient norm"}
"""What is drawn of the lines that training logs, by their names there."""


def watch_training(run: str | Path, text: str, target: str | None, search: SearchChanges, frames: int, console: Console) -> History:
    """A sentence in every kept state of a run; the fixed translation is `target`, or else that of the last state."""
    run = Path(run)
    artifact = _open_run(run)
    config = change_search(artifact.recipe.search, **search)
    paths = choose_states(run, frames)
    src, given = _ids(artifact, "text", text), target is not None
    tgt = _ids(artifact, "target", target) if target is not None else []
    if target is None:
        # The last one that can be read.
        next(_states(artifact, paths[::-1], Console(quiet=True)), None)
        target = translate_ids(artifact, src, config)
        tgt = artifact.tokenizer.target.encode([target])[0] if target.strip() else [EOS]
    progress = Progress(console, "frames", len(paths))
    captured = []
    for step in _states(artifact, paths, console):
        captured.append(capture_frame(artifact, step, src, tgt, config))
        progress.advance(1)
    console.clear()
    _check_count(run, len(captured))
    return History(artifact, text, target, given, src, tgt, tuple(captured), tuple(read_curves(run)))


def _states(artifact: Artifact, paths: list[Path], console: Console) -> Iterator[int]:
    """Fill the model with one state after the other: their steps. The weights are a running average, where it was kept."""
    model = artifact.model
    assert isinstance(model, nn.Module)
    for path in paths:
        try:
            tensors = checkpoint.read(path).tensors
        except (InputError, OSError) as error:
            console.warn(f"skipped a damaged state of the run: {error}")
            continue
        fill_weights(model, tensors.get("ema", tensors["model"]), str(path))
        yield int(path.name[5:])


def choose_states(run: Path, frames: int) -> list[Path]:
    """The snapshots and checkpoints of a run, by step, at most so many of them; of the same step the checkpoint."""
    training = run / "training"
    kept = {path.name: path for folder in (snapshots.FOLDER, "checkpoints") for path in checkpoint.paths(training / folder)}
    there = {int(name[5:]): path for name, path in kept.items()}
    _check_count(run, len(there))
    return [there[step] for step in snapshots.thin_out(list(there), frames)]


def _check_count(run: Path, count: int) -> None:
    if count < 2:
        raise InputError(
            f"{run}: {plural(count, 'state')} of this training can be read, and to watch it learn takes several; train with "
            "--snapshots 20, which keeps small copies of the weights from the first step to the last"
        )


def _open_run(run: Path) -> Artifact:
    """Settings and subwords of a run, with a model whose weights are yet to be read."""
    if not run.is_dir():
        raise InputError(f"{run}: no such folder")
    if not record_path(run).is_file():
        raise InputError(
            f"{run}: a folder without a training beside the model; --training needs the folder that undivided train wrote (--out)"
        )
    recipe = build_recipe(read_record(record_path(run)).recipe)
    if recipe.model.kind not in PAIRED:
        raise InputError(f"{run}: the training of a {recipe.model.kind} model, and --training shows translators alone")
    tokenizer = Tokenizer.load(run / "training" / "subwords", recipe.data.language_code)
    model = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target))
    return Artifact(recipe, tokenizer, model.eval())


def _ids(artifact: Artifact, name: str, line: str) -> list[int]:
    subwords = artifact.tokenizer.source if name == "text" else artifact.tokenizer.target
    ids = subwords.encode([line])[0]
    longest = artifact.recipe.data.max_length
    if not line.strip() or "\n" in line:
        raise InputError(f"the {name} is {'empty' if not line.strip() else 'several lines; give one line'}")
    if len(ids) > longest:
        raise InputError(f"the {name} has {plural(len(ids), 'subword')}, but training had at most {longest}; give a shorter one")
    return ids


def read_curves(run: Path) -> Iterator[Curve]:
    """The curves of the log: of the steps and of the validations."""
    events = list(_read_log(run / "training" / "log.jsonl"))
    for key, name in LOGGED.items():
        if points := _points(events, "step", key):
            yield Curve(name, points, logarithmic=key == "perplexity")
    if points := _points(events, "validation", "bleu"):
        yield Curve("validation BLEU", points)


def _points(events: list[dict[str, Any]], event: str, key: str) -> tuple[tuple[int, float], ...]:
    """The numbers of one name by step; of a step that was taken twice, the last."""
    found: dict[int, float] = {}
    for each in events:
        if each.get("event") == "rollback":
            found = {step: value for step, value in found.items() if step <= each.get("step", 0)}
        value = each.get(key)
        if each.get("event") == event and isinstance(value, int | float) and math.isfinite(value):
            found[int(each["step"])] = float(value)
    return tuple(sorted(found.items()))


def _read_log(path: Path) -> Iterator[dict[str, Any]]:
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and isinstance(event.get("step"), int):
                yield event
