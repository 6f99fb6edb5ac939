"""What a model costs, counted from its shapes: products of a pass, memory kept for the gradient; and the paper's accounting.

Counted as they are computed: a restricted neighbourhood (`model.window`) saves scores where sequences are much longer than it, and
only masks them where they are not. [paper 6.1, Table 1, Table 2]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from undivided.config import ModelConfig
from undivided.models.cells import CELLS
from undivided.nn.local import count_scores

SUSTAINED = {"K80": 2.8e12, "K40": 3.7e12, "M40": 6.0e12, "P100": 9.5e12}
"""Single-precision FLOP/s that the paper assumes of a GPU. [paper 6.1, footnote 5]"""
PAPER_GPUS = 8
"""How many P100 the paper trained on. [paper 5.2]"""
PAPER_HOURS = {"base": 12.0, "big": 3.5 * 24}
"""How long the paper trained on them. [paper 5.2]"""
PAPER_STEPS = {"base": 100_000, "big": 300_000}
"""How many steps that were. [paper 5.2]"""
PAPER_VOCABULARY = 37_000
"""Subwords of the paper's English and German. [paper 5.1]"""


def paper_cost(hours: float, gpus: int, sustained: float) -> float:
    """Training FLOPs as the paper counts them: time × number of GPUs × sustained FLOP/s of each. [paper 6.1, Table 2]"""
    return hours * 3600 * gpus * sustained


class Products(NamedTuple):
    """The matrix products of a forward pass over one pair of sentences, in multiplications, each with an addition."""

    source_weights: int
    """With weights, for the source's tokens: the encoder, and what the decoder reads of its output."""
    source_attention: int
    """Between the source's positions: scores, and sums of values."""
    target_weights: int
    """With weights, for the target's tokens, those to the vocabulary aside."""
    target_attention: int
    """Between target positions, and between them and the source's."""
    output: int
    """The projection to the vocabulary."""

    @property
    def forward_flops(self) -> int:
        """Multiplications and additions of the whole pass."""
        return 2 * sum(self)

    @property
    def training_flops(self) -> int:
        """Of forward and backward: the backward pass has two products for each of the forward pass."""
        return 3 * self.forward_flops


def count_products(model: ModelConfig, tgt_vocab: int, source: int, target: int) -> Products:
    """The products of a sequence-to-sequence model for a pair of sentences of these lengths, `</s>` included."""
    count = {"transformer": _transformer, "recurrent": _recurrent, "convolutional": _convolutional}[model.kind]
    return Products(*count(model, source, target), target * model.d_model * tgt_vocab)


def _transformer(model: ModelConfig, source: int, target: int) -> tuple[int, int, int, int]:
    """[paper 3]"""
    d, keys, values = model.d_model, model.n_heads * model.key_width, model.n_heads * model.value_width
    feed = (3 if model.activation == "swiglu" else 2) * d * model.d_ff
    own = d * (2 * keys + values) + values * d
    encoder, read = own + feed, d * (keys + values)
    recurrent = model.decoder_self == "ssru"
    past = 0 if recurrent else count_scores(target, model.window, causal=True)
    decoder = (2 * d * d if recurrent else own) + feed + d * keys + values * d
    return (
        source * (model.encoder_layers * encoder + model.decoder_layers * read + _join_positions(model)),
        model.encoder_layers * count_scores(source, model.window, causal=False) * (keys + values),
        target * (model.decoder_layers * decoder + _join_positions(model)),
        model.decoder_layers * (target * source + past) * (keys + values),
    )


def _join_positions(model: ModelConfig) -> int:
    """Of a token: the projection of its embedding and its position side by side, where they are not added."""
    return 2 * model.d_model**2 if model.join_positions == "concatenate" else 0


def _recurrent(model: ModelConfig, source: int, target: int) -> tuple[int, int, int, int]:
    d, h, cell = model.d_model, model.hidden_width, CELLS[model.cell]
    attends = model.attention != "none"
    encoder = sum(_recurrence(model, d_in) for d_in in _encoder_inputs(model))
    decoder = sum(cell.gates * (d_in * h + h * h) for d_in in _decoder_inputs(model))
    bridge = h * model.decoder_layers * cell.parts * h
    query = h * h if model.attention == "additive" else 0
    return (
        source * (encoder + (h * h if attends else 0)) + bridge,
        0,
        target * (decoder + query + 2 * h * d),
        2 * target * source * h if attends else 0,
    )


