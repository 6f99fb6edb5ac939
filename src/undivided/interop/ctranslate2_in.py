"""Import models of CTranslate2: `model.bin` is read here, number by number; CTranslate2 itself is not asked to open it.

Weights in 8 or 16 bits are turned back into float32: what rounding took from them stays lost, which is said.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undivided.config import Recipe, build_recipe
from undivided.core.errors import InputError
from undivided.core.files import parse_json, read_bounded
from undivided.data.subword_proto import reorder_pieces
from undivided.data.subwords import MAX_MODEL_BYTES, Subwords, Tokenizer
from undivided.interop.foreign import Imported, Reasons, Tensors, build_imported, origin, plain_file
from undivided.interop.layers import Layer, Linear, embedding_tensors, make_attention, named_layers
from undivided.interop.vocabulary import (
    NO_ROW,
    SPECIAL,
    SpecialIds,
    Vocabulary,
    make_subwords,
    order_vocabulary,
    spellable_pieces,
    unwritable_pieces,
)
from undivided.nn.layers import sinusoids

DTYPES = ("<f4", "<i1", "<i2", "<i4", "<f2", "bfloat16")
ACTIVATIONS = ("relu", "gelu_tanh", "swish", "gelu")
MAX_BYTES = 8 << 30
MAX_POSITIONS = 100_000
NO_SUBWORDS = "it holds no sentencepiece model; copy source.spm and target.spm, or sentencepiece.model, into it"


class Package(NamedTuple):
    """The files of a CTranslate2 model, wherever they lie."""

    name: str
    model: bytes
    config: Mapping[str, Any]
    vocabularies: list[list[str]]
    """One that is shared, or source and target."""
    subwords: list[bytes]
    """One sentencepiece model that splits the source, or source and target."""
    languages: tuple[str, str] = ("", "")


def import_ctranslate2(folder: Path, license: str = "") -> Imported:
    """Read a folder of CTranslate2 with the sentencepiece models beside it."""
    names = [["shared_vocabulary.json"], ["source_vocabulary.json", "target_vocabulary.json"]]
    chosen = next((each for each in names if (folder / each[0]).exists()), None)
    split = subword_files(folder)
    reasons = Reasons(f"{folder}: cannot be imported")
    reasons.check(chosen is not None, "it holds no shared_vocabulary.json and no source_vocabulary.json")
    reasons.check(bool(split), NO_SUBWORDS)
    reasons.refuse()
    files = [plain_file(folder, name) for name in ("model.bin", "config.json", *(chosen or []), *split)]
    contents = {path.name: read_bounded(path, MAX_BYTES if path.name == "model.bin" else MAX_MODEL_BYTES) for path in files}
    vocabularies = [parse_vocabulary(contents[name], folder / name) for name in chosen or []]
    config = parse_config(contents["config.json"], folder / "config.json")
    package = Package(str(folder), contents["model.bin"], config, vocabularies, [contents[name] for name in split])
    found = import_package(package)
    found.facts |= origin(folder, "CTranslate2", files, license)
    return found


def subword_files(folder: Path) -> list[str]:
    """The sentencepiece models of a folder: of source and target, or one for both; empty where there is none."""
    models = [["source.spm", "target.spm"], ["source.model", "target.model"], ["sentencepiece.model"], ["subwords.model"]]
    return next((each for each in models if (folder / each[0]).exists() or (folder / each[0]).is_symlink()), [])


def parse_config(content: bytes, where: Path | str) -> dict[str, Any]:
    """The settings of a CTranslate2 model."""
    try:
        value = parse_json(content)
    except ValueError as error:
        raise InputError(f"{where}: damaged, it cannot be read as JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: damaged, it holds no JSON object")
    return value


def parse_vocabulary(content: bytes, where: Path | str) -> list[str]:
    """The pieces of a vocabulary, by id."""
    try:
        pieces = parse_json(content)
    except ValueError as error:
        raise InputError(f"{where}: damaged, it cannot be read as JSON: {error}") from None
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise InputError(f"{where}: damaged, it is no list of pieces")
    return pieces


def import_package(package: Package) -> Imported:
    """The model of a package under our names."""
    try:
        return import_variables(package, *read_variables(package.model))
    except (KeyError, TypeError, ValueError, IndexError, struct.error) as error:
        raise InputError(f"{package.name}: no CTranslate2 model of the expected form: {type(error).__name__}: {error}") from None


def import_variables(package: Package, tensors: Tensors, quantised: str) -> Imported:
    """The same with the variables of the model already read; `quantised` is how they were stored if that was not in floats."""
    try:
        _check_expressible(package, tensors)
        vocabularies = _vocabularies(package, tensors)
        recipe = _recipe(package, tensors)
        ours = _tensors(tensors, vocabularies, recipe)
    except (KeyError, TypeError, ValueError, IndexError, struct.error) as error:
        raise InputError(f"{package.name}: no model of the expected form: {type(error).__name__}: {error}") from None
    source = make_subwords(package.subwords[0], vocabularies[0])
    spelled = {*SPECIAL, *spellable_pieces(package.subwords[-1])}
    guessed = len(package.subwords) == 1 and not spelled.issuperset(vocabularies[1].pieces)
    if guessed:
        own, scores = vocabularies[1], _guess_scores(vocabularies[1])
        target = Subwords(reorder_pieces(package.subwords[0], own.pieces, scores, unwritable_pieces(own)))
    else:
        target = make_subwords(package.subwords[-1], vocabularies[1], reads=False)
    found = build_imported(recipe, Tokenizer(source, target), ours, vocabularies, Path(package.name))
    found.runtime = {"runtime": "none", "reason": "CTranslate2 trusts what it reads, so it is not given foreign files"}
    if quantised:
        found.notes.append(f"its weights were stored in {quantised} and are float32 now: what rounding took from them stays lost")
        found.facts["dequantised"] = quantised
    if guessed:
        found.notes.append("it brings no subword model for the target: text to learn from is split by the order of its vocabulary")
    return found


def _guess_scores(vocabulary: Vocabulary) -> list[float]:
    """Log-probabilities of pieces that a vocabulary lists by frequency, by Zipf's law."""
    return [-math.log(max(2, row + 2)) for row in vocabulary.rows]


