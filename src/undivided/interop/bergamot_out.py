"""Export a translator as Marian's own files: for Bergamot and Firefox with weights of 8 bits, or in float32 for Marian.

Marian has post-norm Transformers whose decoder starts from zeros, with sinusoids of its own (`model.positions: marian`), and in
place of the decoder's self-attention may have an SSRU (`model.decoder_self`). Others are refused.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from undivided.artifact import Artifact
from undivided.artifact.weights import weights
from undivided.core.files import write_atomic
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.subword_proto import (
    BOS_ID,
    CONTROL,
    EOS_ID,
    LEAST_SCORE,
    PAD_ID,
    UNK_ID,
    UNKNOWN,
    UNUSED,
    Piece,
    number_field,
    read_pieces,
    write_model,
)
from undivided.data.subwords import Subwords
from undivided.interop.bergamot_parity import compare_rounded, compare_with_marian, sample_rows
from undivided.interop.foreign import Reasons
from undivided.interop.input_scales import OUTPUT, measure_inputs
from undivided.interop.layers import Attention, Layer, Linear, Recurrence, split_layer
from undivided.interop.lexical_shortlist import word_lists, write_shortlist
from undivided.interop.marian_bin import LARGEST, SCALE, write_bin
from undivided.interop.marian_npz import ACTIVATIONS, SETTINGS
from undivided.interop.vocabulary import MASKED

FILLER = -1
"""In an order of our ids: a word that nobody reads or writes, which makes their number a multiple of 8."""
ROUND = 8
WIDTH = 64
"""What the widths of matrices in 8 bits must be a multiple of."""
NONE = (1 << 64) - 1
"""How sentencepiece writes that there is no such special id, -1."""

Arrays = dict[str, np.ndarray]


class Side(NamedTuple):
    """A vocabulary in Marian's order: our ids, and the subword model with that order."""

    rows: list[int]
    spm: bytes


def export_bergamot(artifact: Artifact, folder: Path, stored: str) -> dict[str, Any]:
    """Write the folder; the record of how another engine computes beside us."""
    check_expressible(artifact, stored)
    sides = _sides(artifact)
    arrays = _arrays(artifact, sides)
    rounded = stored == "int8"
    settings = "".join(f"{name}: {_yaml(value)}\n" for name, value in _settings(artifact, sides).items())
    arrays[SETTINGS] = np.frombuffer(settings.encode() + b"\0", np.int8)
    names = ["vocab.spm"] if len(sides) == 1 else ["source.spm", "target.spm"]
    for name, side in zip(names, sides, strict=True):
        write_atomic(folder / name, side.spm)
    write_atomic(folder / "lex.bin", write_shortlist(_word_lists(artifact, sides)))
    if rounded:
        arrays |= _input_scales(artifact)
        write_atomic(folder / "model.intgemm8.bin", write_bin(arrays, rounded=True))
        write_atomic(folder / "config.yml", _bergamot_config(artifact, names))
        return compare_rounded(artifact, folder, names)
    np.savez(folder / "model.npz", **arrays)  # type: ignore[arg-type]
    write_atomic(folder / "decoder.yml", _marian_config(artifact, names))
    return compare_with_marian(artifact, folder, names)


def check_expressible(artifact: Artifact, stored: str) -> None:
    """Refuse what Marian does not have, with every reason."""
    model, reasons = artifact.recipe.model, Reasons("cannot be exported to Bergamot")
    reasons.check(model.kind == "transformer", f"it is a {model.kind} model")
    reasons.refuse()
    reasons.check(model.norm == "post", "pre-norm (model.norm)")
    reasons.check(model.source_eos, "its encoder does not read the </s> behind a source (model.source_eos)")
    reasons.check(not model.window, "restricted attention (model.window)")
    reasons.check(model.activation in ACTIVATIONS, f"the activation {model.activation} (known: {', '.join(ACTIVATIONS)})")
    reasons.check(
        (model.positions, model.join_positions) == ("marian", "add"),
        f"positions other than Marian's own, added (model.positions is {model.positions})",
    )
    reasons.check(model.scale_embeddings, "embeddings without the factor √d_model (model.scale_embeddings)")
    width = model.d_model // model.n_heads
    reasons.check((model.key_width, model.value_width) == (width, width), "heads of a width of their own (model.d_k, model.d_v)")
    starts_from_zero = not artifact.model.target_embedding.weight[BOS].any()
    reasons.check(starts_from_zero, "a decoder that starts from the vector of <s>, not from zeros (model.start)")
    if stored == "int8":
        odd = [name for name in ("d_model", "d_ff") if getattr(model, name) % WIDTH]
        reasons.check(not odd, f"{' and '.join(f'model.{name}' for name in odd)}: no multiple of {WIDTH} (or --weights float32)")
    reasons.refuse()


