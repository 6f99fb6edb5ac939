"""Choose the engine that runs a model: PyTorch, the reference, or a faster one, which is proven close before it is used.

Importing this must not import torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from undivided.artifact import Artifact
from undivided.config import ENGINES
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.inference.engines import int8
from undivided.inference.engines.contract import BFLOAT16, INT8, Engine
from undivided.inference.engines.copies import UnsupportedModel
from undivided.inference.engines.ctranslate2 import CTranslate2Engine
from undivided.inference.engines.ctranslate2_convert import check_installed, check_supported, convert

GPU_DEVICES = ("nvidia*", "nvhost*", "nvmap", "kfd", "dxg")
"""Device files of NVIDIA and AMD GPUs on Linux, also under WSL."""


def choose_engine(
    name: str, artifact: Artifact, folder: Path | None, threads: int, console: Console, device: str = "auto"
) -> Engine:
    """The engine of that name; `auto` takes int8 on a CPU that has such instructions, else CTranslate2, else PyTorch, and says why.

    `folder` is the model folder; without one there is only PyTorch.
    """
    if name not in ENGINES:
        raise InputError(f"engine: {name!r} is unknown; choose one of {', '.join(ENGINES)}")
    if name == "torch" or folder is None:
        return _reference(artifact)
    if name == BFLOAT16:
        return _bfloat16(artifact)
    if name == "auto" or device not in ("auto", "cpu"):
        on_cpu = is_cpu_only(device) or artifact.device.type == "cpu"
        if name == "auto" and not on_cpu:
            return _reference(artifact)
    reasons = []
    for engine, what, build in ((INT8, "the engine int8", _int8), ("ctranslate2", "CTranslate2", _ctranslate2)):
        if name in ("auto", engine):
            try:
                found = build(artifact, folder, threads, console)
            except UnsupportedModel as reason:
                reasons.append(f"{what} cannot run this model: {reason}")
                continue
            if reasons:
                console.say(f"translating with {what}, since {reasons[0]}")
            return found
    if name != "auto":
        raise InputError(f"engine: {reasons[0]}")
    console.say(f"translating with PyTorch, since what is faster on a CPU does not serve: {'; '.join(reasons)}")
    return _reference(artifact)


def _int8(artifact: Artifact, folder: Path, threads: int, console: Console) -> Engine:
    """Our own products of 8 bits."""
    int8.check_supported(artifact)
    return int8.Int8Engine(int8.convert(artifact, folder, console), artifact, threads)


def _ctranslate2(artifact: Artifact, folder: Path, threads: int, console: Console) -> Engine:
    """CTranslate2."""
    check_installed()
    check_supported(artifact)
    return CTranslate2Engine(convert(artifact, folder, console), artifact, threads)


def is_cpu_only(device: str, devices: Path = Path("/dev")) -> bool:
    """Whether a setting means the CPU for certain; `auto` does where no GPU is found, without importing torch."""
    if device == "auto" and sys.platform == "linux":
        return not any(True for name in GPU_DEVICES for _ in devices.glob(name))
    return device == "cpu"


def _reference(artifact: Artifact) -> Engine:
    """PyTorch."""
    from undivided.inference.engines.torch import TorchEngine

    return TorchEngine(artifact)


def _bfloat16(artifact: Artifact) -> Engine:
    """PyTorch with bfloat16 products, where they are supported."""
    from undivided.inference.engines.torch import TorchEngine
    from undivided.nn.backend import packing_works

    engine = TorchEngine(artifact, bfloat16=True)
    if engine.device.type != "cpu":
        raise InputError(f"engine: {BFLOAT16} needs a CPU; leave --engine out, or add --device cpu")
    if not packing_works(rounded=True):
        raise InputError(f"engine: this PyTorch cannot run {BFLOAT16} on this CPU; use --engine torch")
    return engine
