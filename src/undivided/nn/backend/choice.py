"""Who computes: the questions that every function of the backend asks before it hands its work to the C kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from undivided.nn.library import load_library


def supports_kernels(*tensors: Tensor) -> bool:
    """Whether the C kernels can compute with these: float32 on a CPU, and there are kernels."""
    return all(each.dtype is torch.float32 and each.device.type == "cpu" for each in tensors) and load_library() is not None


def trains_with_kernels(*tensors: Tensor) -> bool:
    """Whether the C kernels compute with these where a gradient will be asked for."""
    return torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu") and supports_kernels(*tensors)


def decodes_with_kernels(*tensors: Tensor) -> bool:
    """Whether the C kernels compute with these where no gradient will ever be asked for: in inference mode."""
    return torch.is_inference_mode_enabled() and not torch.is_autocast_enabled("cpu") and supports_kernels(*tensors)