def _sides(artifact: Artifact) -> list[Side]:
    """One vocabulary if it is shared, else that of the source and of the target."""
    tokenizer, model = artifact.tokenizer, artifact.model
    shared = artifact.recipe.model.tie == "all"
    bias = model.output_bias.detach() if model.output_bias is not None else torch.zeros(len(model.output_weight))
    never = bias < MASKED / 2
    sides = []
    for subwords in (tokenizer.source,) if shared else (tokenizer.source, tokenizer.target):
        known = len(never) == len(subwords) and (shared or subwords is tokenizer.target)
        # Words that are never written may still be read, so they stay; the special ones of ours are no words of Marian.
        rows = [EOS, UNK, *range(EOS + 1, len(subwords))]
        rows += [token for token in (PAD, BOS) if known and not never[token]]
        sides.append(rows + [FILLER] * (-len(rows) % ROUND))
    return [Side(rows, _spm(subwords, rows)) for rows, subwords in zip(sides, (tokenizer.source, tokenizer.target), strict=False)]


def _spm(subwords: Subwords, rows: Sequence[int]) -> bytes:
    """The subword model with Marian's ids: `</s>` is 0 and `<unk>` is 1, and there is neither start nor padding."""
    ours = read_pieces(subwords.model)
    special = {EOS: Piece("</s>", 0.0, CONTROL), UNK: Piece("<unk>", 0.0, UNKNOWN)}
    pieces = [
        Piece(f"<filler {place}>", LEAST_SCORE, UNUSED) if token == FILLER else special.get(token, ours[token])
        for place, token in enumerate(rows)
    ]
    ids = {UNK_ID: 1, BOS_ID: NONE, EOS_ID: 0, PAD_ID: NONE}
    return write_model(subwords.model, pieces, b"".join(number_field(number, value) for number, value in ids.items()))


def _arrays(artifact: Artifact, sides: list[Side]) -> Arrays:
    """The weights under the names of Marian; its matrices are `in out`."""
    config, ours, model = artifact.recipe.model, weights(artifact.model), artifact.model
    found: dict[str, Tensor] = {}

    def linear(name: str, kind: str, part: Linear) -> None:
        found[f"{name}_W{kind}"], found[f"{name}_b{kind}"] = part.weight.t(), part.bias[None]

    def attention(name: str, part: Attention) -> None:
        for kind, each in zip("qkvo", part, strict=True):
            linear(name, kind, each)

    def layer(at: str, part: Layer) -> None:
        own = "rnn_ffn" if isinstance(part.attention, Recurrence) else "self_Wo"
        if isinstance(part.attention, Recurrence):
            found[f"{at}_rnn_W"] = part.attention.candidate.t()
            linear(f"{at}_rnn", "f", part.attention.forget)
        else:
            attention(f"{at}_self", part.attention)
        if part.across is not None:
            attention(f"{at}_context", part.across)
        linear(f"{at}_ffn", "1", part.inner)
        linear(f"{at}_ffn", "2", part.outer)
        for name, norm in zip([own, *(["context_Wo"] if part.across else []), "ffn_ffn"], part.norms, strict=True):
            found[f"{at}_{name}_ln_scale"], found[f"{at}_{name}_ln_bias"] = norm.weight[None], norm.bias[None]

    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for place in range(count):
            layer(f"{side}_l{place + 1}", split_layer(ours, f"{side}.{place}", config))
    if len(sides) == 1:
        found["Wemb"] = _pick(model.target_embedding.weight, sides[0].rows)
    else:
        found["encoder_Wemb"] = _pick(model.source_embedding.weight, sides[0].rows)
        found["decoder_Wemb"] = _pick(model.target_embedding.weight, sides[1].rows)
    if config.tie == "none":
        found["decoder_ff_logit_out_W"] = _pick(model.output_weight, sides[-1].rows).t()
    bias = model.output_bias if model.output_bias is not None else model.output_weight.new_zeros(len(model.output_weight))
    found["decoder_ff_logit_out_b"] = _pick(bias[:, None], sides[-1].rows, MASKED).t()
    return {name: np.ascontiguousarray(tensor.detach().numpy()) for name, tensor in sorted(found.items())}


def _pick(matrix: Tensor, rows: Sequence[int], filler: float = 0.0) -> Tensor:
    """The rows of a matrix in Marian's order."""
    order = torch.tensor(rows)
    picked = matrix.detach()[order.clamp(min=0)].clone()
    picked[order == FILLER] = filler
    return picked


