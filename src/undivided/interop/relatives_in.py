"""Import GPT-2, BERT and ViT folders of `transformers` as model folders."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from undivided.artifact import SingleStackArtifact
from undivided.artifact.weights import check_finite, fill_weights, weights
from undivided.config import ModelConfig, build_recipe
from undivided.config.settings import as_values
from undivided.core.errors import InputError, UndividedError
from undivided.data.subwords import Tokenizer
from undivided.interop.foreign import Reasons, Tensors, origin, plain_file, read_object
from undivided.interop.foreign_subwords import ForeignSubwords, read_foreign_subwords
from undivided.interop.parity import TOLERANCE
from undivided.interop.pretrained import read_pretrained
from undivided.models import DecoderOnly, EncoderOnly, Vision, make_single_stack
from undivided.models.encoder_only import WordHead

HEADS = {
    "gpt2": ("GPT2LMHeadModel",),
    "bert": ("BertForMaskedLM", "BertForPreTraining", "BertForSequenceClassification"),
    "vit": ("ViTForImageClassification",),
}
"""The classes of `transformers` whose heads can be expressed; of pretraining the one for words."""
KINDS = tuple(HEADS)
SHAPE = {
    "gpt2": (
        "vocab_size", "n_positions", "n_embd", "n_layer", "n_head", "n_inner", "activation_function", "layer_norm_epsilon",
        "tie_word_embeddings",
    ),
    "bert": (
        "vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act",
        "max_position_embeddings", "layer_norm_eps",
    ),
    "vit": (
        "hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "hidden_act", "layer_norm_eps",
        "image_size", "patch_size", "num_channels",
    ),
}  # fmt: skip
"""The settings that `transformers` is given for the comparison: what else a config says may ask it for anything."""


def import_relative(folder: Path, license: str = "") -> SingleStackArtifact:
    """Read a folder that `GPT2LMHeadModel`, `BertForMaskedLM` and the like would load."""
    theirs = read_object(plain_file(folder, "config.json"))
    _check_expressible(folder, theirs)
    found, tensors, path = read_pretrained(folder)
    check_finite(found.model, path)
    used = [folder / "config.json", path]
    subwords = None if isinstance(found.model, Vision) else read_foreign_subwords(folder, theirs)
    record = _compare(theirs, tensors, found.model)
    if isinstance(found.model, Vision):
        artifact = _vision(folder, theirs, found.config, found.model)
    else:
        assert subwords is not None
        used += subwords.files
        artifact = _language(theirs, found.config, found.model, subwords, folder)
    artifact.facts |= origin(folder, "Hugging Face", used, license)
    artifact.facts |= {"parity": record, "parameters": sum(each.numel() for each in artifact.model.parameters())}
    return artifact


def _check_expressible(folder: Path, theirs: Mapping[str, Any]) -> None:
    """Refuse another head, or attention that ours cannot express, with every reason."""
    reasons = Reasons(f"{folder}: cannot be imported")
    heads, kinds = theirs.get("architectures"), HEADS[theirs["model_type"]]
    head = heads[0] if isinstance(heads, list) and heads else kinds[0]
    reasons.check(head in kinds, f"its architecture is {head}; known: {', '.join(kinds)}")
    if theirs["model_type"] == "bert":
        place = theirs.get("position_embedding_type") or "absolute"
        reasons.check(place == "absolute", f"its positions are {place}")
        reasons.check(theirs.get("type_vocab_size", 2) == 2, f"it has {theirs.get('type_vocab_size')} token types, ours 2")
        kind = theirs.get("problem_type") or "single_label_classification"
        reasons.check(kind == "single_label_classification", f"it solves a problem of {kind}, not one class for each text")
    for name in ("is_decoder", "add_cross_attention"):
        reasons.check(not theirs.get(name), name)
    size = theirs.get("vocab_size", 1)
    reasons.check(type(size) is int and size > 0, f"vocab_size is {size!r}")
    reasons.refuse()


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


def _language(
    theirs: Mapping[str, Any], config: ModelConfig, model: Any, found: ForeignSubwords, folder: Path
) -> SingleStackArtifact:
    """GPT-2 or BERT with our order of its vocabulary; tokens that it has not are never written."""
    classes, vocabulary, taken = _classes(theirs, model, folder), found.vocabulary, weights(model)
    for name in taken.keys() & {"output_weight", "embedding.weight"}:
        taken[name] = vocabulary.pick(taken[name])
    if isinstance(model, DecoderOnly):
        config = dataclasses.replace(config, output_bias=True)
        taken["output_bias"] = vocabulary.bias(torch.zeros(int(theirs["vocab_size"])))
    elif not classes:
        taken["head.bias"] = vocabulary.bias(taken["head.bias"])
    ours = make_single_stack(config, len(vocabulary.pieces), len(classes))
    fill_weights(ours, taken, str(folder))
    ours.eval()
    recipe = build_recipe({"model": as_values(config), "data": {"max_length": config.max_positions, "classes": classes}})
    return SingleStackArtifact(recipe, Tokenizer(found.subwords), ours)


def _classes(theirs: Mapping[str, Any], model: Any, folder: Path) -> list[str]:
    """The names of what a BERT classifies texts as; none where it guesses words."""
    if not isinstance(model, EncoderOnly) or isinstance(model.head, WordHead):
        return []
    count, names = len(model.head.output.bias), theirs.get("id2label") or {}
    found = [str(names.get(str(number), f"LABEL_{number}")) for number in range(count)]
    if count < 2 or len(set(found)) < count:
        raise InputError(f"{folder}: its {count} classes ({', '.join(found[:3])}) are no choice between names")
    return found


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """Within, `transformers` says nothing of tensors that it does not need, and shows no progress."""
    level, bar = log.get_verbosity(), log.is_progress_bar_enabled()
    log.set_verbosity_error()
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(level)
        if bar:
            log.enable_progress_bar()


def _compare(theirs: Mapping[str, Any], tensors: Tensors, model: DecoderOnly | EncoderOnly | Vision) -> dict[str, Any]:
    """How far our model is from `transformers` with the same weights, which is not asked to read a file."""
    if importlib.util.find_spec("transformers") is None:
        return {"runtime": "none", "reason": "transformers is not installed"}
    import transformers

    kind, words = str(theirs["model_type"]), isinstance(model, EncoderOnly) and isinstance(model.head, WordHead)
    head = HEADS[kind][0] if kind != "bert" or words else "BertForSequenceClassification"
    given = {name: theirs[name] for name in SHAPE[kind] if name in theirs}
    if "classifier.bias" in tensors:
        given["num_labels"] = len(tensors["classifier.bias"])
    config = getattr(transformers, head).config_class(**given)
    with _quiet(transformers.utils.logging):
        other = getattr(transformers, head).from_pretrained(None, config=config, state_dict=dict(tensors)).eval()
    chance = torch.Generator().manual_seed(1)
    with torch.inference_mode():
        if isinstance(model, Vision):
            shape = 2, model.config.channels, model.config.image_height, model.config.image_width
            images = torch.rand(shape, generator=chance)
            ours, wanted = model(images), other(pixel_values=images).logits
        else:
            ids = torch.randint(int(theirs["vocab_size"]), (2, min(16, model.config.max_positions)), generator=chance)
            ours = model.logits(model(ids)) if isinstance(model, DecoderOnly) else model(ids, None)
            wanted = other(input_ids=ids).logits
    gap = float((ours - wanted).abs().max())
    if not gap <= TOLERANCE:
        raise UndividedError(f"transformers computes something else: logits differ by {gap:.4g}")
    return {"runtime": "transformers", "sentences": 2, "largest_logit_difference": gap}
