"""Export a translator as `MarianMTModel` and `MarianTokenizer` of `transformers` load it (and version 4's translation pipeline).

Post-norm models become Marian, pre-norm ones Pegasus, which is Marian with the norms before the sub-layers. Sines and cosines
that alternate, as in the paper, are put into halves by a new order of the d_model dimensions, which no layer notices.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from undivided.artifact import Artifact
from undivided.artifact.weights import weights, write_tensors
from undivided.core.errors import UndividedError
from undivided.core.files import write_atomic
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.subwords import Subwords
from undivided.interop.foreign import Reasons
from undivided.interop.layers import Attention, Layer, Linear, Tensors, split_layer
from undivided.interop.parity import compare_logits, sample_sources, transformers_logits
from undivided.interop.vocabulary import MASKED, Vocabulary
from undivided.models import Seq2Seq

ACTIVATIONS = {"swish": "swish", "relu": "relu", "gelu": "gelu", "gelu_tanh": "gelu_new"}
POSITIONS = 1024
LICENSES = "other"


class Sides(NamedTuple):
    """The matrices of both vocabularies, and the bias of the logits."""

    source: Tensor
    target: Tensor
    output: Tensor
    bias: Tensor


def export_marian(artifact: Artifact, folder: Path) -> dict[str, Any]:
    """Write the folder; the record of how `transformers` computes beside us."""
    check_expressible(artifact)
    sides = _sides(artifact.model)
    shared = sides.source.shape == sides.target.shape and sides.source.equal(sides.target)
    orders = _orders(artifact, sides, shared)
    config = _config(artifact, orders, shared)
    write_tensors(folder / "model.safetensors", _tensors(artifact, sides, orders, shared))
    for name, side in (("source.spm", artifact.tokenizer.source), ("target.spm", artifact.tokenizer.target)):
        write_atomic(folder / name, side.model)
    for name, order in zip(("vocab.json", "target_vocab.json")[: 1 if shared else 2], orders, strict=False):
        _write(folder / name, {piece: token for token, piece in enumerate(order.pieces)})
    _write(folder / "config.json", config)
    _write(folder / "generation_config.json", _generation(artifact, config))
    _write(folder / "tokenizer_config.json", _tokenizer(artifact, shared))
    write_atomic(folder / "README.md", _card(artifact))
    return _compare(artifact, folder, orders)


def check_expressible(artifact: Artifact) -> None:
    """Refuse what neither Marian nor Pegasus has, with every reason."""
    model, reasons = artifact.recipe.model, Reasons("cannot be exported to Marian")
    reasons.check(model.kind == "transformer", f"it is a {model.kind} model")
    reasons.refuse()
    reasons.check(model.source_eos, "its encoder does not read the </s> behind a source (model.source_eos)")
    own = model.decoder_self
    reasons.check(own == "attention", f"a decoder without self-attention (model.decoder_self {own}); --to bergamot has one")
    reasons.check(not model.window, "restricted attention (model.window)")
    reasons.check(model.join_positions == "add", "concatenated positions (model.join_positions)")
    reasons.check(model.activation in ACTIVATIONS, f"the activation {model.activation}")
    width = model.d_model // model.n_heads
    reasons.check((model.key_width, model.value_width) == (width, width), "heads of a width of their own (model.d_k, model.d_v)")
    if model.norm == "pre":
        reasons.check(model.tie == "all", f"pre-norm models go out as Pegasus, which has one embedding (model.tie is {model.tie})")
    reasons.refuse()


def _sides(model: Seq2Seq) -> Sides:
    bias = model.output_bias.detach() if model.output_bias is not None else torch.zeros(len(model.output_weight))
    return Sides(model.source_embedding.weight.detach(), model.target_embedding.weight.detach(), model.output_weight.detach(), bias)


def _orders(artifact: Artifact, sides: Sides, shared: bool) -> list[Vocabulary]:
    """For each side the ids of Marian: `</s> <unk>`, the words, `<s>` where it is more than padding, `<pad>` last.

    CTranslate2's own converter counts on `<pad>` in the last place. `rows` are our ids.
    """
    masked = sides.bias < MASKED / 2
    start = [] if masked[BOS] and sides.target[BOS].equal(sides.target[PAD]) else [BOS]
    tables = [(artifact.tokenizer.source, sides.source), (artifact.tokenizer.target, sides.target)]
    orders = []
    for subwords, matrix in tables[1:] if shared else tables:
        spare = (
            masked & (matrix == matrix[UNK]).all(dim=1)
            if len(masked) == len(matrix)
            else torch.zeros(len(matrix), dtype=torch.bool)
        )
        words = [token for token in range(EOS + 1, len(matrix)) if not spare[token]]
        orders.append(([EOS, UNK, *words], subwords))
    longest = max(len(rows) for rows, _ in orders)
    result = []
    for rows, subwords in orders:
        fill = longest - len(rows)
        names = [*subwords.pieces(rows), *(f"<filler {place}>" for place in range(fill)), *(["<s>"] if start else []), "<pad>"]
        result.append(
            Vocabulary(names, rows + [UNK] * fill + start + [PAD], [False] * len(rows) + [True] * fill + [False] * (1 + len(start)))
        )
    return result * (2 if shared else 1)


def _config(artifact: Artifact, orders: list[Vocabulary], shared: bool) -> dict[str, Any]:
    model, size = artifact.recipe.model, len(orders[1].pieces)
    family = ("pegasus", "PegasusForConditionalGeneration") if model.norm == "pre" else ("marian", "MarianMTModel")
    return {
        "model_type": family[0], "architectures": [family[1]], "vocab_size": len(orders[0].pieces), "decoder_vocab_size": size,
        "d_model": model.d_model, "encoder_layers": model.encoder_layers, "decoder_layers": model.decoder_layers,
        "encoder_ffn_dim": model.d_ff, "decoder_ffn_dim": model.d_ff, "encoder_attention_heads": model.n_heads,
        "decoder_attention_heads": model.n_heads, "activation_function": ACTIVATIONS[model.activation], "dropout": model.dropout,
        "attention_dropout": model.attention_dropout, "activation_dropout": model.activation_dropout,
        "scale_embedding": model.scale_embeddings, "share_encoder_decoder_embeddings": shared,
        "tie_word_embeddings": model.tie != "none", "max_position_embeddings": model.position_limit or POSITIONS,
        "static_position_embeddings": True, "is_encoder_decoder": True, "pad_token_id": size - 1, "eos_token_id": 0,
        "bos_token_id": None, "forced_eos_token_id": None,
        "decoder_start_token_id": size - 2 if BOS in orders[1].rows else size - 1, "torch_dtype": "float32",
    }  # fmt: skip


def _tensors(artifact: Artifact, sides: Sides, orders: list[Vocabulary], shared: bool) -> Tensors:
    """The weights under the names of `transformers`."""
    config, ours = artifact.recipe.model, weights(artifact.model)
    halves = torch.arange(config.d_model)
    if config.positions == "sinusoidal":
        halves = torch.cat([halves[0::2], halves[1::2]])
    source, target = (orders[side].pick(matrix)[:, halves] for side, matrix in enumerate((sides.source, sides.target)))
    found = (
        {"model.shared.weight": target}
        if shared
        else {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target}
    )
    if config.tie == "none":
        found["lm_head.weight"] = orders[1].pick(sides.output)[:, halves]
    found["final_logits_bias"] = orders[1].bias(sides.bias)[None]
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for place in range(count):
            layer = _reorder(split_layer(ours, f"{side}.{place}", config), halves)
            found |= {f"model.{side}.layers.{place}.{name}": tensor for name, tensor in _layer(layer).items()}
        if config.norm == "pre":
            found |= {f"model.{side}.layer_norm.{kind}": ours[f"{side}_norm.{kind}"][halves] for kind in ("weight", "bias")}
        # Marian makes its sinusoids by itself; Pegasus does too, but warns where the file has none.
        if config.positions not in ("sinusoidal", "halves") or config.norm == "pre":
            found[f"model.{side}.embed_positions.weight"] = _positions(artifact)[:, halves]
    return {name: tensor.clone() for name, tensor in found.items()}


def _positions(artifact: Artifact) -> Tensor:
    model = artifact.recipe.model
    positions = artifact.model.target_embedding.positions
    if positions is None or positions.kind == "none":
        return torch.zeros(POSITIONS, model.d_model)
    return positions.rows(model.position_limit or POSITIONS).detach()


def _reorder(layer: Layer, halves: Tensor) -> Layer:
    """A layer whose inputs and outputs have their dimensions in another order."""

    def reads(linear: Linear) -> Linear:
        return Linear(linear.weight[:, halves], linear.bias)

    def writes(linear: Linear) -> Linear:
        return Linear(linear.weight[halves], linear.bias[halves])

    def attention(part: Attention) -> Attention:
        return Attention(reads(part.query), reads(part.key), reads(part.value), writes(part.output))

    across = None if layer.across is None else attention(layer.across)
    assert isinstance(layer.attention, Attention)
    return Layer(
        attention(layer.attention), across, reads(layer.inner), writes(layer.outer), [writes(norm) for norm in layer.norms]
    )


def _layer(layer: Layer) -> Tensors:
    """One layer under the names of `transformers`."""
    parts = {"fc1": layer.inner, "fc2": layer.outer, "self_attn_layer_norm": layer.norms[0], "final_layer_norm": layer.norms[-1]}
    if layer.across is not None:
        parts["encoder_attn_layer_norm"] = layer.norms[1]
    assert isinstance(layer.attention, Attention)
    for name, attention in (("self_attn", layer.attention), ("encoder_attn", layer.across)):
        for part, linear in zip(["q", "k", "v", "out"], attention or (), strict=False):
            parts[f"{name}.{part}_proj"] = linear
    return {f"{name}.{kind}": tensor for name, part in parts.items() for kind, tensor in part._asdict().items()}


def _generation(artifact: Artifact, config: dict[str, Any]) -> dict[str, Any]:
    search = artifact.recipe.search
    never = sorted({config["pad_token_id"], config["decoder_start_token_id"], 1})
    return {
        "num_beams": search.beam_size, "length_penalty": search.length_penalty, "max_length": 512, "do_sample": False,
        "bad_words_ids": [[token] for token in never], "pad_token_id": config["pad_token_id"], "eos_token_id": 0,
        "decoder_start_token_id": config["decoder_start_token_id"],
    }  # fmt: skip


def _tokenizer(artifact: Artifact, shared: bool) -> dict[str, Any]:
    data = artifact.recipe.data
    return {
        "tokenizer_class": "MarianTokenizer", "source_lang": data.source_lang or None, "target_lang": data.target_lang or None,
        "separate_vocabs": not shared, "model_max_length": 512, "unk_token": "<unk>", "eos_token": "</s>", "pad_token": "<pad>",
    }  # fmt: skip


def _card(artifact: Artifact) -> str:
    data, facts = artifact.recipe.data, artifact.facts
    lines = ["---", f"license: {facts.get('license') or LICENSES}", "tags: [translation]"]
    languages = [language for language in (data.source_lang, data.target_lang) if language]
    lines += [f"language: {json.dumps(languages)}"] if languages else []
    use = ["```python", "from transformers import MarianMTModel, MarianTokenizer", "```"]
    return (
        "\n".join([*lines, "pipeline_tag: translation", "---", "", f"# {' → '.join(languages) or 'A translator'}", "", *use]) + "\n"
    )


def _write(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def _compare(artifact: Artifact, folder: Path, orders: list[Vocabulary]) -> dict[str, Any]:
    """Load the folder as its users will, and compare."""
    if importlib.util.find_spec("transformers") is None:
        return {"runtime": "none", "reason": "transformers is not installed"}
    from transformers import AutoModelForSeq2SeqLM, MarianTokenizer

    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder, local_files_only=True)
    sides = zip(orders, (artifact.tokenizer.source, artifact.tokenizer.target), strict=True)
    ours = tuple(_inverse(order, len(subwords)) for order, subwords in sides)
    _compare_subwords(artifact.tokenizer.source, ours[0], MarianTokenizer.from_pretrained(folder, local_files_only=True))
    return compare_logits(artifact.model, (ours[0], ours[1]), transformers_logits(theirs), "transformers")


def _compare_subwords(subwords: Subwords, vocabulary: Vocabulary, theirs: Any) -> None:
    """Text must become the same ids there."""
    rows = [[token for token in row if token not in subwords.unknown] for row in sample_sources(vocabulary)]
    texts = subwords.decode(rows)
    for number, (text, row) in enumerate(zip(texts, subwords.encode(texts), strict=True), 1):
        wanted, found = [vocabulary.rows[token] for token in row], list(theirs(text).input_ids)
        if wanted != found:
            step = next((place for place, both in enumerate(zip(wanted, found, strict=False)) if both[0] != both[1]), len(found))
            raise UndividedError(
                f"MarianTokenizer splits text in another way: sample sentence {number}, {text!r}, subword {step + 1}: "
                f"{theirs.convert_ids_to_tokens(found[step : step + 1])} instead of {subwords.pieces(row[step : step + 1])}"
            )


def _inverse(order: Vocabulary, size: int) -> Vocabulary:
    """For each of our ids, the one that was written; the start symbol may be their padding."""
    rows = [-1] * size
    for token, ours in enumerate(order.rows):
        if not order.masked[token]:
            rows[ours] = token
    masked = [row < 0 for row in rows]
    rows[BOS] = rows[PAD] if masked[BOS] else rows[BOS]
    return Vocabulary(order.pieces, rows, masked)