def read_variables(model: bytes) -> tuple[Tensors, str]:
    """The variables of a `model.bin` in float32, aliases included, and how they were stored if that was not in floats."""
    place = 0

    def take(form: str) -> int:
        nonlocal place
        (value,) = struct.unpack_from(f"<{form}", model, place)
        place += struct.calcsize(f"<{form}")
        return int(value)

    def take_bytes(size: int) -> bytes:
        nonlocal place
        if size < 0 or place + size > len(model):
            raise ValueError("it ends in the middle of a variable")
        place += size
        return model[place - size : place]

    def take_text() -> str:
        return take_bytes(take("H"))[:-1].decode("utf-8")

    version, name, _ = take("I"), take_text(), take("I")
    if not 5 <= version <= 6 or name != "TransformerSpec":
        raise ValueError(f"version {version} of {name!r} is unknown; known: versions 5 and 6 of 'TransformerSpec'")
    raw: dict[str, np.ndarray] = {}
    for _ in range(take("I")):
        key = take_text()
        shape = [take("I") for _ in range(take("B"))]
        dtype, size = DTYPES[take("B")], take("I")
        raw[key] = _array(take_bytes(size), dtype, shape)
    aliases = {}
    for _ in range(take("I")):
        alias = take_text()
        aliases[alias] = take_text()
    return _dequantise(raw, aliases)


def _array(content: bytes, dtype: str, shape: list[int]) -> np.ndarray:
    if dtype == "bfloat16":
        return (np.frombuffer(content, "<u2").astype(np.uint32) << 16).view(np.float32).reshape(shape)
    return np.frombuffer(content, dtype).reshape(shape)


