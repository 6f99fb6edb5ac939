"""Convert a model for CTranslate2: once, in 8-bit integers, kept in the user's cache, used when it proved close.

Never beside the model: CTranslate2 believes what it reads, so it reads only what this user's own process has written.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Any

from undivided.artifact import Artifact
from undivided.core.console import Console
from undivided.inference.engines.copies import TOLERANCE, Copy, UnsupportedModel, compare_on_samples, mean_difference
from undivided.inference.engines.ctranslate2 import SHORTLIST, CTranslate2Engine, position_count

VERSION = 3
"""Of what `convert` writes: a converted model of another version is converted again."""

WEIGHTS = ("int8", "float32")
"""How a converted model stores its weights: the first that proves close. Very small models lose too much in 8 bits."""


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
    if model.decoder_self != "attention":
        faults.append(f"decoders without self-attention (model.decoder_self {model.decoder_self})")
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
    facts = {"ctranslate2": importlib.metadata.version("ctranslate2"), "version": VERSION}

    def write(home: Path) -> None:
        _optimised_spec(artifact, kind).save(str(home))
        _write_shortlist(artifact, home / SHORTLIST)

    what = f"converting the model for CTranslate2 with {kind} weights (once) …"
    copy = Copy("ctranslate2", f"ctranslate2-{kind}", facts, ("model.bin", "config.json"), (SHORTLIST,), what)
    return copy.open(artifact, folder, write, lambda home: parity(home, artifact), console)


def _optimised_spec(artifact: Artifact, kind: str) -> Any:
    """The model as a specification of CTranslate2, quantised."""
    from undivided.inference.engines.ctranslate2_spec import make_spec

    spec = make_spec(artifact, position_count(artifact.recipe.model))
    spec.validate()
    spec.optimize(quantization=kind)
    return spec


def _write_shortlist(artifact: Artifact, path: Path) -> None:
    """Write the shortlist in the format of CTranslate2, which cannot express subwords that contain white space."""
    pieces = [side.pieces(range(len(side))) for side in (artifact.tokenizer.source, artifact.tokenizer.target)]
    if artifact.shortlist is not None and not any(set(piece) & set(" \t\n") for side in pieces for piece in side):
        path.write_text("\n".join(artifact.shortlist.vocabulary_map(*pieces)) + "\n", encoding="utf-8", newline="\n")


def parity(home: Path, artifact: Artifact) -> float:
    """How far a converted model is from the reference."""
    return mean_difference(*score_samples(home, artifact))


def score_samples(home: Path, artifact: Artifact) -> tuple[list[list[float]], list[list[float]]]:
    """Log-probability of every token of the reference's translations of sample sentences: the reference's, and CTranslate2's."""
    return compare_on_samples(CTranslate2Engine(home, artifact, 1), artifact)
