"""Load GPT-2, BERT and ViT as Hugging Face `transformers` saves them.

A folder with `config.json` and its weights is enough; `transformers` itself is not needed, and nothing is unpickled.
Tensors are renamed and stacked, but no number changes. BERT's token types are our segments.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undivided.artifact.weights import check_weights_fit, fill_weights
from undivided.config import ModelConfig
from undivided.core.errors import InputError
from undivided.core.files import read_json
from undivided.interop.foreign import read_foreign_weights
from undivided.models.decoder_only import DecoderOnly
from undivided.models.encoder_only import EncoderOnly
from undivided.models.vision import Vision

Tensors = dict[str, Tensor]

ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu", "relu": "relu", "silu": "swish"}


class Pretrained(NamedTuple):
    """A model with the weights of a folder, ready for use."""

    config: ModelConfig
    model: DecoderOnly | EncoderOnly | Vision


class Shaped(NamedTuple):
    """What a folder describes: settings, how to make a model of them, and its tensors under our names."""

    config: ModelConfig
    make: Callable[[], DecoderOnly | EncoderOnly | Vision]
    tensors: Tensors


def load_pretrained(folder: str | Path) -> Pretrained:
    """Read a folder of `transformers`: GPT-2 with its language head, BERT with words or classes, ViT with classes."""
    return read_pretrained(Path(folder))[0]


def read_pretrained(folder: Path) -> tuple[Pretrained, Tensors, Path]:
    """The same, with the tensors as they are in their file, and its path."""
    theirs = read_json(folder / "config.json")
    makers: dict[str, Callable[[Mapping[str, Any], Tensors], Shaped]] = {"gpt2": _gpt2, "bert": _bert, "vit": _vit}
    make = makers.get(str(theirs.get("model_type")))
    if make is None:
        raise InputError(f"{folder}: models of type {theirs.get('model_type')!r} are not supported; supported: {', '.join(makers)}")
    tensors, name = read_foreign_weights(folder)
    tensors = {_modern(key): value for key, value in tensors.items()}
    try:
        found = make(theirs, tensors)
    except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError, RuntimeError) as error:
        raise InputError(
            f"{folder}: not a {theirs['model_type']} model of the expected form: {type(error).__name__}: {error}"
        ) from None
    # Before any memory is taken: a config may claim any size.
    check_weights_fit(found.config, found.make, found.tensors, str(folder))
    model = found.make()
    fill_weights(model, found.tensors, str(folder))
    model.eval()
    return Pretrained(found.config, model), tensors, folder / name


def _modern(name: str) -> str:
    """The name of a tensor today: what was published first called a LayerNorm's weight gamma and its bias beta."""
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")