def _dequantise(raw: dict[str, np.ndarray], aliases: Mapping[str, str]) -> tuple[Tensors, str]:
    found: Tensors = {}
    kinds = set()
    for name, value in raw.items():
        scale = raw.get(f"{name}_scale")
        if name.endswith("_scale") and name.removesuffix("_scale") in raw:
            continue
        number = value.astype(np.float32)
        if scale is not None:
            kinds.add(str(value.dtype))
            number = number / (scale.reshape(-1, *[1] * (value.ndim - 1)) if scale.ndim else scale)
        found[name] = torch.from_numpy(np.ascontiguousarray(number))
    for alias, name in aliases.items():
        if not alias.endswith("_scale"):
            found[alias] = found[name]
    return found, ", ".join(sorted(kinds))


def _number(tensors: Tensors, name: str, default: int = 0) -> int:
    return int(tensors[name]) if name in tensors else default


def _count_layers(tensors: Tensors, side: str) -> int:
    return len({name.split("/")[1] for name in tensors if name.startswith(f"{side}/layer_") and name.count("/") > 2})


def _check_expressible(package: Package, tensors: Tensors) -> None:
    reasons = Reasons(f"{package.name}: cannot be imported")
    for side in ("encoder", "decoder"):
        activation = _number(tensors, f"{side}/activation")
        reasons.check(activation < len(ACTIVATIONS), f"{side}: activation number {activation} is unknown here")
        reasons.check(f"{side}/position_encodings/encodings" in tensors, f"{side}: it has no table of positions")
        reasons.check(f"{side}/layernorm_embedding/gamma" not in tensors, f"{side}: a LayerNorm on embeddings")
        for name in ("alibi", "multi_query_attention", "rotary_dim"):
            reasons.check(not _number(tensors, f"{side}/{name}"), f"{side}: {name}")
        reasons.check(not any("linear_0_noact" in name for name in tensors), f"{side}: gated feed-forward layers")
    for name in ("activation", "num_heads", "pre_norm", "scale_embeddings"):
        both = [_number(tensors, f"{side}/{name}") for side in ("encoder", "decoder")]
        reasons.check(both[0] == both[1], f"encoder and decoder differ in {name}")
    reasons.check((package.config.get("layer_norm_epsilon") or 1e-5) == 1e-5, "its layer_norm_epsilon is not 1e-5")
    reasons.check(not package.config.get("add_source_bos", False), "its sources begin with <s>")
    reasons.refuse()


def _vocabularies(package: Package, tensors: Tensors) -> tuple[Vocabulary, Vocabulary]:
    config = package.config
    zero = bool(_number(tensors, "decoder/start_from_zero_embedding"))
    found = []
    for side, pieces in enumerate(package.vocabularies):
        unk, end = pieces.index(str(config.get("unk_token", "<unk>"))), str(config.get("eos_token", "</s>"))
        # A source vocabulary may lack what no source ends with.
        eos = NO_ROW if side == 0 and len(package.vocabularies) == 2 and end not in pieces else pieces.index(end)
        begin = str(config.get("decoder_start_token") or config.get("bos_token") or "<s>")
        start = NO_ROW if zero or begin not in pieces else pieces.index(begin)
        padding = str(config.get("pad_token", "<pad>"))
        pad = pieces.index(padding) if padding in pieces and begin != padding else NO_ROW
        own = package.subwords if len(package.vocabularies) == 1 else package.subwords[side : side + 1]
        extra = [piece for model in own for piece in spellable_pieces(model)]
        found.append(order_vocabulary(pieces, SpecialIds(pad, unk, start, eos), extra))
    return found[0], found[-1]


def _same(tensors: Tensors, one: str, other: str) -> bool:
    return tensors[one].shape == tensors[other].shape and tensors[one].equal(tensors[other])