def _recurrence(model: ModelConfig, d_in: int) -> int:
    """Of a token in one encoder layer: two directions of half the width, or one."""
    directions, width = (2, model.hidden_width // 2) if model.bidirectional else (1, model.hidden_width)
    return directions * CELLS[model.cell].gates * (d_in * width + width * width)


def _encoder_inputs(model: ModelConfig) -> list[int]:
    """How wide the inputs of each recurrent layer are."""
    return [model.d_model] + [model.hidden_width] * (model.encoder_layers - 1)


def _decoder_inputs(model: ModelConfig) -> list[int]:
    """The first reads the embedding beside the source's final state or, fed, beside the last output."""
    beside = model.hidden_width if model.attention == "none" else model.d_model if model.input_feeding else 0
    return [model.d_model + beside] + [model.hidden_width] * (model.decoder_layers - 1)


def _convolutional(model: ModelConfig, source: int, target: int) -> tuple[int, int, int, int]:
    d, h = model.d_model, model.hidden_width
    gate, in_and_out = model.kernel_width * h * 2 * h, 2 * d * h
    return (
        source * (in_and_out + model.encoder_layers * gate + _join_positions(model)),
        0,
        target * (in_and_out + model.decoder_layers * (gate + 2 * d * h) + _join_positions(model)),
        model.decoder_layers * 2 * target * source * d,
    )


@dataclass(frozen=True)
class Cost:
    """What a token costs in sentences of one length: FLOPs of a forward pass, and bytes kept for the backward pass."""

    per_source_token: float
    per_target_token: float
    bytes_per_source_token: float
    bytes_per_target_token: float

    def step_flops(self, source_tokens: float, target_tokens: float) -> float:
        """Forward and backward: the backward pass has two products for each of the forward pass."""
        return 3 * (source_tokens * self.per_source_token + target_tokens * self.per_target_token)


def model_cost(model: ModelConfig, tgt_vocab: int, length: int) -> Cost:
    """The cost of a token in pairs of sentences of some length, counted from the shapes of the layers. [paper Table 1]"""
    products = count_products(model, tgt_vocab, length, length)
    source = 2 * (products.source_weights + products.source_attention) / length
    target = 2 * (products.target_weights + products.target_attention + products.output) / length
    keep = {"transformer": _transformer_kept, "recurrent": _recurrent_kept, "convolutional": _convolutional_kept}[model.kind]
    return Cost(source, target, *(4.0 * numbers for numbers in keep(model, length)))


def _transformer_kept(model: ModelConfig, length: int) -> tuple[int, int]:
    """Numbers kept of a source and of a target token.

    Of each sub-layer its input, its dropout mask and the input of its norm; of attention Q, K, V, weights and heads.
    """
    d, f, heads = model.d_model, model.d_ff, model.n_heads
    keys, values = heads * model.key_width, heads * model.value_width
    gates = 2 * f if model.activation == "swiglu" else 0
    near, past = (heads * count_scores(length, model.window, causal=causal) // length for causal in (False, True))
    common = 6 * d + 2 * keys + 2 * values + f + gates
    own, across = common + near, common + past + 3 * d + keys + values + heads * length
    if model.decoder_self == "ssru":
        # The gate, what it leaves, the candidate, the cell and what is read of it, instead of an attention to the past.
        across += 5 * d - (2 * keys + 2 * values + past)
    return model.encoder_layers * own + model.decoder_layers * (keys + values), model.decoder_layers * across


KEPT_BY_CELL = {"rnn": (2, 2), "lstm": (18, 7), "gru": (8, 8)}
"""Widths of numbers that a token leaves in a layer of cells: fused over a sequence, and written out for input feeding. Measured."""


def _recurrent_kept(model: ModelConfig, length: int) -> tuple[int, int]:
    """Of cells what `KEPT_BY_CELL` says; of attention keys, queries and weights; of the output its parts."""
    d, h = model.d_model, model.hidden_width
    fused, written_out = KEPT_BY_CELL[model.cell]
    encoder = model.encoder_layers * (fused + model.bidirectional) * h
    decoder = model.decoder_layers * (written_out if model.input_feeding else fused) * h + 2 * h + 2 * d
    decoder += _decoder_inputs(model)[0] if model.attention == "none" or model.input_feeding else 0
    decoder += 4 * h + length if model.attention != "none" else 0
    decoder += length * h if model.attention == "additive" else 0
    return encoder, decoder


def _convolutional_kept(model: ModelConfig, length: int) -> tuple[int, int]:
    """Of each convolution its windows, both halves and the gate; of attention what it asks with, weights and what it gets."""
    d, h = model.d_model, model.hidden_width
    gate, join = (model.kernel_width + 3) * h, _join_positions(model) // d
    attention = 2 * h + 2 * d + length
    return model.encoder_layers * gate + join, model.decoder_layers * (gate + attention) + h + d + join
