"""Import GPT-2 and ViT folders of `transformers` as model folders; what BERT splits text with cannot be expressed here."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undivided.artifact import SingleStackArtifact
from undivided.artifact.weights import check_finite, fill_weights, read_tensors, weights
from undivided.config import ModelConfig, build_recipe
from undivided.config.settings import as_values
from undivided.core.errors import InputError, UndividedError
from undivided.core.files import read_bounded
from undivided.data.subword_proto import read_pieces
from undivided.data.subwords import MAX_MODEL_BYTES, Tokenizer
from undivided.interop.foreign import origin, plain_file, read_object
from undivided.interop.parity import TOLERANCE
from undivided.interop.pretrained import load_pretrained
from undivided.interop.vocabulary import NO_ROW, SpecialIds, make_subwords, order_vocabulary
from undivided.models import DecoderOnly, Vision, make_single_stack

KINDS = ("gpt2", "bert", "vit")
SENTENCEPIECE = ("spiece.model", "tokenizer.model", "sentencepiece.model", "sentencepiece.bpe.model")


def import_relative(folder: Path, license: str = "") -> SingleStackArtifact:
    """Read a folder that `GPT2LMHeadModel` or `ViTForImageClassification` would load."""
    theirs = read_object(plain_file(folder, "config.json"))
    plain_file(folder, "model.safetensors")
    subwords = next((folder / name for name in SENTENCEPIECE if (folder / name).exists()), None)
    if theirs["model_type"] != "vit" and (theirs["model_type"] == "bert" or subwords is None):
        way = "WordPiece (vocab.txt)" if theirs["model_type"] == "bert" else "byte-level BPE (vocab.json, merges.txt)"
        raise InputError(
            f"{folder}: its text is split by {way}, which a sentencepiece model cannot express, so a model folder could not read "
            "text; its weights can be used from Python: undivided.interop.pretrained.load_pretrained"
        )
    found = load_pretrained(folder)
    check_finite(found.model, folder / "model.safetensors")
    record = _compare(theirs, folder, found.model)
    used = [folder / "config.json", folder / "model.safetensors"]
    if isinstance(found.model, Vision):
        artifact = _vision(folder, theirs, found.config, found.model)
    else:
        assert subwords is not None
        used.append(plain_file(folder, subwords.name))
        artifact = _language(theirs, found.config, found.model, used[-1])
    artifact.facts |= origin(folder, "Hugging Face", used, license)
    artifact.facts |= {"parity": record, "parameters": sum(each.numel() for each in found.model.parameters())}
    return artifact


def _vision(folder: Path, theirs: Mapping[str, Any], config: ModelConfig, model: Vision) -> SingleStackArtifact:
    """ViT: what it subtracts from pixels and divides them by goes into its first projection, for ours are between 0 and 1."""
    names = theirs.get("id2label") or {}
    count = len(model.output.bias)
    classes = [str(names.get(str(number), f"LABEL_{number}")) for number in range(count)]
    path = folder / "preprocessor_config.json"
    shown = read_object(plain_file(folder, path.name)) if path.exists() else {}
    if shown.get("do_normalize", bool(shown)):
        with torch.no_grad():
            mean, std = (_per_pixel(shown.get(name, [0.5]), config) for name in ("image_mean", "image_std"))
            model.project.weight /= std
            model.project.bias.sub_(model.project.weight @ mean)
    recipe = build_recipe({"model": as_values(config), "data": {"classes": classes}})
    return SingleStackArtifact(recipe, None, model)


def _per_pixel(values: Any, config: ModelConfig) -> Tensor:
    """A value for each channel as one for each number of a patch."""
    channels = values if isinstance(values, list) else [values]
    channels = channels * config.channels if len(channels) == 1 else channels
    return torch.tensor([float(value) for value in channels]).repeat_interleave(config.patch**2)


def _language(theirs: Mapping[str, Any], config: ModelConfig, model: Any, path: Path) -> SingleStackArtifact:
    """GPT-2 with the subwords of a sentencepiece model, in our order."""
    content, size = read_bounded(path, MAX_MODEL_BYTES), int(theirs["vocab_size"])
    pieces = [piece.text for piece in read_pieces(content)]
    if len(pieces) > size:
        raise InputError(f"{path}: has {len(pieces):,} pieces, but config.json says {size:,}")
    pieces += [f"<unused {token}>" for token in range(len(pieces), size)]
    ids = [theirs.get(f"{name}_token_id") for name in ("pad", "bos", "eos")]
    pad, start, eos = (token if isinstance(token, int) and 0 <= token < size else NO_ROW for token in ids)
    if eos == NO_ROW or "<unk>" not in pieces:
        raise InputError(f"{path}: the vocabulary has no <unk>, or config.json names no eos_token_id")
    start = eos if start == NO_ROW else start
    vocabulary = order_vocabulary(pieces, SpecialIds(pad, pieces.index("<unk>"), start, eos))
    ours = make_single_stack(config, len(vocabulary.pieces), 0)
    assert isinstance(ours, DecoderOnly)
    matrices = ("output_weight", "embedding.weight")
    taken = {name: vocabulary.pick(value) if name in matrices else value for name, value in weights(model).items()}
    fill_weights(ours, taken, str(path.parent))
    ours.eval()
    data = {"max_length": config.max_positions}
    recipe = build_recipe({"model": as_values(config), "data": data})
    return SingleStackArtifact(recipe, Tokenizer(make_subwords(content, vocabulary)), ours)


def _compare(theirs: Mapping[str, Any], folder: Path, model: Any) -> dict[str, Any]:
    """How far our model is from `transformers` with the same weights, which is not asked to read a file."""
    if importlib.util.find_spec("transformers") is None:
        return {"runtime": "none", "reason": "transformers is not installed"}
    import transformers

    name = {"gpt2": "GPT2", "vit": "ViT"}[theirs["model_type"]]
    kind = {"gpt2": "GPT2LMHeadModel", "vit": "ViTForImageClassification"}[theirs["model_type"]]
    config = getattr(transformers, f"{name}Config")(**dict(theirs))
    other = getattr(transformers, kind).from_pretrained(None, config=config, state_dict=read_tensors(folder / "model.safetensors"))
    other.eval()
    chance = torch.Generator().manual_seed(1)
    with torch.inference_mode():
        if isinstance(model, Vision):
            shape = 2, model.config.channels, model.config.image_height, model.config.image_width
            given = torch.rand(shape, generator=chance)
            ours, wanted = model(given), other(pixel_values=given).logits
        else:
            given = torch.randint(int(theirs["vocab_size"]), (2, min(16, model.config.max_positions)), generator=chance)
            ours, wanted = model.logits(model(given)), other(input_ids=given).logits
    gap = float((ours - wanted).abs().max())
    if not gap <= TOLERANCE:
        raise UndividedError(f"transformers computes something else: logits differ by {gap:.4g}")
    return {"runtime": "transformers", "sentences": 2, "largest_logit_difference": gap}
