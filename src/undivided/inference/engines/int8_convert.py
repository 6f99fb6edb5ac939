"""Our Transformer in 8 bits: what can be expressed, and its arrays by name."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from undivided.artifact import Artifact
from undivided.inference.engines.ctranslate2 import position_count
from undivided.inference.engines.ctranslate2_spec import position_rows
from undivided.inference.engines.int8_model import ACTIVATIONS, Arrays, pack
from undivided.models import Transformer


def make_arrays(artifact: Artifact) -> tuple[Arrays, dict[str, Any]]:
    """The packed weights of a model, and its sizes."""
    model, config = artifact.model, artifact.recipe.model
    assert isinstance(model, Transformer)
    arrays: Arrays = {}
    for name, layers, norm in (
        ("encoder", model.encoder, model.encoder_norm),
        ("decoder", model.decoder, model.decoder_norm),
    ):
        if isinstance(norm, nn.LayerNorm):
            _norm(arrays, f"{name}.last_norm", norm)
        for number, layer in enumerate(layers):
            _layer(arrays, f"{name}.{number}", layer)
    if artifact.draft is not None:
        _layer(arrays, "draft.0", artifact.draft.layer)
        if isinstance(artifact.draft.norm, nn.LayerNorm):
            _norm(arrays, "draft.last_norm", artifact.draft.norm)
    _product(arrays, "output", model.output_weight, model.output_bias)
    arrays["source"], arrays["target"] = _array(model.source_embedding.weight), _array(model.target_embedding.weight)
    arrays["positions"] = position_rows(artifact, position_count(config))
    facts = {
        "encoder_layers": config.encoder_layers,
        "decoder_layers": config.decoder_layers,
        "draft_layers": int(artifact.draft is not None),
        "width": config.d_model,
        "heads": config.n_heads,
        "inner_width": config.d_ff,
        "pre": int(config.norm == "pre"),
        "activation": ACTIVATIONS[config.activation],
        "epsilon": config.norm_epsilon,
        "scale": math.sqrt(config.d_model) if config.scale_embeddings else 1.0,
    }
    return arrays, facts


def _layer(arrays: Arrays, name: str, layer: Any) -> None:
    """One encoder or decoder layer."""
    norms = [residual.norm for residual in layer.residuals]
    products = {}
    if getattr(layer, "is_recurrent", False):
        # Gates and candidates side by side, as one product.
        forget, candidate = layer.recurrence.forget, layer.recurrence.candidate
        bias = torch.cat([forget.bias, torch.zeros_like(forget.bias)])
        _product(arrays, f"{name}.qkv", torch.cat([forget.weight, candidate.weight]), bias)
    else:
        products = {"qkv": layer.self_attention.qkv, "output": layer.self_attention.output}
    if hasattr(layer, "cross_attention"):
        across = layer.cross_attention
        products |= {"query": across.query, "key_value": across.key_value, "across": across.output}
        _norm(arrays, f"{name}.across_norm", norms[1])
    products |= {"inner": layer.feed_forward.inner, "outer": layer.feed_forward.outer}
    for part, linear in products.items():
        _product(arrays, f"{name}.{part}", linear.weight, linear.bias)
    _norm(arrays, f"{name}.attention_norm", norms[0])
    _norm(arrays, f"{name}.feed_forward_norm", norms[-1])


def _product(arrays: Arrays, name: str, weight: Tensor, bias: Tensor | None) -> None:
    arrays.update({f"{name}.{part}": array for part, array in pack(_array(weight)).items()})
    if bias is not None:
        arrays[f"{name}.bias"] = _array(bias)


def _norm(arrays: Arrays, name: str, norm: Any) -> None:
    arrays[f"{name}.gain"], arrays[f"{name}.shift"] = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    return np.ascontiguousarray(tensor.detach().float().cpu().numpy())
