"""The weights of a model: read, checked against what they are for, written."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from undivided.config import ModelConfig
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS

if TYPE_CHECKING:
    from undivided.models import Seq2Seq

WEIGHTS = "model.safetensors"
Shapes = dict[str, tuple[int, ...]]
Model = TypeVar("Model", bound=nn.Module)


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Every weight once, also where it is tied, contiguous in memory."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def fill_weights(model: nn.Module, tensors: dict[str, Tensor], origin: str) -> None:
    """Copy weights into a model; an error names all that do not fit."""
    parameters = dict(model.named_parameters())
    check_shapes(shapes_of(parameters), shapes_of(tensors), origin)
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(tensors[name])


def shapes_of(tensors: Mapping[str, Tensor]) -> Shapes:
    """The shape of each tensor."""
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def check_shapes(wanted: Shapes, found: Shapes, origin: str) -> None:
    """Raise an error that names what is missing, unknown, or of another shape."""
    faults = [f"{name} is missing" for name in wanted.keys() - found.keys()]
    faults += [f"{name} is unknown to this model" for name in found.keys() - wanted.keys()]
    for name in wanted.keys() & found.keys():
        if wanted[name] != found[name]:
            faults.append(f"{name} has shape {found[name]}, expected {wanted[name]}")
    if faults:
        raise InputError(f"{origin}: the weights do not fit the config: {'; '.join(sorted(faults)[:5])}")


def check_weights(config: ModelConfig, make: Callable[[], nn.Module], path: Path) -> None:
    """Compare a config with its weights before any memory is allocated: a config may claim any size."""
    try:
        with safe_open(path, "pt") as stored:
            found: Shapes = {name: tuple(stored.get_slice(name).get_shape()) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as safetensors: {error}") from None
    _check_config(config, make, found, path.with_name("config.json"), str(path))


def check_weights_fit(config: ModelConfig, make: Callable[[], nn.Module], tensors: Mapping[str, Tensor], origin: str) -> None:
    """The same for weights that were read already."""
    _check_config(config, make, shapes_of(tensors), origin, origin)


def _check_config(config: ModelConfig, make: Callable[[], nn.Module], found: Shapes, place: str | Path, origin: str) -> None:
    layers = sum(value for name, value in dataclasses.asdict(config).items() if name.endswith("layers"))
    if layers > len(found):
        raise InputError(f"{origin}: the config has {layers:,} layers, but there are only {len(found):,} tensors")
    try:
        with torch.device("meta"), _SkipInitialisation():
            wanted = shapes_of(dict(make().named_parameters()))
    except (RuntimeError, ValueError, TypeError, OverflowError, MemoryError) as error:
        raise InputError(f"{place}: describes no model that can be built: {error}") from None
    check_shapes(wanted, found, origin)


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file, or raise a clear error."""
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise InputError(f"{path}: damaged, it cannot be read as safetensors: {error}") from None


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write a safetensors file; the library's own error for a full disk becomes an OSError like all others."""
    try:
        save_file({name: tensor.cpu().contiguous() for name, tensor in tensors.items()}, path)
    except SafetensorError as error:
        full = "No space left" in str(error) or "code: 28" in str(error)
        raise OSError(errno.ENOSPC if full else errno.EIO, str(error), str(path)) from None


def build_model(config: ModelConfig, make: Callable[[], Model], path: Path, device: torch.device | None) -> Model:
    """A model with the weights of a file, which are checked before any memory is allocated."""
    check_weights(config, make, path)
    with _SkipInitialisation():
        model = make()
    fill_weights(model, read_tensors(path), str(path))
    check_finite(model, path)
    model.eval()
    return model.to(device) if device is not None else model


def check_finite(model: nn.Module, path: Path) -> None:
    """Refuse weights that are NaN, infinite, or too large for the numbers that the model computes with."""
    for name, parameter in model.named_parameters():
        if not torch.isfinite(parameter).all():
            raise InputError(f"{path}: damaged, or of a training that failed: {name} has values that are not finite")


def check_computes(model: Seq2Seq, path: Path) -> None:
    """Refuse finite weights that overflow: the tokens with the largest embeddings are tried, each as a sentence."""
    device = model.output_weight.device
    src, tgt = (_largest_rows(side.weight) for side in (model.source_embedding, model.target_embedding))
    ends = torch.full((len(src), 1), EOS, device=device)
    begins = torch.full((len(tgt), 1), BOS, device=device)
    with torch.inference_mode():
        memory = model.encode(torch.cat([src[:, None], ends], dim=1), None)
        logits = model.logits(model.decode(memory, torch.cat([begins, tgt[:, None]], dim=1)))
    if not torch.isfinite(logits).all():
        raise InputError(f"{path}: damaged, or of a training that failed: what the model computes with its weights overflows")


def _largest_rows(weight: Tensor, count: int = 16) -> Tensor:
    """Which rows of a matrix hold the largest values, always `count` of them."""
    rows = weight.detach().abs().amax(dim=1).argsort(descending=True)[:count]
    return rows.repeat(count)[:count]


class _SkipInitialisation(TorchFunctionMode):
    """Draw no random numbers for weights that are about to be read: in a large model that takes long."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        drawn = func in (Tensor.uniform_, Tensor.normal_)
        return args[0] if drawn else func(*args, **(kwargs or {}))