def _settings(artifact: Artifact, sides: list[Side]) -> dict[str, Any]:
    """What Marian asks a model for."""
    model = artifact.recipe.model
    sizes = [len(sides[0].rows), len(sides[-1].rows)]
    return {
        "type": "transformer", "dim-emb": model.d_model, "dim-vocabs": sizes, "enc-depth": model.encoder_layers,
        "dec-depth": model.decoder_layers, "transformer-heads": model.n_heads, "transformer-dim-ffn": model.d_ff,
        "transformer-decoder-dim-ffn": 0, "transformer-ffn-depth": 2, "transformer-ffn-activation": model.activation,
        "transformer-decoder-autoreg": "rnn" if model.decoder_self == "ssru" else "self-attention", "dec-cell": "ssru",
        "dec-cell-base-depth": 2, "dec-cell-high-depth": 1, "enc-cell": "gru", "enc-cell-depth": 1, "enc-type": "bidirectional",
        "dim-rnn": 1024, "dropout-rnn": 0, "layer-normalization": False, "right-left": False, "skip": False,
        "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "", "transformer-no-projection": False, "transformer-train-position-embeddings": False,
        "transformer-tied-layers": [], "transformer-dim-aan": 2048, "transformer-aan-depth": 2, "transformer-aan-nogate": False,
        "transformer-aan-activation": "swish", "transformer-guided-alignment-layer": "last", "tied-embeddings": model.tie != "none",
        "tied-embeddings-src": False, "tied-embeddings-all": model.tie == "all", "ulr": False, "ulr-dim-emb": 0,
        "input-types": [], "version": "v1.9.0",
    }  # fmt: skip


def _yaml(value: Any) -> str:
    return json.dumps(value) if value == "" or isinstance(value, bool | list) else str(value)


def _input_scales(artifact: Artifact) -> Arrays:
    """What the inputs of each product are multiplied by before they are rounded."""
    config = artifact.recipe.model
    largest = measure_inputs(artifact.model, sample_rows(artifact))
    found: dict[str, float] = {}
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for place in range(count):
            ours, theirs = f"{side}.{place}", f"{side}_l{place + 1}"
            if side == "decoder":
                found[f"{theirs}_context_Wq"] = largest[f"{ours}.cross_attention.query"]
                found[f"{theirs}_context_Wo"] = largest[f"{ours}.cross_attention.output"]
                for kind in "kv":
                    found[f"{theirs}_context_W{kind}"] = largest[f"{ours}.cross_attention.key_value"]
            if side == "decoder" and config.decoder_self == "ssru":
                found[f"{theirs}_rnn_W"] = largest[f"{ours}.recurrence.candidate"]
                found[f"{theirs}_rnn_Wf"] = largest[f"{ours}.recurrence.forget"]
            else:
                found |= {f"{theirs}_self_W{kind}": largest[f"{ours}.self_attention.qkv"] for kind in "qkv"}
                found[f"{theirs}_self_Wo"] = largest[f"{ours}.self_attention.output"]
            for number, name in ((1, "inner"), (2, "outer")):
                found[f"{theirs}_ffn_W{number}"] = largest[f"{ours}.feed_forward.{name}"]
    # Over a shortlist the engines call the projection to the vocabulary `none`.
    output = "decoder_ff_logit_out_W" if config.tie == "none" else "Wemb" if config.tie == "all" else "decoder_Wemb"
    found |= {output: largest[OUTPUT], "none": largest[OUTPUT]}
    return {f"{name}{SCALE}": np.full((1, 1), LARGEST / max(size, 1e-6), np.float32) for name, size in sorted(found.items())}


def _word_lists(artifact: Artifact, sides: list[Side]) -> list[list[int]]:
    source, target = artifact.tokenizer.source, artifact.tokenizer.target
    twins: dict[int, int] = {}
    if len(sides) > 1:
        by_text = {piece: token for token, piece in enumerate(target.pieces(range(len(target)))) if token > EOS}
        pieces = source.pieces(range(len(source)))
        twins = {token: by_text[piece] for token, piece in enumerate(pieces) if token > EOS and piece in by_text}
    return word_lists(artifact.shortlist, sides[0].rows, sides[-1].rows, twins)


def _marian_config(artifact: Artifact, names: list[str]) -> str:
    search = artifact.recipe.search
    return (
        f"relative-paths: true\nmodels:\n  - model.npz\nvocabs:\n  - {names[0]}\n  - {names[-1]}\n"
        f"beam-size: {search.beam_size}\nnormalize: {search.length_penalty}\nmax-length-factor: 3\nallow-unk: false\n"
    )


def _bergamot_config(artifact: Artifact, names: list[str]) -> str:
    search = artifact.recipe.search
    return (
        f"relative-paths: true\nmodels:\n  - model.intgemm8.bin\nvocabs:\n  - {names[0]}\n  - {names[-1]}\n"
        "shortlist:\n  - lex.bin\n  - false\n"
        f"beam-size: {search.beam_size}\nnormalize: {search.length_penalty}\nword-penalty: 0\n"
        "max-length-break: 128\nmini-batch-words: 1024\nworkspace: 128\nmax-length-factor: 2.0\nskip-cost: true\n"
        "cpu-threads: 0\nquiet: true\nquiet-translation: true\ngemm-precision: int8shiftAlphaAll\nalignment: soft\n"
    )
