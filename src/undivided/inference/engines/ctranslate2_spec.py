"""Our Transformer as a specification of CTranslate2: declare the layers, fill in the weights."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor, nn

from undivided.artifact import Artifact
from undivided.core.ids import BOS, EOS, UNK
from undivided.models import Transformer


def make_spec(artifact: Artifact, positions: int) -> Any:
    """The specification of a model with its weights and a table of that many positions."""
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.common_spec import Activation

    model, config = _transformer(artifact), artifact.recipe.model
    activation = {"relu": Activation.RELU, "gelu": Activation.GELU, "gelu_tanh": Activation.GELUTanh}.get(
        config.activation, Activation.SWISH
    )
    spec = TransformerSpec.from_config(
        (config.encoder_layers, config.decoder_layers),
        config.n_heads,
        pre_norm=config.norm == "pre",
        activation=activation,
        ffn_glu=config.activation == "swiglu",
    )
    _fill(spec, model, position_rows(artifact, positions))
    source, target = artifact.tokenizer.source, artifact.tokenizer.target
    spec.register_source_vocabulary(source.pieces(range(len(source))))
    spec.register_target_vocabulary(target.pieces(range(len(target))))
    spec.config.add_source_eos = config.source_eos
    names = target.pieces([UNK, BOS, EOS])
    spec.config.unk_token, spec.config.bos_token, spec.config.eos_token = names
    spec.config.decoder_start_token = spec.config.bos_token
    return spec


def _transformer(artifact: Artifact) -> Transformer:
    if not isinstance(artifact.model, Transformer):
        raise TypeError("only the Transformer has a specification")
    return artifact.model


def position_rows(artifact: Artifact, count: int) -> np.ndarray:
    """The encodings of the first `count` positions, `T D`."""
    positions = _transformer(artifact).target_embedding.positions
    assert positions is not None
    if positions.kind == "none":
        return np.zeros((count, artifact.recipe.model.d_model), dtype=np.float32)
    return _array(positions.rows(count))


def _fill(spec: Any, model: Transformer, positions: np.ndarray) -> None:
    for side, layers, norm in (
        (spec.encoder, model.encoder, model.encoder_norm),
        (spec.decoder, model.decoder, model.decoder_norm),
    ):
        side.position_encodings.encodings = positions
        side.scale_embeddings = model.config.scale_embeddings
        if isinstance(norm, nn.LayerNorm):
            _norm(side.layer_norm, norm)
        for layer_spec, layer in zip(side.layer, layers, strict=True):
            _layer(layer_spec, layer)
    spec.encoder.embeddings[0].weight = _array(model.source_embedding.weight)
    spec.decoder.embeddings.weight = _array(model.target_embedding.weight)
    spec.decoder.projection.weight = _array(model.output_weight)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)


def _layer(spec: Any, layer: Any) -> None:
    """One encoder or decoder layer."""
    norms = iter(residual.norm for residual in layer.residuals)
    _linear(spec.self_attention.linear[0], layer.self_attention.qkv)
    _linear(spec.self_attention.linear[1], layer.self_attention.output)
    _norm(spec.self_attention.layer_norm, next(norms))
    if hasattr(layer, "cross_attention"):
        across = layer.cross_attention
        for part, ours in zip(spec.attention.linear, (across.query, across.key_value, across.output), strict=True):
            _linear(part, ours)
        _norm(spec.attention.layer_norm, next(norms))
    inner = layer.feed_forward.inner
    if hasattr(spec.ffn, "linear_0_noact"):
        for part, weight, bias in zip(
            (spec.ffn.linear_0, spec.ffn.linear_0_noact), inner.weight.chunk(2), inner.bias.chunk(2), strict=True
        ):
            part.weight, part.bias = _array(weight), _array(bias)
    else:
        _linear(spec.ffn.linear_0, inner)
    _linear(spec.ffn.linear_1, layer.feed_forward.outer)
    _norm(spec.ffn.layer_norm, next(norms))


def _linear(spec: Any, linear: nn.Linear) -> None:
    spec.weight = _array(linear.weight)
    if linear.bias is not None:
        spec.bias = _array(linear.bias)


def _norm(spec: Any, norm: Any) -> None:
    spec.gamma, spec.beta = _array(norm.weight), _array(norm.bias)


def _array(tensor: Tensor) -> np.ndarray:
    """A copy: CTranslate2 quantises in place, and the reference must keep its weights."""
    return tensor.detach().float().cpu().numpy().copy()
