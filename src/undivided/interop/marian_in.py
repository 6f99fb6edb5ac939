"""Import the Marian models of Hugging Face `transformers`, as OPUS-MT publishes them; pre-norm ones as Pegasus has them.

`transformers` is not needed, and nothing is unpickled. Tensors are renamed, stacked and put into our order of the vocabulary;
no number changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from undivided.config import Recipe, build_recipe
from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.data.subwords import MAX_MODEL_BYTES, Tokenizer
from undivided.interop.foreign import (
    Imported,
    Reasons,
    Tensors,
    build_imported,
    origin,
    plain_file,
    read_foreign_weights,
    read_object,
)
from undivided.interop.layers import Attention, Layer, Linear, embedding_tensors, named_layers
from undivided.interop.vocabulary import SpecialIds, Vocabulary, make_subwords, order_vocabulary, spellable_pieces

ACTIVATIONS = {"swish": "swish", "silu": "swish", "relu": "relu", "gelu": "gelu", "gelu_new": "gelu_tanh"}
FAMILIES = {"marian": "post", "pegasus": "pre"}
SETTINGS = (
    "d_model", "encoder_layers", "decoder_layers", "encoder_ffn_dim", "decoder_ffn_dim", "encoder_attention_heads",
    "decoder_attention_heads", "vocab_size", "activation_function", "pad_token_id", "eos_token_id", "decoder_start_token_id",
)  # fmt: skip
MAX_LAYERS = 1000


def import_marian(folder: Path, license: str = "") -> Imported:
    """Read a folder that `MarianMTModel.from_pretrained` would load."""
    theirs = read_object(plain_file(folder, "config.json"))
    check_expressible(theirs, folder)
    tensors, weights = read_foreign_weights(folder)
    separate = not theirs.get("share_encoder_decoder_embeddings", True)
    names = ["config.json", weights, "source.spm", "target.spm", "vocab.json", *(["target_vocab.json"] if separate else [])]
    spm = [read_bounded(plain_file(folder, name), MAX_MODEL_BYTES) for name in ("source.spm", "target.spm")]
    vocabularies = _vocabularies(folder, theirs, spm, separate)
    try:
        recipe = _recipe(folder, theirs, tensors, separate)
        ours = rename_tensors(tensors, vocabularies, recipe)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{folder}: not a Marian model of the expected form: {type(error).__name__}: {error}") from None
    sides = make_subwords(spm[0], vocabularies[0]), make_subwords(spm[1], vocabularies[1], reads=False)
    tokenizer = Tokenizer(sides[0]) if not separate and sides[0].model == sides[1].model else Tokenizer(sides[0], sides[1])
    found = build_imported(recipe, tokenizer, ours, vocabularies, folder / weights)
    found.facts |= origin(folder, "Hugging Face Marian", [folder / name for name in names], license)
    found.runtime = (theirs, tensors)
    return found


def check_expressible(theirs: Mapping[str, Any], folder: Path) -> None:
    """Refuse a config that our Transformer cannot express, with every reason."""
    reasons = Reasons(f"{folder}: cannot be imported")
    kind = theirs.get("model_type")
    reasons.check(kind in FAMILIES, f"its model_type is {kind!r}, not one of {', '.join(FAMILIES)}")
    missing = [name for name in SETTINGS if name not in theirs]
    reasons.check(not missing, f"config.json does not say {', '.join(missing)}")
    reasons.refuse()
    for name in SETTINGS:
        wanted = str if name == "activation_function" else int
        reasons.check(type(theirs[name]) is wanted, f"{name} is {theirs[name]!r}")
    reasons.refuse()
    for name in ("attention_heads", "ffn_dim"):
        encoder, decoder = theirs[f"encoder_{name}"], theirs[f"decoder_{name}"]
        reasons.check(encoder == decoder, f"encoder_{name} {encoder} and decoder_{name} {decoder} differ; ours has one for both")
    act = theirs["activation_function"]
    reasons.check(act in ACTIVATIONS, f"the activation {act!r} is unknown here; known: {', '.join(ACTIVATIONS)}")
    reasons.check(
        0 < max(theirs["encoder_layers"], theirs["decoder_layers"]) < MAX_LAYERS, "its number of layers is not believable"
    )
    for name in ("normalize_embedding", "extra_pos_embeddings"):
        reasons.check(not theirs.get(name) or name == "extra_pos_embeddings", f"{name}: a LayerNorm on embeddings")
    reasons.check(theirs.get("static_position_embeddings", True) is True, "its positions are learned (static_position_embeddings)")
    reasons.check(not theirs.get("normalize_before") or kind == "pegasus", "normalize_before: transformers' Marian ignores it")
    reasons.refuse()


def _vocabularies(folder: Path, theirs: Mapping[str, Any], spm: list[bytes], separate: bool) -> tuple[Vocabulary, Vocabulary]:
    """Both vocabularies in our order; one for both sides unless they are separate."""
    sizes = theirs["vocab_size"], theirs.get("decoder_vocab_size") or theirs["vocab_size"]
    pieces = [_read_pieces(plain_file(folder, "vocab.json"), sizes[0])]
    if separate:
        pieces.append(_read_pieces(plain_file(folder, "target_vocab.json"), sizes[1]))
    found = []
    for side, words in enumerate(pieces):
        unk = words.index("<unk>") if "<unk>" in words else -1
        special = SpecialIds(theirs["pad_token_id"], unk, theirs["decoder_start_token_id"], theirs["eos_token_id"])
        if min(special) < 0 or max(special) >= len(words):
            raise InputError(f"{folder}: the special tokens {special} are not all in the vocabulary of {len(words):,}")
        own = spm[side : side + 1] if separate else spm
        found.append(order_vocabulary(words, special, [piece for model in own for piece in spellable_pieces(model)]))
    return found[0], found[-1]


def _read_pieces(path: Path, size: int) -> list[str]:
    """The pieces of a vocabulary by id. Ids that the file leaves out get names that no text has."""
    table = read_object(path)
    if not all(type(token) is int and 0 <= token < size for token in table.values()) or len(set(table.values())) < len(table):
        raise InputError(f"{path}: damaged: not every piece has an id of its own below vocab_size {size:,}")
    if size > 2 * len(table) + 1000:
        raise InputError(f"{path}: holds {len(table):,} pieces, but config.json says {size:,}")
    pieces = [f"<unused {token}>" for token in range(size)]
    for piece, token in table.items():
        pieces[token] = piece
    return pieces


def _tie(theirs: Mapping[str, Any], tensors: Tensors, separate: bool) -> str:
    if not theirs.get("tie_word_embeddings", True) and "lm_head.weight" in tensors:
        return "none"
    return "target" if separate else "all"


def _recipe(folder: Path, theirs: Mapping[str, Any], tensors: Tensors, separate: bool) -> Recipe:
    """Their settings as ours."""
    searched = read_object(folder / "generation_config.json") if (folder / "generation_config.json").is_file() else theirs
    spoken = read_object(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").is_file() else {}
    languages = [str(spoken.get(name) or "") for name in ("source_lang", "target_lang")]
    longest = int(theirs.get("max_position_embeddings") or 512)
    model = {
        "d_model": theirs["d_model"], "d_ff": theirs["encoder_ffn_dim"], "n_heads": theirs["encoder_attention_heads"],
        "encoder_layers": theirs["encoder_layers"], "decoder_layers": theirs["decoder_layers"],
        "norm": FAMILIES[theirs["model_type"]],
        "dropout": theirs.get("dropout", 0.1), "attention_dropout": theirs.get("attention_dropout", 0.0),
        "activation_dropout": theirs.get("activation_dropout", 0.0), "activation": ACTIVATIONS[theirs["activation_function"]],
        "attention_bias": True, "output_bias": True, "scale_embeddings": bool(theirs.get("scale_embedding", False)),
        "tie": _tie(theirs, tensors, separate), "positions": "halves",
    }  # fmt: skip
    if "model.encoder.embed_positions.weight" in tensors and _own_positions(tensors, theirs["d_model"]):
        model |= {"positions": "learned", "max_positions": len(tensors["model.encoder.embed_positions.weight"])}
    search = {
        "beam_size": int(searched.get("num_beams") or 4), "length_penalty": float(searched.get("length_penalty", 1.0)),
        "length_norm": "length",
    }  # fmt: skip
    data = {"source_lang": languages[0], "target_lang": languages[1], "max_length": max(2, min(longest, 512))}
    return build_recipe({"model": model, "search": search, "data": data, "tokens": {"joint": not separate}})


def _own_positions(tensors: Tensors, width: int) -> bool:
    """Whether the positions that a file holds are others than the sinusoids."""
    from undivided.nn.layers import sinusoids

    stored = [tensors[f"model.{side}.embed_positions.weight"] for side in ("encoder", "decoder")]
    if not stored[0].equal(stored[1]):
        raise ValueError("encoder and decoder have different positions")
    return not bool((stored[0] - sinusoids(len(stored[0]), width, "halves")).abs().max() < 1e-4)


def rename_tensors(tensors: Tensors, vocabularies: tuple[Vocabulary, Vocabulary], recipe: Recipe) -> Tensors:
    """Their weights under our names."""

    def linear(name: str) -> Linear:
        return Linear(tensors[f"model.{name}.weight"], tensors[f"model.{name}.bias"])

    def attention(name: str) -> Attention:
        return Attention(*(linear(f"{name}.{part}_proj") for part in ("q", "k", "v", "out")))

    def layer(side: str, place: int) -> Layer:
        at = f"{side}.layers.{place}"
        across = attention(f"{at}.encoder_attn") if side == "decoder" else None
        norms = ["self_attn_layer_norm", *(["encoder_attn_layer_norm"] if across else []), "final_layer_norm"]
        parts = attention(f"{at}.self_attn"), across, linear(f"{at}.fc1"), linear(f"{at}.fc2")
        return Layer(*parts, [linear(f"{at}.{name}") for name in norms])

    shared = tensors.get("model.shared.weight")
    source, target = (tensors.get(f"model.{side}.embed_tokens.weight", shared) for side in ("encoder", "decoder"))
    if source is None or target is None:
        raise KeyError("model.shared.weight")
    output = tensors.get("lm_head.weight", target)
    if recipe.model.tie != "none" and not output.equal(target):
        raise ValueError("lm_head.weight differs from the embedding that it is tied to")
    bias = tensors.get("final_logits_bias", output.new_zeros(1, len(output)))[0]
    ours = embedding_tensors(
        recipe.model.tie, vocabularies[0].pick(source), vocabularies[1].pick(target), vocabularies[1].pick(output)
    )
    ours["output_bias"] = vocabularies[1].bias(bias)
    for side, count in (("encoder", recipe.model.encoder_layers), ("decoder", recipe.model.decoder_layers)):
        ours |= named_layers(count, side, lambda place, side=side: layer(side, place))  # type: ignore[misc]
        if recipe.model.norm == "pre":
            norm = linear(f"{side}.layer_norm")
            ours |= {f"{side}_norm.weight": norm.weight, f"{side}_norm.bias": norm.bias}
    if recipe.model.positions == "learned":
        ours["target_embedding.positions.learned"] = tensors["model.encoder.embed_positions.weight"]
    return ours
