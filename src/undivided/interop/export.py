"""`export_model`: a translator as other engines read it, run there on sample sentences and compared."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from undivided.artifact import Artifact, load_artifact
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.files import build_folder
from undivided.interop.door import describe_parity

WEIGHTS = {
    "ctranslate2": ("float32", "int16", "int8"),
    "argos": ("float32", "int16", "int8"),
    "bergamot": ("float32", "int8"),
}
"""How each format can store weights; the others know float32 alone."""


def export_model(model: str | Path, out: str | Path, to: str, console: Console, weights: str = "") -> None:
    """Write a model for another engine; nothing is left behind where it cannot be expressed or computes something else."""
    target = Path(out)
    if target.exists():
        raise InputError(f"{target}: exists already; choose a new name")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent}: no such folder")
    weights = weights or ("int8" if to == "bergamot" else "float32")
    if weights not in WEIGHTS.get(to, ("float32",)):
        raise InputError(f"--weights {weights}: {to} does not store weights so; leave it out")
    artifact = load_artifact(model)
    if to == "argos":
        from undivided.interop.argos import export_argos

        record = export_argos(artifact, target, weights)
    else:
        with build_folder(target) as building:
            record = _exporter(to)(artifact, building, weights)
    console.say(describe_parity(record))


def _exporter(to: str) -> Callable[[Artifact, Path, str], dict[str, Any]]:
    if to == "marian":
        from undivided.interop.marian_out import export_marian

        return lambda artifact, folder, _: export_marian(artifact, folder)
    if to == "onnx":
        from undivided.interop.onnx_out import export_onnx

        return lambda artifact, folder, _: export_onnx(artifact, folder)
    if to == "bergamot":
        from undivided.interop.bergamot_out import export_bergamot

        return export_bergamot
    from undivided.interop.ctranslate2_out import export_ctranslate2

    return export_ctranslate2
