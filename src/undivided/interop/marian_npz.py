"""Import models as Marian itself writes them: a `.npz` or `.bin` with its settings inside, a vocabulary, sentencepiece models.

That is what OPUS-MT publishes beside the Hugging Face folders, and Mozilla for Firefox (in 8 bits, which become float32 again).
Marian's sinusoids have other wavelengths than those of `transformers` (`model.positions: marian`), and its decoder starts from
a zero vector (`model.start: zero`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import yaml

from undivided.config import Recipe, build_recipe
from undivided.core.errors import InputError
from undivided.core.files import read_bounded
from undivided.data.subword_proto import read_pieces
from undivided.data.subwords import MAX_MODEL_BYTES, Tokenizer
from undivided.interop.foreign import Imported, Reasons, Tensors, build_imported, origin, plain_file
from undivided.interop.layers import Attention, Layer, Linear, Recurrence, embedding_tensors, named_layers
from undivided.interop.marian_bin import is_bin, read_bin
from undivided.interop.npz_file import read_npz
from undivided.interop.vocabulary import NO_ROW, SpecialIds, Vocabulary, make_subwords, order_vocabulary, spellable_pieces

SETTINGS = "special:model.yml"
ACTIVATIONS = ("swish", "relu")
POST_NORM = ("", "dan", "")
"""What is done before a sub-layer, after it, and after the last layer (d: dropout, a: add, n: norm). With norms before, Marian
decodes with keys and values that are not normalised, which is another model than pre-norm is elsewhere."""


class Files(NamedTuple):
    """What belongs to a model."""

    model: Path
    vocabularies: list[Path]
    """Source and target; the same twice if it is shared."""
    subwords: list[Path]
    decoder: dict[str, Any]
    """How Marian is told to decode; empty where there is no `decoder.yml`."""


def import_npz(folder: Path, license: str = "") -> Imported:
    """Read a folder with a model of Marian."""
    files = find_files(folder)
    arrays = read_npz(files.model) if files.model.suffix == ".npz" else read_bin(files.model)
    theirs = _settings(arrays, files.model)
    check_expressible(theirs, files.model)
    spm = [read_bounded(path, MAX_MODEL_BYTES) for path in files.subwords]
    vocabularies = _vocabularies(files, spm)
    try:
        tensors = {name: torch.from_numpy(value.astype(np.float32)) for name, value in arrays.items() if name != SETTINGS}
        recipe = _recipe(theirs, tensors, files)
        ours = _tensors(tensors, vocabularies, recipe)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"{files.model}: no Transformer of the expected form: {type(error).__name__}: {error}") from None
    tokenizer = Tokenizer(make_subwords(spm[0], vocabularies[0]), make_subwords(spm[1], vocabularies[1], reads=False))
    found = build_imported(recipe, tokenizer, ours, vocabularies, files.model)
    used = dict.fromkeys([files.model, *files.vocabularies, *files.subwords])
    found.facts |= origin(folder, "Marian", used, license)
    if files.model.suffix == ".bin" and files.model.stat().st_size < 2 * sum(array.size for array in arrays.values()):
        found.notes.append("its weights have 8 bits; they became float32 again, and what rounding took stays lost")
    found.runtime = {"runtime": "none", "reason": "Marian trusts what it reads, so it is not given foreign files"}
    return found


def find_files(folder: Path) -> Files:
    """The files of a model: those that `decoder.yml` names, else those that their names tell."""
    decoder = read_yaml_object(plain_file(folder, "decoder.yml")) if (folder / "decoder.yml").exists() else {}
    models = _named(decoder, "models", folder) or find_models(folder)
    if len(models) != 1:
        raise InputError(f"{folder}: expected one .npz or .bin file, found {len(models)}; name it in decoder.yml (models: [FILE])")
    beside = [folder / name for name in ("source.spm", "target.spm") if (folder / name).exists()]
    others = sorted(path for path in folder.iterdir() if path.suffix in (".yml", ".spm") and path.name.find("vocab") >= 0)
    vocabularies = _named(decoder, "vocabs", folder) or others or beside
    subwords = beside or [path for path in vocabularies if path.suffix == ".spm"]
    reasons = Reasons(f"{folder}: cannot be imported")
    reasons.check(0 < len(vocabularies) <= 2, "it holds no vocabulary (vocab.yml or .spm); name it in decoder.yml (vocabs: [FILE])")
    reasons.check(0 < len(subwords) <= 2, "it holds no sentencepiece model (source.spm and target.spm)")
    reasons.refuse()
    words, pieces = ([plain_file(path.parent, path.name) for path in (each[0], each[-1])] for each in (vocabularies, subwords))
    return Files(plain_file(models[0].parent, models[0].name), words, pieces, decoder)


def find_models(folder: Path) -> list[Path]:
    """The files of a folder that hold a model of Marian."""
    return sorted(folder.glob("*.npz")) or sorted(path for path in folder.glob("*.bin") if is_bin(path))


def _named(decoder: Mapping[str, Any], key: str, folder: Path) -> list[Path]:
    named = decoder.get(key) or []
    if not isinstance(named, list) or not all(isinstance(name, str) for name in named):
        raise InputError(f"{folder / 'decoder.yml'}: {key} is no list of files")
    for name in named:
        if Path(name).name != name or "\\" in name:
            raise InputError(f"{folder / 'decoder.yml'}: {key} names {name!r}, which is not directly in the folder")
    return [folder / name for name in dict.fromkeys(named)]


def parse_yaml_object(content: bytes, where: Path) -> dict[str, Any]:
    """The settings of a YAML text of plain values: every scalar stays text, and there are no aliases."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
    try:
        text = content.decode("utf-8")
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=loader)):
            raise ValueError("it has aliases")
        value = loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{where}: damaged, it cannot be read as YAML: {' '.join(str(error).split())}") from None
    if not isinstance(value, dict):
        raise InputError(f"{where}: damaged, it holds no 'key: value' lines")
    return value


