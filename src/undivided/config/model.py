"""The model: its kind, sizes and variations."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from undivided.config.settings import setting

TRANSFORMER, RECURRENT, CONVOLUTIONAL = ("transformer",), ("recurrent",), ("convolutional",)
DECODER_ONLY, ENCODER_ONLY, VISION, DRAWING = ("decoder_only",), ("encoder_only",), ("vision",), ("drawing",)
"""Kinds of model, for settings that only some of them have."""
PAIRED = TRANSFORMER + RECURRENT + CONVOLUTIONAL
"""Sequence-to-sequence models: they learn from pairs of text, and translate."""
SINGLE_STACK = DECODER_ONLY + ENCODER_ONLY + VISION + DRAWING
"""Later models from the same layers, with one stack instead of encoder and decoder."""
ATTENTIVE = TRANSFORMER + SINGLE_STACK
IMAGES = VISION + DRAWING


MAX_PATCHES = 16_384
"""Most tokens of an image: a model folder may come from a stranger, so memory must be bounded."""


@dataclass(frozen=True)
class ModelConfig:
    """The model; the defaults are base. [paper Table 3]"""

    kind: Literal["transformer", "recurrent", "convolutional", "decoder_only", "encoder_only", "vision", "drawing"] = setting(
        "transformer",
        "transformer (the paper's); earlier sequence-to-sequence models: recurrent, convolutional; later ones: decoder_only (like "
        "GPT), encoder_only (like BERT), vision (like ViT), drawing (images from words, like DALL·E)",
    )
    d_model: int = setting(512, "width of embeddings and of every layer's output", at_least=1)
    d_ff: int = setting(2048, "inner width of the feed-forward layers", at_least=1, of=ATTENTIVE)
    n_heads: int = setting(8, "attention heads", at_least=1, of=ATTENTIVE)
    d_k: int = setting(0, "width of a head's queries and keys; 0 = d_model / n_heads", at_least=0, of=ATTENTIVE)
    d_v: int = setting(0, "width of a head's values; 0 = d_model / n_heads", at_least=0, of=ATTENTIVE)
    d_hidden: int = setting(
        0, "width of recurrent states or of convolutions; 0 = d_model", at_least=0, of=RECURRENT + CONVOLUTIONAL
    )
    encoder_layers: int = setting(6, "encoder layers (the paper's N)", at_least=1, of=PAIRED + ENCODER_ONLY + VISION)
    decoder_layers: int = setting(6, "decoder layers (the paper's N)", at_least=1, of=PAIRED + DECODER_ONLY + DRAWING)
    dropout: float = setting(0.1, "dropout on sub-layer outputs and on embeddings + positions", at_least=0.0, below=1.0)
    attention_dropout: float = setting(0.0, "dropout on attention weights", at_least=0.0, below=1.0, of=ATTENTIVE)
    activation_dropout: float = setting(0.0, "dropout inside the feed-forward layers", at_least=0.0, below=1.0, of=ATTENTIVE)
    norm: Literal["post", "pre"] = setting(
        "post", "LayerNorm: post (after each residual sum, as in the paper) or pre (before each sub-layer)", of=ATTENTIVE
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"] = setting(
        "relu",
        "non-linearity of the feed-forward layers: relu (paper), gelu, gelu_tanh (GPT-2's approximation of gelu), swish, "
        "swiglu (swish times a second, linear projection)",
        of=ATTENTIVE,
    )
    attention_bias: bool = setting(False, "biases in the attention projections", of=ATTENTIVE)
    decoder_self: Literal["attention", "ssru"] = setting(
        "attention",
        "what a decoder layer reads its own past with: attention (paper), or ssru (a simpler simple recurrent unit, which "
        "remembers one vector, so that a step costs the same however long the sentence is)",
        of=TRANSFORMER,
    )
    window: int = setting(
        0,
        "restrict self-attention to window/2 positions to each side (r in section 4 of the paper); 0 = no restriction",
        at_least=0,
        of=TRANSFORMER + DECODER_ONLY,
    )
    positions: Literal["sinusoidal", "halves", "marian", "learned", "index", "none"] = setting(
        "sinusoidal",
        "position encoding: sinusoidal (paper; sines and cosines interleaved), halves (all sines, then all cosines, like "
        "Hugging Face's Marian), marian (the same with the wavelengths of Marian itself and tensor2tensor), "
        "learned (a trained vector per position), index (the position itself as a number), none",
        of=ATTENTIVE + CONVOLUTIONAL,
    )
    join_positions: Literal["add", "concatenate"] = setting(
        "add",
        "how positions join embeddings: add (paper), or concatenate and project back to d_model",
        of=ATTENTIVE + CONVOLUTIONAL,
    )
    max_positions: int = setting(1024, "number of learned positions", at_least=1, of=ATTENTIVE + CONVOLUTIONAL)
    scale_embeddings: bool = setting(True, "multiply embeddings by √d_model, as in the paper; GPT-2 and BERT do not", of=ATTENTIVE)
    output_bias: bool = setting(
        False, "a bias on the logits of each token (Marian's models have one; the paper's has none)", of=PAIRED + DECODER_ONLY
    )
    source_eos: bool = setting(
        True,
        "the encoder reads the </s> behind a source (false in models of OpenNMT-py, which see none)",
        of=TRANSFORMER,
    )
    start: Literal["symbol", "zero"] = setting(
        "symbol",
        "what the decoder reads first: symbol (the vector of <s>, paper), or zero (zeros, as in Marian and Firefox: <s> and <pad> "
        "are then no words of the vocabulary; needs model.output_bias)",
        of=TRANSFORMER,
    )
    norm_epsilon: float = setting(1e-5, "ε that LayerNorm adds to the variance", at_least=0.0, of=SINGLE_STACK)
    cell: Literal["rnn", "lstm", "gru"] = setting("lstm", "recurrent cell: rnn (plain tanh), lstm or gru", of=RECURRENT)
    bidirectional: bool = setting(True, "bidirectional encoder: half of each layer reads from the end", of=RECURRENT)
    attention: Literal["none", "additive", "multiplicative"] = setting(
        "multiplicative",
        "how the decoder reads the source: none (the encoder's final state only), additive (Bahdanau's attention) or "
        "multiplicative (Luong's)",
        of=RECURRENT,
    )
    input_feeding: bool = setting(
        False, "feed the attention output of each step into the next (Luong's input feeding)", of=RECURRENT
    )
    kernel_width: int = setting(3, "tokens that one convolution sees", at_least=1, of=CONVOLUTIONAL)
    patch: int = setting(
        2, "side in pixels of the square patches that an image is cut into; each is a token", at_least=1, below=1025, of=IMAGES
    )
    image_height: int = setting(0, "height of images in pixels; 0 = that of the training images", at_least=0, below=4097, of=IMAGES)
    image_width: int = setting(0, "width of images in pixels; 0 = that of the training images", at_least=0, below=4097, of=IMAGES)
    channels: int = setting(1, "colour channels of an image: 1 = grey, 3 = RGB", at_least=1, below=5, of=IMAGES)
    codes: int = setting(64, "size of the learned codebook of patches", at_least=2, below=65_537, of=DRAWING)
    d_code: int = setting(8, "width of a vector of the codebook", at_least=1, below=4097, of=DRAWING)
    tie: Literal["all", "target", "none"] = setting(
        "all",
        "embeddings and output layer with the same weights: all (source, target and output, as in the paper), target (target and "
        "output) or none",
        of=PAIRED + DECODER_ONLY + DRAWING,
    )

    def faults(self) -> list[str]:
        """What is wrong between settings that are each right."""
        faults = [
            f"{item.name}: a setting of {join_names(item.metadata['of'])} models; model.kind is {self.kind}"
            for item in fields(self)
            if not applies(item.metadata["of"], self.kind) and getattr(self, item.name) != item.default
        ]
        positioned = applies(ATTENTIVE + CONVOLUTIONAL, self.kind)
        if self.kind in ATTENTIVE and self.d_model % self.n_heads and not (self.d_k and self.d_v):
            faults.append(
                f"n_heads: {self.n_heads} does not divide model.d_model {self.d_model}; "
                "change one of them, or set both model.d_k and model.d_v"
            )
        if positioned and self.d_model % 2 and self.positions in ("sinusoidal", "halves", "marian"):
            faults.append(f"d_model: {self.d_model} is odd, but sinusoidal positions need an even width")
        if positioned and self.positions == "none" and self.join_positions == "concatenate":
            faults.append("join_positions: there is nothing to concatenate while model.positions is none")
        if self.start == "zero" and not self.output_bias:
            faults.append("start: zero needs model.output_bias, which is how <s> and <pad> are never written")
        if self.kind == "recurrent":
            faults += self._recurrent_faults()
        for side in ("image_height", "image_width") if self.kind in IMAGES else ():
            if getattr(self, side) % self.patch:
                faults.append(
                    f"{side}: patches of {self.patch} × {self.patch} (model.patch) do not divide {getattr(self, side)} pixels"
                )
        if self.kind in IMAGES and self.n_patches > MAX_PATCHES:
            faults.append(f"patch: {self.n_patches:,} patches per image are more than {MAX_PATCHES:,}; make the patches larger")
        return faults

    def _recurrent_faults(self) -> list[str]:
        faults = []
        if self.input_feeding and self.attention == "none":
            faults.append("input_feeding: there is nothing to feed without model.attention; set that to additive or multiplicative")
        if self.bidirectional and self.hidden_width % 2:
            name = "d_hidden" if self.d_hidden else "d_model"
            faults.append(f"{name}: {self.hidden_width} is odd, but with model.bidirectional each direction has half of it")
        return faults

    def draft_faults(self) -> list[str]:
        """What keeps a model from having a draft decoder."""
        if self.kind != "transformer":
            return [f"{self.kind} models have none"]
        faults = []
        if self.decoder_self != "attention":
            faults.append(f"its decoder has no self-attention (model.decoder_self {self.decoder_self})")
        if self.window:
            faults.append("its attention is restricted (model.window)")
        return faults

    @property
    def key_width(self) -> int:
        """Width of a head's queries and keys."""
        return self.d_k or self.d_model // self.n_heads

    @property
    def value_width(self) -> int:
        """Width of a head's values."""
        return self.d_v or self.d_model // self.n_heads

    @property
    def hidden_width(self) -> int:
        """Width of recurrent states or of convolutions."""
        return self.d_hidden or self.d_model

    @property
    def position_limit(self) -> int | None:
        """The longest sequence that learned positions allow; None where there is no limit."""
        return self.max_positions if self.positions == "learned" and applies(ATTENTIVE + CONVOLUTIONAL, self.kind) else None

    @property
    def n_patches(self) -> int:
        """How many patches an image has."""
        return (self.image_height // self.patch) * (self.image_width // self.patch)


def join_names(names: tuple[str, ...]) -> str:
    """`a, b and c`."""
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])


def applies(of: tuple[str, ...], kind: str) -> bool:
    """Whether a setting of the kinds `of` (all kinds if empty) is one of this kind."""
    return not of or kind in of
