"""The ways to run a model folder: the PyTorch model, which is the reference, and CTranslate2, proven close before it is used."""

from __future__ import annotations

from pathlib import Path

from undivided.artifact import Artifact
from undivided.config import ENGINES
from undivided.console import Console, InputError
from undivided.engines.contract import Engine
from undivided.engines.ctranslate2 import CTranslate2Engine, Unfit, convert, expressible, installed
from undivided.engines.torch import ROUNDED, TorchEngine
from undivided.products import packing_works

__all__ = ["CTranslate2Engine", "Engine", "TorchEngine", "choose_engine"]


def choose_engine(name: str, artifact: Artifact, folder: Path | None, threads: int, console: Console) -> Engine:
    """The engine that is named; `auto` takes CTranslate2 on a CPU where it can serve, else the reference and says why.

    `folder` is the model folder, beside whose parts the converted model is kept; without one there is only the reference.
    """
    reference = TorchEngine(artifact)
    if name == "torch" or folder is None:
        return reference
    if name not in ENGINES:
        raise InputError(f"engine: {name!r} is none of {', '.join(ENGINES)}")
    if name == ROUNDED:
        return _rounded(artifact)
    if name == "auto" and reference.device.type != "cpu":
        return reference
    try:
        if not installed():
            raise Unfit("it is not installed: pip install 'undivided[ctranslate2]'")
        expressible(artifact)
        return CTranslate2Engine(convert(artifact, folder, reference, console), artifact, threads, reference)
    except Unfit as reason:
        if name == "ctranslate2":
            raise InputError(f"engine: CTranslate2 cannot run this model: {reason}") from None
        console.say(f"translating with PyTorch; CTranslate2, which is faster on a CPU, cannot serve: {reason}")
        return reference


def _rounded(artifact: Artifact) -> Engine:
    """PyTorch with rounded products, where there are such."""
    engine = TorchEngine(artifact, rounded=True)
    if engine.device.type != "cpu":
        raise InputError(f"engine: {ROUNDED} is for a CPU; leave --engine out")
    if not packing_works():
        raise InputError(f"engine: this PyTorch has no {ROUNDED} products on this CPU; use --engine torch")
    return engine
