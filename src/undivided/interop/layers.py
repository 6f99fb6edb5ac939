"""The weights of a Transformer under our names, from a foreign model's parts, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from undivided.config import ModelConfig

Tensors = dict[str, Tensor]


class Linear(NamedTuple):
    """Weight `out in` and bias of a projection, or gain and bias of a LayerNorm."""

    weight: Tensor
    bias: Tensor


class Attention(NamedTuple):
    """The four projections of an attention."""

    query: Linear
    key: Linear
    value: Linear
    output: Linear


class Recurrence(NamedTuple):
    """What an SSRU has in place of a decoder's self-attention; its candidate has no bias."""

    candidate: Tensor
    forget: Linear


class Layer(NamedTuple):
    """One layer; `across` is None in the encoder. The norms stand in the order of their sub-layers."""

    attention: Attention | Recurrence
    across: Attention | None
    inner: Linear
    outer: Linear
    norms: Sequence[Linear]


def make_attention(projections: Sequence[Linear], output: Linear) -> Attention:
    """An attention from W^Q, W^K and W^V, and W^O."""
    query, key, value = projections
    return Attention(query, key, value, output)


def stack(*parts: Linear) -> Linear:
    """Projections of the same input, as one."""
    return Linear(torch.cat([part.weight for part in parts]), torch.cat([part.bias for part in parts]))


def layer_tensors(prefix: str, layer: Layer) -> Tensors:
    """A layer under our names."""
    own = layer.attention
    if isinstance(own, Recurrence):
        parts = {"recurrence.forget": own.forget}
    else:
        parts = {"self_attention.qkv": stack(own.query, own.key, own.value), "self_attention.output": own.output}
    if layer.across is not None:
        parts["cross_attention.query"] = layer.across.query
        parts["cross_attention.key_value"] = stack(layer.across.key, layer.across.value)
        parts["cross_attention.output"] = layer.across.output
    parts |= {"feed_forward.inner": layer.inner, "feed_forward.outer": layer.outer}
    parts |= {f"residuals.{number}.norm": norm for number, norm in enumerate(layer.norms)}
    found = {f"{prefix}.{name}.{kind}": value for name, part in parts.items() for kind, value in part._asdict().items()}
    return found | ({f"{prefix}.recurrence.candidate.weight": own.candidate} if isinstance(own, Recurrence) else {})


def embedding_tensors(tie: str, source: Tensor, target: Tensor, output: Tensor) -> Tensors:
    """The matrices of a vocabulary under our names: one that is tied has one name, that of the output."""
    found = {"output_weight": output}
    if tie == "none":
        found["target_embedding.weight"] = target
    if tie != "all":
        found["source_embedding.weight"] = source
    return found


def split_layer(tensors: Tensors, prefix: str, config: ModelConfig) -> Layer:
    """A layer of ours as a foreign model has it: projections apart, zero biases where it has none."""

    def linear(name: str) -> Linear:
        weight = tensors[f"{prefix}.{name}.weight"]
        bias = tensors.get(f"{prefix}.{name}.bias")
        return Linear(weight, weight.new_zeros(len(weight)) if bias is None else bias)

    def split(name: str, count: int) -> list[Linear]:
        whole = linear(name)
        return [Linear(*both) for both in zip(whole.weight.chunk(count), whole.bias.chunk(count), strict=True)]

    own: Attention | Recurrence
    if f"{prefix}.recurrence.forget.weight" in tensors:
        own = Recurrence(tensors[f"{prefix}.recurrence.candidate.weight"], linear("recurrence.forget"))
    else:
        own = make_attention(split("self_attention.qkv", 3), linear("self_attention.output"))
    across = None
    if f"{prefix}.cross_attention.query.weight" in tensors:
        key_value = split("cross_attention.key_value", 2)
        across = make_attention([linear("cross_attention.query"), *key_value], linear("cross_attention.output"))
    norms = [linear(f"residuals.{number}.norm") for number in range(3 if across else 2)]
    return Layer(own, across, linear("feed_forward.inner"), linear("feed_forward.outer"), norms)


def named_layers(count: int, prefix: str, read: Callable[[int], Layer]) -> Tensors:
    """All layers of a stack under our names."""
    found: Tensors = {}
    for place in range(count):
        found |= layer_tensors(f"{prefix}.{place}", read(place))
    return found
