"""Convert a model for CTranslate2: once, in 8-bit integers, kept in the user's cache, used when it proved close.

Never beside the model: CTranslate2 believes what it reads, so it reads only what this user's own process has written.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import importlib.metadata
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

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
from undivided.inference.engines.ctranslate2 import SHORTLIST, CTranslate2Engine, position_count

VERSION = 3
"""Of what `convert` writes: a converted model of another version is converted again."""

SAMPLES = 2
"""The seed of the sentences on which a converted model is tried."""

WEIGHTS = ("int8", "float32")
"""How a converted model stores its weights: the first that proves close. Very small models lose too much in 8 bits."""

RECORD = "parity.json"

UNUSED_DAYS = 60
"""Converted models that were not used for so long are removed when another is converted."""

TOLERANCE = 0.15
"""The largest mean difference of a token's log-probability, in nats, that is accepted on the sample sentences."""


class UnsupportedModel(Exception):
    """Why CTranslate2 cannot run a model."""


def check_installed() -> None:
    """Raise `UnsupportedModel` where CTranslate2 is not installed or cannot be imported."""
    try:
        import ctranslate2  # noqa: F401
    except ModuleNotFoundError:
        raise UnsupportedModel("it is not installed: pip install ctranslate2") from None
    except ImportError as error:
        raise UnsupportedModel(f"it is installed but cannot be imported: {error}") from None


def check_supported(artifact: Artifact) -> None:
    """Raise `UnsupportedModel` with every setting of a model that CTranslate2 has no layer for."""
    model = artifact.recipe.model
    if model.kind != "transformer":
        raise UnsupportedModel(f"it has no {model.kind} models")
    width = model.d_model // model.n_heads
    faults = []
    if model.window:
        faults.append("restricted attention (model.window)")
    if model.join_positions != "add":
        faults.append("concatenated positions (model.join_positions)")
    if (model.key_width, model.value_width) != (width, width) or model.d_model % model.n_heads:
        faults.append("heads of a width of their own (model.d_k, model.d_v)")
    if faults:
        raise UnsupportedModel(f"it has no {', no '.join(faults)}")


def convert(artifact: Artifact, folder: Path, console: Console) -> Path:
    """The converted model: the one of the user's cache if nothing changed, else a new one that proved close."""
    reasons = []
    for kind in WEIGHTS:
        difference, home = _convert_with(artifact, folder, kind, console)
        if difference <= TOLERANCE:
            return home
        reasons.append(f"with {kind} weights its log-probabilities differ by {difference:.3f} on average")
    raise UnsupportedModel(f"{'; '.join(reasons)}; {TOLERANCE} is allowed")


def _convert_with(artifact: Artifact, folder: Path, kind: str, console: Console) -> tuple[float, Path]:
    """How far the converted model is from the reference, and its folder."""
    facts = {
        "model": artifact.seal or sha256_of(manifest.current_folder(folder) / manifest.NAME),
        "ctranslate2": importlib.metadata.version("ctranslate2"),
        "version": VERSION,
    }
    home = _place(facts) / f"ctranslate2-{kind}"
    known = _stored_difference(home, facts)
    if known is not None:
        with contextlib.suppress(OSError):
            os.utime(home.parent)
        return known, home
    console.say(f"converting the model for CTranslate2 with {kind} weights (once) …")
    spec = _optimised_spec(artifact, kind)
    building = _building_folder(home, console)
    with try_lock_folder(building):
        try:
            difference = _write_copy(spec, artifact, building, facts)
        except BaseException:
            shutil.rmtree(building, ignore_errors=True)
            raise
        return difference, _move_into_place(building, home, facts)


def _place(facts: dict[str, Any]) -> Path:
    """Where in the user's cache the copies of a model are kept."""
    return cache_folder() / "ctranslate2" / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:32]


def _remove_unused(used: Path) -> None:
    """Remove converted models that were last used long before the one that is used now."""
    os.utime(used)
    oldest = used.stat().st_mtime - UNUSED_DAYS * 24 * 3600
    for place in used.parent.iterdir():
        with contextlib.suppress(OSError):
            if place.stat().st_mtime < oldest:
                shutil.rmtree(place)


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


