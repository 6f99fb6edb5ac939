"""A model converted for an engine: made once, kept in the user's cache, used when it proved close to the reference.

Never beside the model: engines believe what they read, so they read only what this user's own process has written.
Importing this must not import torch.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from undivided.artifact import Artifact
from undivided.config import SearchConfig
from undivided.core import manifest
from undivided.core.cache import cache_folder
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import read_json, sha256_of
from undivided.core.ids import EOS
from undivided.core.locks import try_lock_folder
from undivided.core.random import random_bits
from undivided.inference.hypothesis import Hypothesis

SAMPLES = 2
"""The seed of the sentences on which a converted model is tried."""

RECORD = "parity.json"

UNUSED_DAYS = 60
"""Converted models that were not used for so long are removed when another is converted."""

TOLERANCE = 0.15
"""The largest mean difference of a token's log-probability, in nats, that is accepted on the sample sentences."""


class UnsupportedModel(Exception):
    """Why an engine cannot run a model."""


class Copy(NamedTuple):
    """A kind of converted model: where it is kept and what belongs to it."""

    engine: str
    """The folder of the cache that holds all of an engine."""
    name: str
    facts: dict[str, Any]
    """What it was made by, beside the model: a copy with other facts is made anew."""
    needed: tuple[str, ...]
    optional: tuple[str, ...]
    announcement: str

    def open(
        self,
        artifact: Artifact,
        folder: Path,
        write: Callable[[Path], None],
        measure: Callable[[Path], float],
        console: Console,
    ) -> tuple[float, Path]:
        """How far the copy is from the reference, and where it is; it is made first where there is none."""
        facts = {"model": artifact.seal or sha256_of(manifest.current_folder(folder) / manifest.NAME), **self.facts}
        key = hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]
        home = cache_folder() / self.engine / key / self.name
        known = self._stored_difference(home, facts)
        if known is not None:
            with contextlib.suppress(OSError):
                os.utime(home.parent)
            return known, home
        console.say(self.announcement)
        building = _building_folder(home, console)
        with try_lock_folder(building):
            try:
                write(building)
                difference = measure(building)
                (building / RECORD).write_text(json.dumps({"facts": facts, "difference": difference}, indent=2) + "\n")
                manifest.write(building, sorted(part.name for part in building.iterdir()))
            except BaseException:
                shutil.rmtree(building, ignore_errors=True)
                raise
            return difference, self._move_into_place(building, home, facts)

    def _move_into_place(self, building: Path, home: Path, facts: dict[str, Any]) -> Path:
        """Move a converted model into its place, unless another process was faster; where it is."""
        if building.parent == home.parent:
            if self._stored_difference(home, facts) is None:
                shutil.rmtree(home, ignore_errors=True)
            with contextlib.suppress(OSError):
                return building.rename(home)
            if self._stored_difference(home, facts) is not None:
                shutil.rmtree(building, ignore_errors=True)
                return home
        atexit.register(shutil.rmtree, building, ignore_errors=True)
        return building

    def _stored_difference(self, home: Path, facts: dict[str, Any]) -> float | None:
        """How far a copy is from the reference; None where there is none, or a damaged one, or that of another model."""
        try:
            listed = manifest.verify(home, [RECORD, *self.needed])
            record = read_json(home / RECORD)
            foreign = any((home / part).exists() and part not in listed for part in self.optional)
            return float(record["difference"]) if record["facts"] == facts and not foreign else None
        except (InputError, OSError, KeyError, TypeError, ValueError):
            return None


def _building_folder(home: Path, console: Console) -> Path:
    """A temporary folder beside `home`, or elsewhere where the cache cannot be written."""
    for left in home.parent.glob(f"{home.name}.*.building"):
        # A process locks its folder before it writes into it; one that nobody holds was left by a process that was killed.
        with contextlib.suppress(OSError), try_lock_folder(left) as locked:
            if locked and any(left.iterdir()):
                shutil.rmtree(left)
    try:
        home.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _remove_unused(home.parent)
        return Path(tempfile.mkdtemp(prefix=f"{home.name}.", suffix=".building", dir=home.parent))
    except OSError:
        console.say(f"{home.parent} cannot be written, so the converted model is not kept")
        return Path(tempfile.mkdtemp(prefix=f"{home.name}."))


def _remove_unused(used: Path) -> None:
    """Remove converted models that were last used long before the one that is used now."""
    os.utime(used)
    oldest = used.stat().st_mtime - UNUSED_DAYS * 24 * 3600
    for place in used.parent.iterdir():
        with contextlib.suppress(OSError):
            if place.stat().st_mtime < oldest:
                shutil.rmtree(place)


def sample_rows(vocabulary: int, count: int = 16, length: int = 12) -> list[list[int]]:
    """Made-up sentences over a vocabulary, always the same: a model folder holds no text to try it on."""
    bits = random_bits(count * length, vocabulary, SAMPLES).reshape(count, length)
    return [[*(int(word) for word in EOS + 1 + row % np.uint64(vocabulary - EOS - 1)), EOS] for row in bits]


class Scores(Protocol):
    """An engine that can tell the probability of given translations."""

    @property
    def reference(self) -> Any:
        """The PyTorch engine of the same model."""

    def scores(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[list[float]]:
        """Log-probability of every token of given targets, `</s>` included."""


def compare_on_samples(engine: Scores, artifact: Artifact) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probability of every token of the reference's translations of sample sentences: the reference's, and the engine's."""
    from undivided.inference.search import forced_scores

    reference = engine.reference
    sources = sample_rows(len(artifact.tokenizer.source))
    config = SearchConfig(beam_size=1, max_extra=5)
    found: dict[int, list[Hypothesis]] = dict(reference.search(sources, config, [[]] * len(sources), range(len(sources))))
    targets = [[*found[place][0].tokens, EOS] for place in range(len(sources))]
    return forced_scores(reference.model, sources, targets, reference.device), engine.scores(sources, targets)


def mean_difference(one: list[list[float]], other: list[list[float]]) -> float:
    """The mean absolute difference of log-probabilities."""
    return float(np.mean([abs(a - b) for row, theirs in zip(one, other, strict=True) for a, b in zip(row, theirs, strict=True)]))