def _recipe(package: Package, tensors: Tensors) -> Recipe:
    target, output = "decoder/embeddings/weight", "decoder/projection/weight"
    tie = "none" if not _same(tensors, target, output) else "target"
    if tie == "target" and len(package.vocabularies) == 1 and _same(tensors, "encoder/embeddings_0/weight", target):
        tie = "all"
    table, width = tensors["decoder/position_encodings/encodings"], tensors[target].shape[1]
    fixed = [
        kind for kind in ("halves", "sinusoidal", "marian") if bool((table - sinusoids(len(table), width, kind)).abs().max() < 1e-3)
    ]
    positions = {"positions": fixed[0]} if fixed else {"positions": "learned", "max_positions": min(len(table), MAX_POSITIONS)}
    model = {
        "d_model": width, "d_ff": len(tensors["encoder/layer_0/ffn/linear_0/weight"]),
        "n_heads": _number(tensors, "encoder/num_heads", 8), "encoder_layers": _count_layers(tensors, "encoder"),
        "decoder_layers": _count_layers(tensors, "decoder"), "norm": "pre" if _number(tensors, "encoder/pre_norm", 1) else "post",
        "activation": ACTIVATIONS[_number(tensors, "encoder/activation")], "attention_bias": True, "output_bias": True,
        "scale_embeddings": bool(_number(tensors, "encoder/scale_embeddings", 1)), "tie": tie, **positions,
        "source_eos": bool(package.config.get("add_source_eos", True)),
    }  # fmt: skip
    data = {"source_lang": package.languages[0], "target_lang": package.languages[1]}
    search = {"length_penalty": 1.0, "length_norm": "length"}
    return build_recipe({"model": model, "data": data, "search": search, "tokens": {"joint": len(package.vocabularies) == 1}})


def _tensors(tensors: Tensors, vocabularies: tuple[Vocabulary, Vocabulary], recipe: Recipe) -> Tensors:
    """Their weights under our names."""

    def linear(name: str) -> Linear:
        weight = tensors[f"{name}/weight"]
        return Linear(weight, tensors.get(f"{name}/bias", weight.new_zeros(len(weight))))

    def split(name: str, count: int) -> list[Linear]:
        whole = linear(name)
        return [Linear(*both) for both in zip(whole.weight.chunk(count), whole.bias.chunk(count), strict=True)]

    def norm(name: str) -> Linear:
        return Linear(tensors[f"{name}/gamma"], tensors[f"{name}/beta"])

    def layer(side: str, place: int) -> Layer:
        at = f"{side}/layer_{place}"
        own = make_attention(split(f"{at}/self_attention/linear_0", 3), linear(f"{at}/self_attention/linear_1"))
        across = None
        norms = [norm(f"{at}/self_attention/layer_norm"), norm(f"{at}/ffn/layer_norm")]
        if side == "decoder":
            parts = linear(f"{at}/attention/linear_0"), split(f"{at}/attention/linear_1", 2), linear(f"{at}/attention/linear_2")
            across = make_attention([parts[0], *parts[1]], parts[2])
            norms.insert(1, norm(f"{at}/attention/layer_norm"))
        return Layer(own, across, linear(f"{at}/ffn/linear_0"), linear(f"{at}/ffn/linear_1"), norms)

    source, target = vocabularies
    names = ("encoder/embeddings_0/weight", "decoder/embeddings/weight", "decoder/projection/weight")
    matrices = [vocabulary.pick(tensors[name]) for vocabulary, name in zip((source, target, target), names, strict=True)]
    ours = embedding_tensors(recipe.model.tie, *matrices)
    ours["output_bias"] = target.bias(tensors.get("decoder/projection/bias", torch.zeros(len(tensors[names[2]]))))
    for side, count in (("encoder", recipe.model.encoder_layers), ("decoder", recipe.model.decoder_layers)):
        ours |= named_layers(count, side, lambda place, side=side: layer(side, place))  # type: ignore[misc]
        if recipe.model.norm == "pre":
            last: Linear = norm(f"{side}/layer_norm")
            ours |= {f"{side}_norm.weight": last.weight, f"{side}_norm.bias": last.bias}
    if recipe.model.positions == "learned":
        table: Tensor = tensors["decoder/position_encodings/encodings"]
        ours["target_embedding.positions.learned"] = table[: recipe.model.max_positions]
    return ours