def _optimised_spec(artifact: Artifact, kind: str) -> Any:
    """The model as a specification of CTranslate2, quantised."""
    from undivided.inference.engines.ctranslate2_spec import make_spec

    spec = make_spec(artifact, position_count(artifact.recipe.model))
    spec.validate()
    spec.optimize(quantization=kind)
    return spec


def _write_copy(spec: Any, artifact: Artifact, building: Path, facts: dict[str, Any]) -> float:
    """Write the converted model with its record; how far it is from the reference."""
    spec.save(str(building))
    _write_shortlist(artifact, building / SHORTLIST)
    difference = parity(building, artifact)
    (building / RECORD).write_text(json.dumps({"facts": facts, "difference": difference}, indent=2) + "\n")
    manifest.write(building, sorted(part.name for part in building.iterdir()))
    return difference


def _move_into_place(building: Path, home: Path, facts: dict[str, Any]) -> Path:
    """Move a converted model into its place, unless another process was faster; where it is."""
    if building.parent == home.parent:
        if _stored_difference(home, facts) is None:
            shutil.rmtree(home, ignore_errors=True)
        with contextlib.suppress(OSError):
            return building.rename(home)
        if _stored_difference(home, facts) is not None:
            shutil.rmtree(building, ignore_errors=True)
            return home
    atexit.register(shutil.rmtree, building, ignore_errors=True)
    return building


def _stored_difference(home: Path, facts: dict[str, Any]) -> float | None:
    """How far a converted model is from the reference; None where there is none, or a damaged one, or that of another model."""
    try:
        listed = manifest.verify(home, [RECORD, "model.bin", "config.json"])
        record = read_json(home / RECORD)
        foreign = (home / SHORTLIST).exists() and SHORTLIST not in listed
        return float(record["difference"]) if record["facts"] == facts and not foreign else None
    except (InputError, OSError, KeyError, TypeError, ValueError):
        return None


def _write_shortlist(artifact: Artifact, path: Path) -> None:
    """Write the shortlist in the format of CTranslate2, which cannot express subwords that contain white space."""
    pieces = [side.pieces(range(len(side))) for side in (artifact.tokenizer.source, artifact.tokenizer.target)]
    if artifact.shortlist is not None and not any(set(piece) & set(" \t\n") for side in pieces for piece in side):
        path.write_text("\n".join(artifact.shortlist.vocabulary_map(*pieces)) + "\n", encoding="utf-8", newline="\n")


def sample_rows(vocabulary: int, count: int = 16, length: int = 12) -> list[list[int]]:
    """Made-up sentences over a vocabulary, always the same: a model folder holds no text to try it on."""
    bits = random_bits(count * length, vocabulary, SAMPLES).reshape(count, length)
    return [[*(int(word) for word in EOS + 1 + row % np.uint64(vocabulary - EOS - 1)), EOS] for row in bits]


def parity(home: Path, artifact: Artifact) -> float:
    """Mean absolute difference of log-probabilities between the engines, on the reference's translations of sample sentences."""
    right, theirs = score_samples(home, artifact)
    return float(np.mean([abs(a - b) for one, other in zip(right, theirs, strict=True) for a, b in zip(one, other, strict=True)]))


def score_samples(home: Path, artifact: Artifact) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probability of every token of the reference's translations of sample sentences: the reference's, and CTranslate2's."""
    from undivided.inference.search import forced_scores

    engine = CTranslate2Engine(home, artifact, 1)
    reference = engine.reference
    sources = sample_rows(len(artifact.tokenizer.source))
    config = SearchConfig(beam_size=1, max_extra=5)
    found = dict(reference.search(sources, config, [[]] * len(sources), range(len(sources))))
    targets = [[*found[place][0].tokens, EOS] for place in range(len(sources))]
    return forced_scores(reference.model, sources, targets, reference.device), engine.scores(sources, targets)