def read_yaml_object(path: Path) -> dict[str, Any]:
    """The settings of a YAML file."""
    return parse_yaml_object(read_bounded(path, MAX_MODEL_BYTES), path)


def _settings(arrays: Mapping[str, np.ndarray], path: Path) -> dict[str, Any]:
    if SETTINGS not in arrays:
        raise InputError(f"{path}: no model of Marian: it has no entry {SETTINGS}")
    return parse_yaml_object(arrays[SETTINGS].tobytes().rstrip(b"\0"), path)


def check_expressible(theirs: Mapping[str, Any], path: Path) -> None:
    """Refuse settings that our Transformer cannot express, with every reason."""
    reasons = Reasons(f"{path}: cannot be imported")

    def is_on(name: str) -> bool:
        return theirs.get(name, "false") in ("true", "True")

    def value(name: str, default: str) -> str:
        return str(theirs.get(name, default))

    reasons.check(theirs.get("type") == "transformer", f"its type is {theirs.get('type')!r}, not transformer")
    reasons.refuse()
    decoder, cell = value("transformer-decoder-autoreg", "self-attention"), value("dec-cell", "gru")
    known = decoder == "self-attention" or (decoder, cell) == ("rnn", "ssru")
    reasons.check(known, f"its decoder is {decoder} with cells {cell} (transformer-decoder-autoreg, dec-cell)")
    reasons.check(decoder != "rnn" or not is_on("layer-normalization"), "a LayerNorm in its cells (layer-normalization)")
    reasons.check(_form(theirs) == POST_NORM, f"its norms and residuals are in another order than 'dan': {_form(theirs)}")
    reasons.check("n" not in value("transformer-postprocess-emb", "d"), "a LayerNorm on embeddings (transformer-postprocess-emb)")
    activation = value("transformer-ffn-activation", "swish")
    reasons.check(activation in ACTIVATIONS, f"the activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
    reasons.check(value("transformer-ffn-depth", "2") == "2", "feed-forward layers of another depth than 2 (transformer-ffn-depth)")
    inner = value("transformer-dim-ffn", "2048")
    reasons.check(value("transformer-decoder-dim-ffn", "0") in ("0", inner), "the decoder's feed-forward layers have another width")
    for name in ("transformer-no-projection", "transformer-train-positions", "transformer-train-position-embeddings"):
        reasons.check(not is_on(name), name)
    reasons.check(not theirs.get("transformer-tied-layers"), "layers that share weights (transformer-tied-layers)")
    reasons.check(value("lemma-dim-emb", "0") == "0", "factored words (lemma-dim-emb)")
    reasons.refuse()


def _form(theirs: Mapping[str, Any]) -> tuple[str, str, str]:
    before, after = (str(theirs.get(f"transformer-{name}process") or default) for name, default in (("pre", ""), ("post", "dan")))
    top = str(theirs.get("transformer-postprocess-top") or "")
    return before.replace("d", "") if before != "n" else "n", after, top.replace("d", "")


def _vocabularies(files: Files, spm: list[bytes]) -> tuple[Vocabulary, Vocabulary]:
    shared = files.vocabularies[0] == files.vocabularies[1]
    found = []
    for side, path in enumerate(files.vocabularies[: 1 if shared else 2]):
        pieces = _read_vocabulary(path)
        for piece in ("</s>", "<unk>"):
            if piece not in pieces:
                raise InputError(f"{path}: the vocabulary has no {piece}")
        special = SpecialIds(NO_ROW, pieces.index("<unk>"), NO_ROW, pieces.index("</s>"))
        own = spm if shared else spm[side : side + 1]
        found.append(order_vocabulary(pieces, special, [piece for model in own for piece in spellable_pieces(model)]))
    return found[0], found[-1]


def _read_vocabulary(path: Path) -> list[str]:
    if path.suffix == ".spm":
        return [piece.text for piece in read_pieces(read_bounded(path, MAX_MODEL_BYTES))]
    table = read_yaml_object(path)
    try:
        by_id = {int(token): piece for piece, token in table.items()}
    except (TypeError, ValueError) as error:
        raise InputError(f"{path}: damaged: not every piece has a number: {error}") from None
    if sorted(by_id) != list(range(len(table))):
        raise InputError(f"{path}: damaged: its {len(table):,} pieces are not numbered from 0 on")
    return [by_id[token] for token in range(len(by_id))]


def _recipe(theirs: Mapping[str, Any], tensors: Tensors, files: Files) -> Recipe:
    shared = files.vocabularies[0] == files.vocabularies[1]
    model = {
        "d_model": int(theirs["dim-emb"]), "d_ff": int(theirs["transformer-dim-ffn"]), "n_heads": int(theirs["transformer-heads"]),
        "encoder_layers": int(theirs["enc-depth"]), "decoder_layers": int(theirs["dec-depth"]), "norm": "post",
        "activation": theirs.get("transformer-ffn-activation", "swish"), "attention_bias": True, "output_bias": True,
        "decoder_self": "ssru" if theirs.get("transformer-decoder-autoreg") == "rnn" else "attention", "start": "zero",
        "positions": "marian", "tie": "none" if "decoder_ff_logit_out_W" in tensors else "all" if "Wemb" in tensors else "target",
    }  # fmt: skip
    search = {"beam_size": int(files.decoder.get("beam-size", 6)), "length_penalty": 1.0, "length_norm": "length"}
    if "normalize" in files.decoder:
        search["length_penalty"] = float(files.decoder["normalize"])
    return build_recipe({"model": model, "search": search, "tokens": {"joint": shared}})


def _tensors(tensors: Tensors, vocabularies: tuple[Vocabulary, Vocabulary], recipe: Recipe) -> Tensors:
    """Their weights under our names; matrices of Marian are `in out`."""

    def linear(weight: str, bias: str) -> Linear:
        return Linear(tensors[weight].t(), tensors[bias].flatten())

    def attention(name: str) -> Attention:
        return Attention(*(linear(f"{name}_W{part}", f"{name}_b{part}") for part in ("q", "k", "v", "o")))

    def recurrence(name: str) -> Recurrence:
        return Recurrence(tensors[f"{name}_W"].t(), linear(f"{name}_Wf", f"{name}_bf"))

    def norm(name: str) -> Linear:
        return Linear(tensors[f"{name}_ln_scale"].flatten(), tensors[f"{name}_ln_bias"].flatten())

    def layer(side: str, place: int) -> Layer:
        at = f"{side}_l{place + 1}"
        across = attention(f"{at}_context") if side == "decoder" else None
        recurrent = across is not None and recipe.model.decoder_self == "ssru"
        names = [f"{at}_rnn_ffn" if recurrent else f"{at}_self_Wo", *([f"{at}_context_Wo"] if across else []), f"{at}_ffn_ffn"]
        inner, outer = (linear(f"{at}_ffn_W{number}", f"{at}_ffn_b{number}") for number in (1, 2))
        own = recurrence(f"{at}_rnn") if recurrent else attention(f"{at}_self")
        return Layer(own, across, inner, outer, [norm(name) for name in names])

    source, target = (tensors.get("Wemb", tensors.get(f"{side}_Wemb")) for side in ("encoder", "decoder"))
    if source is None or target is None:
        raise KeyError("Wemb")
    output = tensors["decoder_ff_logit_out_W"].t() if "decoder_ff_logit_out_W" in tensors else target
    picked = vocabularies[0].pick(source), vocabularies[1].pick(target), vocabularies[1].pick(output)
    ours = embedding_tensors(recipe.model.tie, *picked)
    ours["output_bias"] = vocabularies[1].bias(tensors["decoder_ff_logit_out_b"].flatten())
    for side, count in (("encoder", recipe.model.encoder_layers), ("decoder", recipe.model.decoder_layers)):
        ours |= named_layers(count, side, lambda place, side=side: layer(side, place))  # type: ignore[misc]
    return ours
