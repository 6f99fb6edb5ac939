"""The ways to run a model folder: the PyTorch model, which is the reference, and CTranslate2, proven close before it is used.

Importing this must not import torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from undivided.artifact import Artifact
from undivided.config import ENGINES
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.inference.engines.contract import ROUNDED, Engine
from undivided.inference.engines.ctranslate2 import CTranslate2Engine, Unfit, convert, expressible, importable

__all__ = ["CTranslate2Engine", "Engine", "choose_engine"]

DOORS = ("nvidia*", "nvhost*", "nvmap", "kfd", "dxg")
"""Under /dev, where Linux has GPUs of NVIDIA and AMD, also in Windows' subsystem."""


def choose_engine(
    name: str, artifact: Artifact, folder: Path | None, threads: int, console: Console, device: str = "auto"
) -> Engine:
    """The engine that is named; `auto` takes CTranslate2 on a CPU where it can serve, else the reference and says why.

    `folder` is the model folder, beside whose parts the converted model is kept; without one there is only the reference.
    """
    if name not in ENGINES:
        raise InputError(f"engine: {name!r} is none of {', '.join(ENGINES)}")
    if name == "torch" or folder is None:
        return _reference(artifact)
    if name == ROUNDED:
        return _rounded(artifact)
    if name == "auto" or device not in ("auto", "cpu"):
        on_cpu = surely_cpu(device) or artifact.device.type == "cpu"
        if name == "auto" and not on_cpu:
            return _reference(artifact)
    try:
        importable()
        expressible(artifact)
        return CTranslate2Engine(convert(artifact, folder, console), artifact, threads)
    except Unfit as reason:
        if name == "ctranslate2":
            raise InputError(f"engine: CTranslate2 cannot run this model: {reason}") from None
        console.say(f"translating with PyTorch; CTranslate2, which is faster on a CPU, cannot serve: {reason}")
        return _reference(artifact)


def surely_cpu(device: str, devices: Path = Path("/dev")) -> bool:
    """Whether a setting means the CPU, where that can be told without torch: there is no other device."""
    if device == "auto" and sys.platform == "linux":
        return not any(True for door in DOORS for _ in devices.glob(door))
    return device == "cpu"


def _reference(artifact: Artifact) -> Engine:
    """PyTorch."""
    from undivided.inference.engines.torch import TorchEngine

    return TorchEngine(artifact)


def _rounded(artifact: Artifact) -> Engine:
    """PyTorch with rounded products, where there are such."""
    from undivided.inference.engines.torch import TorchEngine
    from undivided.nn.backend import packing_works

    engine = TorchEngine(artifact, rounded=True)
    if engine.device.type != "cpu":
        raise InputError(f"engine: {ROUNDED} is for a CPU; leave --engine out")
    if not packing_works():
        raise InputError(f"engine: this PyTorch has no {ROUNDED} products on this CPU; use --engine torch")
    return engine