def _activation(theirs: Mapping[str, Any], key: str) -> Any:
    name = theirs[key]
    if name not in ACTIVATIONS:
        raise ValueError(f"{key} {name!r} is not supported; supported: {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _layer(place: int, attention: Tensors, feed_forward: Tensors, norms: tuple[Tensors, Tensors]) -> Tensors:
    """The tensors of one layer under our names."""
    parts = {"self_attention": attention, "feed_forward": feed_forward}
    parts |= {f"residuals.{number}.norm": norm for number, norm in enumerate(norms)}
    return {f"stack.layers.{place}.{part}.{name}": tensor for part, each in parts.items() for name, tensor in each.items()}


def _stack(tensors: Tensors, *names: str) -> Tensors:
    """The weight and bias of a module, or of several, stacked."""
    return {kind: torch.cat([tensors[f"{name}.{kind}"] for name in names]) for kind in ("weight", "bias")}


def _prefixed(prefix: str, tensors: Tensors) -> Tensors:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def _gpt2(theirs: Mapping[str, Any], tensors: Tensors) -> Shaped:
    """Pre-norm; W^Q, W^K, W^V stacked as ours; every matrix transposed."""
    if theirs.get("scale_attn_by_inverse_layer_idx") or not theirs.get("scale_attn_weights", True):
        raise ValueError("its attention is not scaled by √d_k")
    width = theirs["n_embd"]
    config = ModelConfig(
        kind="decoder_only", d_model=width, d_ff=theirs.get("n_inner") or 4 * width, n_heads=theirs["n_head"],
        decoder_layers=theirs["n_layer"], dropout=theirs["resid_pdrop"], norm="pre", attention_bias=True, positions="learned",
        activation=_activation(theirs, "activation_function"), max_positions=theirs["n_positions"], scale_embeddings=False,
        norm_epsilon=theirs["layer_norm_epsilon"], tie="all" if theirs.get("tie_word_embeddings", True) else "none",
    )  # fmt: skip
    tensors = {name.removeprefix("transformer."): tensor for name, tensor in tensors.items()}

    def transposed(name: str) -> Tensors:
        return {"weight": tensors[f"{name}.weight"].t(), "bias": tensors[f"{name}.bias"]}

    # A weight that is tied has one name, that of the output.
    tied = {"output_weight": tensors["wte.weight"]}
    free = {"embedding.weight": tensors["wte.weight"], "output_weight": tensors.get("lm_head.weight", tensors["wte.weight"])}
    ours: Tensors = {"embedding.positions.learned": tensors["wpe.weight"], **(free if config.tie == "none" else tied)}
    for place in range(config.decoder_layers):
        at = f"h.{place}"
        attention = _prefixed("qkv", transposed(f"{at}.attn.c_attn")) | _prefixed("output", transposed(f"{at}.attn.c_proj"))
        feed = _prefixed("inner", transposed(f"{at}.mlp.c_fc")) | _prefixed("outer", transposed(f"{at}.mlp.c_proj"))
        ours |= _layer(place, attention, feed, (_stack(tensors, f"{at}.ln_1"), _stack(tensors, f"{at}.ln_2")))
    ours |= _prefixed("stack.norm", _stack(tensors, "ln_f"))
    return Shaped(config, lambda: DecoderOnly(config, theirs["vocab_size"]), ours)


def _bert_layers(tensors: Tensors, prefix: str, count: int, names: Mapping[str, str]) -> Tensors:
    """The layers of BERT and ViT, which keep W^Q, W^K and W^V apart."""
    ours: Tensors = {}
    for place in range(count):
        at = {part: f"{prefix}.{place}.{name}" for part, name in names.items()}
        attention = _prefixed("qkv", _stack(tensors, at["query"], at["key"], at["value"]))
        attention |= _prefixed("output", _stack(tensors, at["output"]))
        feed = _prefixed("inner", _stack(tensors, at["inner"])) | _prefixed("outer", _stack(tensors, at["outer"]))
        ours |= _layer(place, attention, feed, (_stack(tensors, at["first norm"]), _stack(tensors, at["second norm"])))
    return ours


BERT = {
    "query": "attention.self.query", "key": "attention.self.key", "value": "attention.self.value",
    "output": "attention.output.dense", "inner": "intermediate.dense", "outer": "output.dense",
    "first norm": "attention.output.LayerNorm", "second norm": "output.LayerNorm",
}  # fmt: skip


def _shape(theirs: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that BERT and ViT have in common."""
    return {
        "d_model": theirs["hidden_size"], "d_ff": theirs["intermediate_size"], "n_heads": theirs["num_attention_heads"],
        "encoder_layers": theirs["num_hidden_layers"], "dropout": theirs["hidden_dropout_prob"], "attention_bias": True,
        "activation": _activation(theirs, "hidden_act"), "positions": "learned", "scale_embeddings": False,
        "norm_epsilon": theirs["layer_norm_eps"],
    }  # fmt: skip


def _bert(theirs: Mapping[str, Any], tensors: Tensors) -> Shaped:
    """Post-norm; with `cls.predictions` it predicts masked words, with `classifier` classes."""
    config = ModelConfig(kind="encoder_only", norm="post", max_positions=theirs["max_position_embeddings"], **_shape(theirs))
    classes = len(tensors["classifier.bias"]) if "classifier.bias" in tensors else 0
    ours: Tensors = {
        "embedding.weight": tensors["bert.embeddings.word_embeddings.weight"],
        "embedding.positions.learned": tensors["bert.embeddings.position_embeddings.weight"],
        "segments": tensors["bert.embeddings.token_type_embeddings.weight"],
    }
    ours |= _prefixed("embedding_norm", _stack(tensors, "bert.embeddings.LayerNorm"))
    ours |= _bert_layers(tensors, "bert.encoder.layer", config.encoder_layers, BERT)
    if classes:
        ours |= _prefixed("head.pool", _stack(tensors, "bert.pooler.dense")) | _prefixed(
            "head.output", _stack(tensors, "classifier")
        )
    else:
        ours |= _prefixed("head.transform", _stack(tensors, "cls.predictions.transform.dense"))
        ours |= _prefixed("head.norm", _stack(tensors, "cls.predictions.transform.LayerNorm"))
        ours["head.bias"] = tensors["cls.predictions.bias"]
    return Shaped(config, lambda: EncoderOnly(config, theirs["vocab_size"], classes), ours)


VIT = {
    "query": "attention.attention.query", "key": "attention.attention.key", "value": "attention.attention.value",
    "output": "attention.output.dense", "inner": "intermediate.dense", "outer": "output.dense",
    "first norm": "layernorm_before", "second norm": "layernorm_after",
}  # fmt: skip


def _vit(theirs: Mapping[str, Any], tensors: Tensors) -> Shaped:
    """Pre-norm; the convolution over patches is a linear projection of each patch."""
    side = theirs["image_size"]
    height, width = (side, side) if isinstance(side, int) else side
    patch = theirs["patch_size"]
    config = ModelConfig(
        kind="vision", norm="pre", image_height=height, image_width=width, patch=patch, channels=theirs["num_channels"],
        max_positions=(height // patch) * (width // patch) + 1, **_shape(theirs),
    )  # fmt: skip
    embeddings = "vit.embeddings"
    ours: Tensors = {
        "first": tensors[f"{embeddings}.cls_token"].flatten(),
        "positions.learned": tensors[f"{embeddings}.position_embeddings"][0],
        "project.weight": tensors[f"{embeddings}.patch_embeddings.projection.weight"].flatten(1),
        "project.bias": tensors[f"{embeddings}.patch_embeddings.projection.bias"],
    }
    ours |= _bert_layers(tensors, "vit.encoder.layer", config.encoder_layers, VIT)
    ours |= _prefixed("stack.norm", _stack(tensors, "vit.layernorm")) | _prefixed("output", _stack(tensors, "classifier"))
    return Shaped(config, lambda: Vision(config, len(tensors["classifier.bias"])), ours)
