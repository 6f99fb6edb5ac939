"""Import Transformer checkpoints of fairseq (`*.pt` with `dict.*.txt` and a sentencepiece model); nothing is unpickled.

fairseq counts positions from 2, with the wavelengths of tensor2tensor, so its sinusoids come in as a table of learned positions.
Its decoder starts with `</s>`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from undivided.config import Recipe, build_recipe
from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.data.subwords import MAX_MODEL_BYTES, Tokenizer
from undivided.interop.foreign import Imported, Reasons, Tensors, build_imported, origin, plain_file
from undivided.interop.marian_in import rename_tensors
from undivided.interop.torch_file import Inert, read_checkpoint
from undivided.interop.vocabulary import SpecialIds, Vocabulary, make_subwords, order_vocabulary, spellable_pieces
from undivided.nn.layers import sinusoids

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
FIRST_POSITION = 2
POSITIONS = 1024
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "gelu_accurate": "gelu_tanh", "swish": "swish"}
SENTENCEPIECE = ("sentencepiece.bpe.model", "sentencepiece.model", "spm.model", "spiece.model")


def is_fairseq(folder: Path) -> bool:
    """Whether a folder holds a checkpoint of fairseq."""
    return any(folder.glob("*.pt")) and any(folder.glob("dict.*.txt"))


def import_fairseq(folder: Path, license: str = "") -> Imported:
    """Read a folder with one checkpoint, the dictionaries of both sides and the sentencepiece model of the text."""
    checkpoints = sorted(folder.glob("*.pt"))
    if len(checkpoints) != 1:
        raise InputError(f"{folder}: expected one checkpoint (.pt), found {len(checkpoints)}")
    path = plain_file(folder, checkpoints[0].name)
    tensors, whole = read_checkpoint(path, "model")
    theirs = _settings(whole, path)
    check_expressible(theirs, tensors, path)
    languages = [str(theirs.get(name) or "") for name in ("source_lang", "target_lang")]
    dictionaries = [plain_file(folder, f"dict.{language}.txt") for language in languages]
    spm = _subwords(folder)
    vocabularies = _vocabularies(dictionaries, [read_bounded(each, MAX_MODEL_BYTES) for each in spm])
    try:
        _check_sizes(dictionaries, tensors)
        recipe = _recipe(theirs, tensors, languages, vocabularies)
        ours = rename_tensors(_as_bart(theirs, tensors, recipe), vocabularies, recipe)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{path}: no Transformer of the expected form: {type(error).__name__}: {error}") from None
    models = [read_bounded(each, MAX_MODEL_BYTES) for each in spm]
    tokenizer = Tokenizer(make_subwords(models[0], vocabularies[0]), make_subwords(models[1], vocabularies[1], reads=False))
    found = build_imported(recipe, tokenizer, ours, vocabularies, path)
    found.facts |= origin(folder, "fairseq", dict.fromkeys([path, *dictionaries, *spm]), license)
    found.runtime = {"runtime": "none", "reason": "fairseq unpickles what it reads, so it is not given foreign files"}
    return found


def _settings(whole: Any, path: Path) -> Mapping[str, Any]:
    """What a checkpoint was trained with: `args` of older versions, `cfg` of newer ones."""
    config = whole.get("cfg") if isinstance(whole, dict) else None
    named = (config or {}).get("model") if isinstance(config, dict) else None
    for each in (named, whole.get("args") if isinstance(whole, dict) else None):
        values = each.state if isinstance(each, Inert) else each
        if isinstance(values, dict) and values:
            task = config.get("task", {}) if isinstance(config, dict) else {}
            return {**(task.state if isinstance(task, Inert) else task or {}), **values}
    raise InputError(f"{path}: no checkpoint of fairseq: it holds neither cfg nor args")


def check_expressible(theirs: Mapping[str, Any], tensors: Tensors, path: Path) -> None:
    """Refuse settings that our Transformer cannot express, with every reason."""
    reasons = Reasons(f"{path}: cannot be imported")
    kind = str(theirs.get("arch") or theirs.get("_name") or "")
    reasons.check(kind.startswith("transformer") and "lm" not in kind, f"its architecture is {kind!r}, not transformer")
    for name in ("embed_dim", "ffn_embed_dim", "attention_heads", "normalize_before", "learned_pos"):
        both = [theirs.get(f"{side}_{name}") for side in ("encoder", "decoder")]
        reasons.check(both[0] == both[1], f"encoder_{name} {both[0]} and decoder_{name} {both[1]} differ")
    act = theirs.get("activation_fn", "relu")
    reasons.check(act in ACTIVATIONS, f"the activation {act!r} is unknown here; known: {', '.join(ACTIVATIONS)}")
    for name in ("layernorm_embedding", "no_cross_attention", "cross_self_attention", "adaptive_softmax_cutoff", "factorized"):
        reasons.check(not theirs.get(name), name)
    reasons.check(not theirs.get("no_decoder_final_norm"), "no_decoder_final_norm")
    for name in ("source_lang", "target_lang"):
        reasons.check(bool(theirs.get(name)), f"it does not say its {name}")
    reasons.check(
        "encoder.layers.0.self_attn.q_proj.weight" in tensors, "W^Q, W^K and W^V are not apart, as in versions before 0.8"
    )
    reasons.refuse()


def _subwords(folder: Path) -> list[Path]:
    pairs = [("source.spm", "target.spm"), *((name, name) for name in SENTENCEPIECE)]
    found = next((pair for pair in pairs if (folder / pair[0]).exists()), None)
    if found is None:
        raise InputError(
            f"{folder}: holds no sentencepiece model; copy it there as sentencepiece.model, or source.spm and target.spm"
        )
    return [plain_file(folder, name) for name in found]


def _vocabularies(paths: list[Path], spm: list[bytes]) -> tuple[Vocabulary, Vocabulary]:
    tables = [_read_dictionary(path) for path in paths]
    shared = tables[0] == tables[1]
    found = []
    for side, pieces in enumerate(tables[: 1 if shared else 2]):
        own = spm if shared else spm[side : side + 1]
        special = SpecialIds(pad=1, unk=3, start=2, eos=2)
        found.append(order_vocabulary(pieces, special, [piece for model in own for piece in spellable_pieces(model)]))
    return found[0], found[-1]


def _check_sizes(paths: list[Path], tensors: Tensors) -> None:
    """A dictionary has a line for every row of its embedding: one that was cut would be another model."""
    for path, weight in zip(paths, _matrices(tensors)[:2], strict=True):
        if len(_read_dictionary(path)) != len(weight):
            raise InputError(f"{path}: has {len(_read_dictionary(path)):,} pieces, but there are weights for {len(weight):,}")


def _read_dictionary(path: Path) -> list[str]:
    """The pieces by id: four special ones, then a line `PIECE COUNT` for each."""
    try:
        lines = read_bounded(path, MAX_MODEL_BYTES).decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: damaged, it is not UTF-8: {error}") from None
    rows = [line.removesuffix(" #fairseq:overwrite").rpartition(" ") for line in lines if line]
    if not all(piece and count.isdigit() for piece, _, count in rows):
        raise InputError(f"{path}: damaged, not every line is a piece and its count")
    return [*SPECIAL, *(piece for piece, _, _ in rows)]


def _recipe(
    theirs: Mapping[str, Any], tensors: Tensors, languages: list[str], vocabularies: tuple[Vocabulary, Vocabulary]
) -> Recipe:
    shared = vocabularies[0] is vocabularies[1]
    source, target, output = _matrices(tensors)
    if {source.shape[1], target.shape[1]} != {int(theirs["encoder_embed_dim"])}:
        raise ValueError(f"its embeddings are {source.shape[1]} and {target.shape[1]} wide, not {theirs['encoder_embed_dim']}")
    tied = output.shape == target.shape and output.equal(target)
    one = shared and tied and source.shape == target.shape and source.equal(target)
    model = {
        "d_model": int(theirs["encoder_embed_dim"]), "d_ff": int(theirs["encoder_ffn_embed_dim"]),
        "n_heads": int(theirs["encoder_attention_heads"]), "encoder_layers": int(theirs["encoder_layers"]),
        "decoder_layers": int(theirs["decoder_layers"]), "norm": "pre" if theirs.get("encoder_normalize_before") else "post",
        "activation": ACTIVATIONS[theirs.get("activation_fn", "relu")], "attention_bias": True, "output_bias": True,
        "scale_embeddings": not theirs.get("no_scale_embedding"), "tie": "all" if one else "target" if tied else "none",
        "dropout": float(theirs.get("dropout", 0.1)), "positions": "learned", "max_positions": POSITIONS,
    }  # fmt: skip
    if theirs.get("no_token_positional_embeddings"):
        model |= {"positions": "none"}
    elif theirs.get("encoder_learned_pos"):
        model |= {"max_positions": len(tensors["encoder.embed_positions.weight"]) - FIRST_POSITION}
    data = {"source_lang": languages[0], "target_lang": languages[1]}
    search = {"beam_size": 5, "length_penalty": 1.0, "length_norm": "length"}
    return build_recipe({"model": model, "data": data, "search": search, "tokens": {"joint": shared}})


def _matrices(tensors: Tensors) -> tuple[Tensor, Tensor, Tensor]:
    target = tensors["decoder.embed_tokens.weight"]
    output = tensors.get("decoder.output_projection.weight", tensors.get("decoder.embed_out", target))
    return tensors["encoder.embed_tokens.weight"], target, output


def _as_bart(theirs: Mapping[str, Any], tensors: Tensors, recipe: Recipe) -> Tensors:
    """The names of `transformers`' Marian, which took them from fairseq."""
    found = {f"model.{name}": value.float() for name, value in tensors.items() if name.startswith(("encoder.", "decoder."))}
    source, target, output = (each.float() for each in _matrices(tensors))
    found |= {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target, "lm_head.weight": output}
    if recipe.model.positions == "learned":
        table = sinusoids(FIRST_POSITION + recipe.model.max_positions, recipe.model.d_model, "marian")[FIRST_POSITION:]
        if theirs.get("encoder_learned_pos"):
            sides = [tensors[f"{side}.embed_positions.weight"].float()[FIRST_POSITION:] for side in ("encoder", "decoder")]
            if not sides[0].equal(sides[1]):
                raise ValueError("encoder and decoder have different learned positions; ours has one table for both")
            table = sides[0]
        found["model.encoder.embed_positions.weight"] = table
    return found
