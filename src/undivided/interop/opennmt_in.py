"""Import Transformer checkpoints of OpenNMT-py (`.pt` with a sentencepiece model beside it); nothing is unpickled.

Its weights are given the names that CTranslate2 has for them, and come in as from there. Sources have no `</s>`
(`model.source_eos` false). Its LayerNorm adds ε = 10⁻⁶ to a variance; here it is 10⁻⁵, as in CTranslate2, which matters where
activations are small.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.data.subwords import MAX_MODEL_BYTES
from undivided.interop.ctranslate2_in import NO_SUBWORDS, Package, import_variables, subword_files
from undivided.interop.foreign import Imported, Reasons, Tensors, origin, plain_file
from undivided.interop.torch_file import Inert, read_checkpoint

ACTIVATIONS = {"relu": 0, "fast_gelu": 1, "gelu": 3}
"""OpenNMT-py's names, with CTranslate2's numbers. Its silu is a gated layer, which no seq2seq model of CTranslate2 reads."""
START, END, UNKNOWN, PADDING = "<s>", "</s>", "<unk>", "<blank>"
EMBEDDINGS = "embeddings.make_embedding"


def import_opennmt(folder: Path, license: str = "") -> Imported:
    """Read a folder with one checkpoint and the sentencepiece model, or models, of its text."""
    checkpoints = sorted(folder.glob("*.pt"))
    if len(checkpoints) != 1:
        raise InputError(f"{folder}: expected one checkpoint (.pt), found {len(checkpoints)}")
    path = plain_file(folder, checkpoints[0].name)
    if not subword_files(folder):
        raise InputError(f"{folder}: cannot be imported: {NO_SUBWORDS}")
    spm = [plain_file(folder, name) for name in subword_files(folder)]
    tensors, whole = read_checkpoint(path, "model")
    settings = _settings(whole, path)
    try:
        tensors |= {f"generator.{name.removeprefix('0.')}": value for name, value in read_checkpoint(path, "generator")[0].items()}
        vocabularies = [_pieces(whole["vocab"], side) for side in ("src", "tgt")]
        _check_expressible(settings, tensors, whole["vocab"], path)
        variables = rename_variables(tensors, settings)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise InputError(f"{path}: no Transformer of the expected form: {type(error).__name__}: {error}") from None
    config = {
        "add_source_eos": False, "unk_token": UNKNOWN, "bos_token": START, "eos_token": END,
        "pad_token": PADDING, "decoder_start_token": str(settings.get("decoder_start_token") or START),
    }  # fmt: skip
    shared = vocabularies[0] == vocabularies[1]
    subwords = [read_bounded(each, MAX_MODEL_BYTES) for each in spm]
    languages = str(settings.get("src_lang") or ""), str(settings.get("tgt_lang") or "")
    package = Package(str(path), b"", config, vocabularies[: 1 if shared else 2], subwords, languages)
    found = import_variables(package, variables, "")
    found.facts |= origin(folder, "OpenNMT-py", dict.fromkeys([path, *spm]), license)
    found.runtime = {"runtime": "none", "reason": "OpenNMT-py unpickles what it reads, so it is not given foreign files"}
    return found


def _settings(whole: Any, path: Path) -> Mapping[str, Any]:
    """What a checkpoint was trained with, and that it is one of OpenNMT-py."""
    known = isinstance(whole, dict) and {"model", "generator", "vocab", "opt"} <= whole.keys()
    settings = whole["opt"].state if known and isinstance(whole["opt"], Inert) else whole.get("opt") if known else None
    if not isinstance(settings, dict) or not settings:
        raise InputError(
            f"{path}: neither a checkpoint of OpenNMT-py (model, generator, vocab, opt) nor, with its dict.LANGUAGE.txt, of fairseq"
        )
    return settings


def _pieces(vocabulary: Any, side: str) -> list[str]:
    """The pieces of a side: a list, or in older versions a torchtext field, read as inert data."""
    found = vocabulary[side] if isinstance(vocabulary, dict) else dict(vocabulary)[side]
    for name in ("fields", "vocab", "itos"):
        if isinstance(found, Inert) and name in found.state:
            found = found.state[name]
            if name == "fields":
                found = found[0][1]
    if not isinstance(found, list) or not all(isinstance(piece, str) for piece in found):
        raise ValueError(f"its {side} vocabulary is no list of pieces")
    return found


def _check_expressible(settings: Mapping[str, Any], tensors: Tensors, vocabulary: Any, path: Path) -> None:
    """Refuse settings that our Transformer cannot express, with every reason."""
    reasons = Reasons(f"{path}: cannot be imported")
    for side in ("encoder", "decoder"):
        kind = settings.get(f"{side}_type")
        reasons.check(kind == "transformer", f"its {side} is {kind!r}, not transformer")
    activation = settings.get("pos_ffn_activation_fn", "relu")
    reasons.check(activation in ACTIVATIONS, f"the activation {activation!r} is unknown here; known: {', '.join(ACTIVATIONS)}")
    attention = str(settings.get("self_attn_type", "scaled-dot"))
    reasons.check(attention.startswith("scaled-dot"), f"its self-attention is {attention}")
    reasons.check(bool(settings.get("position_encoding")), "it adds no positions (position_encoding)")
    reasons.check(settings.get("layer_norm", "standard") == "standard", f"its layer_norm is {settings.get('layer_norm')}")
    for name in ("max_relative_positions", "multiquery", "num_kv", "parallel_residual", "full_context_alignment"):
        reasons.check(not settings.get(name), f"{name} {settings.get(name)}")
    more = [name for name in tensors if ".w_3." in name or "relative_positions" in name or "emb_luts.1." in name]
    reasons.check(not more, f"it has {more[:1]}, which ours has not")
    features = vocabulary.get("src_feats") if isinstance(vocabulary, dict) else None
    reasons.check(not features, "its source has features beside words")
    for name in ("heads", "enc_layers", "dec_layers"):
        reasons.check(type(settings.get(name)) is int and 0 < settings[name] < 1000, f"{name} is {settings.get(name)!r}")
    reasons.refuse()


def rename_variables(tensors: Tensors, settings: Mapping[str, Any]) -> Tensors:
    """The weights as variables of CTranslate2."""
    tensors = {name: value.float() for name, value in tensors.items()}
    found: Tensors = {}

    def linear(name: str, *parts: str) -> None:
        weights = [tensors[f"{part}.weight"] for part in parts]
        biases = [tensors.get(f"{part}.bias", value.new_zeros(len(value))) for part, value in zip(parts, weights, strict=True)]
        found.update({f"{name}/weight": torch.cat(weights), f"{name}/bias": torch.cat(biases)})

    def norm(name: str, part: str) -> None:
        gain = tensors[f"{part}.weight"] if f"{part}.weight" in tensors else tensors[f"{part}.a_2"]
        shift = tensors.get(f"{part}.bias", tensors.get(f"{part}.b_2", torch.zeros_like(gain)))
        found.update({f"{name}/gamma": gain, f"{name}/beta": shift})

    def attention(name: str, part: str, norm_part: str, own: bool) -> None:
        query, *others = (f"{part}.linear_{each}" for each in ("query", "keys", "values"))
        groups = [[query, *others]] if own else [[query], others]
        for number, group in enumerate([*groups, [f"{part}.final_linear"]]):
            linear(f"{name}/linear_{number}", *group)
        norm(f"{name}/layer_norm", norm_part)

    for side, stack in (("encoder", "encoder.transformer"), ("decoder", "decoder.transformer_layers")):
        for number in range(settings["enc_layers" if side == "encoder" else "dec_layers"]):
            at, layer = f"{side}/layer_{number}", f"{stack}.{number}"
            attention(f"{at}/self_attention", f"{layer}.self_attn", f"{layer}.layer_norm{'_1' * (side == 'decoder')}", own=True)
            if side == "decoder":
                attention(f"{at}/attention", f"{layer}.context_attn", f"{layer}.layer_norm_2", own=False)
            linear(f"{at}/ffn/linear_0", f"{layer}.feed_forward.w_1")
            linear(f"{at}/ffn/linear_1", f"{layer}.feed_forward.w_2")
            norm(f"{at}/ffn/layer_norm", f"{layer}.feed_forward.layer_norm")
        norm(f"{side}/layer_norm", f"{side}.layer_norm")
        table = tensors[f"{side}.{EMBEDDINGS}.pe.pe"]
        found[f"{side}/position_encodings/encodings"] = table.reshape(-1, table.shape[-1])
        found[f"{side}/embeddings{'_0' * (side == 'encoder')}/weight"] = tensors[f"{side}.{EMBEDDINGS}.emb_luts.0.weight"]
        numbers = {"num_heads": settings["heads"], "pre_norm": 1, "scale_embeddings": 1}
        numbers["activation"] = ACTIVATIONS[str(settings.get("pos_ffn_activation_fn", "relu"))]
        found.update({f"{side}/{name}": torch.tensor(value) for name, value in numbers.items()})
    linear("decoder/projection", "generator")
    return found
