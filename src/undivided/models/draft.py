"""A draft decoder: one layer that reads the memory of a model and proposes what the model will write. [paper 7]

It has the model's embeddings and output layer, and a layer shaped like the model's own. Because the model checks what is proposed
(`inference.drafts`), it changes no output; the better it guesses, the fewer steps the model needs.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.models.contract import Memory
from undivided.models.transformer import DecoderLayer, Transformer, initialise_projections
from undivided.nn.attention import Slots, padding_mask, self_mask


class DraftDecoder(nn.Module):
    """One decoder layer between the embeddings and the output layer of a model whose own weights stay as they are."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.layer = DecoderLayer(config)
        self.norm = nn.LayerNorm(config.d_model) if config.norm == "pre" else nn.Identity()
        initialise_projections(self)

    def begin_like(self, model: Transformer) -> None:
        """Start from the last decoder layer of the model, whose output its output layer knows."""
        self.layer.load_state_dict(model.decoder[-1].state_dict())
        self.norm.load_state_dict(model.decoder_norm.state_dict())

    def decode(self, model: Transformer, memory: Memory, tgt_in: Tensor) -> Tensor:
        """Teacher-forced: target ids shifted right `B T` → states `B T D` for the output layer of the model."""
        x = model.target_embedding(tgt_in)
        mask = self_mask(tgt_in.shape[1], causal=True, window=0, device=tgt_in.device)
        x = self.layer(x, mask, memory.states, padding_mask(memory.mask))
        states: Tensor = self.norm(x)
        return states


class SlotDecoder:
    """Decoder layers that read tokens at any positions of a batch, and again where other tokens come to stand there."""

    def __init__(self, layers: Sequence[DecoderLayer], norm: nn.Module, memory: Memory) -> None:
        self.layers, self.norm = layers, norm
        read = [layer.cross_attention.read(memory.states) for layer in layers]
        self.memory = [(key.contiguous(), value.contiguous()) for key, value in read]
        self.mask = padding_mask(memory.mask)
        self.slots = [Slots(len(memory.states)) for _ in layers]

    def read(self, x: Tensor, sentences: Tensor, at: Tensor) -> Tensor:
        """Embedded tokens `B' T D` of some sentences `B'`, each at its position `B' T` → states `B' T D`."""
        for layer, slots, (key, value) in zip(self.layers, self.slots, self._memory_of(sentences), strict=True):
            x = layer.read(x, slots, sentences, at, key, value, None if self.mask is None else self.mask[sentences])
        states: Tensor = self.norm(x)
        return states

    def _memory_of(self, sentences: Tensor) -> list[tuple[Tensor, Tensor]]:
        if len(sentences) == len(self.memory[0][0]):
            return self.memory
        return [(key[sentences], value[sentences]) for key, value in self.memory]


def slot_decoders(model: Transformer, draft: DraftDecoder, memory: Memory) -> tuple[SlotDecoder, SlotDecoder]:
    """The decoder of a model and its draft decoder, over the same memory."""
    layers = [layer for layer in model.decoder if isinstance(layer, DecoderLayer)]
    return SlotDecoder(layers, model.decoder_norm, memory), SlotDecoder([draft.layer], draft.norm, memory)
