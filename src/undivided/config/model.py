"""What a model is: its kind, its sizes, its variations."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from undivided.config.settings import setting

TRANSFORMER, RECURRENT, CONVOLUTIONAL = ("transformer",), ("recurrent",), ("convolutional",)
DECODER_ONLY, ENCODER_ONLY, VISION, DRAWING = ("decoder_only",), ("encoder_only",), ("vision",), ("drawing",)
"""Kinds of model, for the settings that only some of them have."""
PAIRED = TRANSFORMER + RECURRENT + CONVOLUTIONAL
"""Sequence to sequence: they learn from pairs of text, and translate."""
SINGLE_STACK = DECODER_ONLY + ENCODER_ONLY + VISION + DRAWING
"""What came after, from the same layers."""
ATTENTIVE = TRANSFORMER + SINGLE_STACK
IMAGES = VISION + DRAWING


MAX_PATCHES = 16_384
"""Tokens of an image: a model folder may come from a stranger, and memory must bear what it claims."""


@dataclass(frozen=True)
class ModelConfig:
    """The model; the defaults are base. [paper Table 3]"""

    kind: Literal["transformer", "recurrent", "convolutional", "decoder_only", "encoder_only", "vision", "drawing"] = setting(
        "transformer",
        "the Transformer; before it: recurrent or convolutional sequence-to-sequence; after it: decoder_only (as GPT), "
        "encoder_only (as BERT), vision (as ViT), drawing (images from words, as DALL·E)",
    )
    d_model: int = setting(512, "width of embeddings and of every layer's output", at_least=1)
    d_ff: int = setting(2048, "inner width of the feed-forward layers", at_least=1, of=ATTENTIVE)
    n_heads: int = setting(8, "attention heads", at_least=1, of=ATTENTIVE)
    d_k: int = setting(0, "width of a head's queries and keys; 0 is d_model / n_heads", at_least=0, of=ATTENTIVE)
    d_v: int = setting(0, "width of a head's values; 0 is d_model / n_heads", at_least=0, of=ATTENTIVE)
    d_hidden: int = setting(
        0, "width of recurrent states or of convolutions; 0 is d_model", at_least=0, of=RECURRENT + CONVOLUTIONAL
    )
    encoder_layers: int = setting(6, "encoder depth N", at_least=1, of=PAIRED + ENCODER_ONLY + VISION)
    decoder_layers: int = setting(6, "decoder depth N", at_least=1, of=PAIRED + DECODER_ONLY + DRAWING)
    dropout: float = setting(0.1, "on sub-layer outputs and on embedding + position", at_least=0.0, below=1.0)
    attention_dropout: float = setting(0.0, "on attention weights", at_least=0.0, below=1.0, of=ATTENTIVE)
    activation_dropout: float = setting(0.0, "inside the feed-forward layers", at_least=0.0, below=1.0, of=ATTENTIVE)
    norm: Literal["post", "pre"] = setting(
        "post", "LayerNorm after each residual sum (paper) or before each sub-layer", of=ATTENTIVE
    )
    activation: Literal["relu", "gelu", "gelu_tanh", "swish", "swiglu"] = setting(
        "relu", "non-linearity of the feed-forward layers; gelu_tanh is GPT-2's approximation of gelu", of=ATTENTIVE
    )
    attention_bias: bool = setting(False, "biases in the attention projections", of=ATTENTIVE)
    window: int = setting(
        0,
        "restrict self-attention to window/2 places to each side (r of paper section 4); 0 is off",
        at_least=0,
        of=TRANSFORMER + DECODER_ONLY,
    )
    positions: Literal["sinusoidal", "halves", "learned", "index", "none"] = setting(
        "sinusoidal",
        "position encoding: interleaved sinusoids (paper), the same in halves (Marian), …",
        of=ATTENTIVE + CONVOLUTIONAL,
    )
    join_positions: Literal["add", "concatenate"] = setting("add", "how positions meet embeddings", of=ATTENTIVE + CONVOLUTIONAL)
    max_positions: int = setting(1024, "size of the table of learned positions", at_least=1, of=ATTENTIVE + CONVOLUTIONAL)
    scale_embeddings: bool = setting(True, "embeddings × √d_model, as in the paper; GPT-2 and BERT do without", of=SINGLE_STACK)
    norm_epsilon: float = setting(1e-5, "what LayerNorm adds to a variance", at_least=0.0, of=SINGLE_STACK)
    cell: Literal["rnn", "lstm", "gru"] = setting("lstm", "recurrent cell; rnn is the plain tanh cell", of=RECURRENT)
    bidirectional: bool = setting(True, "half of each encoder layer reads from the end", of=RECURRENT)
    attention: Literal["none", "additive", "multiplicative"] = setting(
        "multiplicative", "how the decoder reads the source: its final state alone, Bahdanau's or Luong's attention", of=RECURRENT
    )
    input_feeding: bool = setting(False, "the decoder is told what it attended to one step before", of=RECURRENT)
    kernel_width: int = setting(3, "tokens that one convolution sees", at_least=1, of=CONVOLUTIONAL)
    patch: int = setting(2, "side of the square patches of an image, each a token", at_least=1, below=1025, of=IMAGES)
    image_height: int = setting(0, "pixels; 0 is as the training images are", at_least=0, below=4097, of=IMAGES)
    image_width: int = setting(0, "pixels; 0 is as the training images are", at_least=0, below=4097, of=IMAGES)
    channels: int = setting(1, "colours of an image", at_least=1, below=5, of=IMAGES)
    codes: int = setting(64, "size of the learned codebook of patches", at_least=2, below=65_537, of=DRAWING)
    d_code: int = setting(8, "width of a code", at_least=1, below=4097, of=DRAWING)
    tie: Literal["all", "target", "none"] = setting(
        "all", "one matrix for source, target and output (paper), target and output, or none", of=PAIRED + DECODER_ONLY + DRAWING
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
        if positioned and self.d_model % 2 and self.positions in ("sinusoidal", "halves"):
            faults.append(f"d_model: {self.d_model} is odd, but sinusoidal positions need an even width")
        if positioned and self.positions == "none" and self.join_positions == "concatenate":
            faults.append("join_positions: there is nothing to concatenate while model.positions is none")
        if self.kind == "recurrent":
            faults += self._recurrent_faults()
        for side in ("image_height", "image_width") if self.kind in IMAGES else ():
            if getattr(self, side) % self.patch:
                faults.append(
                    f"{side}: patches of {self.patch} × {self.patch} (model.patch) do not divide {getattr(self, side)} pixels"
                )
        if self.kind in IMAGES and self.n_patches > MAX_PATCHES:
            faults.append(f"patch: {self.n_patches:,} patches an image are more than {MAX_PATCHES:,}; make them larger")
        return faults

    def _recurrent_faults(self) -> list[str]:
        faults = []
        if self.input_feeding and self.attention == "none":
            faults.append("input_feeding: there is nothing to feed without model.attention; set that to additive or multiplicative")
        if self.bidirectional and (self.d_hidden or self.d_model) % 2:
            name = "d_hidden" if self.d_hidden else "d_model"
            faults.append(
                f"{name}: {self.d_hidden or self.d_model} is odd, but with model.bidirectional each direction has half of it"
            )
        return faults

    @property
    def n_patches(self) -> int:
        """How many patches an image has."""
        return (self.image_height // self.patch) * (self.image_width // self.patch)


def join_names(names: tuple[str, ...]) -> str:
    """Names as a sentence has them."""
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])


def applies(of: tuple[str, ...], kind: str) -> bool:
    """Whether a setting of some kinds of model, or of all, is one of this kind."""
    return not of or kind in of
