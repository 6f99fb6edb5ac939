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


def export_model(model: str | Path, out: str | Path, to: str, console: Console, weights: str = "float32") -> None:
    """Write a model for another engine; nothing is left behind where it cannot be expressed or computes something else."""
    target = Path(out)
    if target.exists():
        raise InputError(f"{target}: exists already; choose a new name")
    if not target.parent.is_dir():
        raise InputError(f"{target.parent}: no such folder")
    if weights != "float32" and to not in ("ctranslate2", "argos"):
        raise InputError(f"--weights {weights}: only CTranslate2 and Argos store weights so; leave it out")
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
    from undivided.interop.ctranslate2_out import export_ctranslate2

    return export_ctranslate2
