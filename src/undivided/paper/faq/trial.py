"""Trainings of seconds: an encoder that tags every word, and a Transformer that repeats every word."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.core.ids import EOS
from undivided.data.batches import PairBatch, make_batch
from undivided.models import Transformer
from undivided.models.transformer import EncoderLayer
from undivided.nn.layers import Embedding, Positions, initialise_linear

WORDS = 8
"""Vocabulary size of the taggers' made-up language."""


class Tagger(nn.Module):
    """Embeddings, positions and encoder layers of the Transformer, and an output word for every input word."""

    def __init__(self, config: ModelConfig, words: int = WORDS) -> None:
        super().__init__()
        positions = Positions(config)
        self.embedding = Embedding(config, nn.Parameter(torch.empty(words, config.d_model)), positions)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.output = nn.Linear(config.d_model, words)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                initialise_linear(module)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        if positions.kind == "learned":
            nn.init.normal_(positions.learned, std=0.02)

    def forward(self, words: Tensor) -> Tensor:
        x = self.embedding(words)
        for layer in self.layers:
            x = layer(x, None)
        return self.output(x)


Tags = Callable[[Tensor], Tensor]
"""The correct tags of sentences `B T`."""

Draw = Callable[[torch.Generator], Tensor]
"""Random sentences `B T`."""


def previous(words: Tensor) -> Tensor:
    """The word before; the first word is its own."""
    return torch.cat([words[:, :1], words[:, :-1]], dim=1)


class TrainedTagger(NamedTuple):
    """A trained tagger, or another model with an output word for every input word, and the loss of every step."""

    model: nn.Module
    losses: list[float]


def train_tagger(
    model: nn.Module, tags: Tags, steps: int, seed: int, longest: int = 12, rate: float = 0.01, draw: Draw | None = None
) -> TrainedTagger:
    """Train on random sentences of 4 to `longest` words, or on those that `draw` gives."""
    chance = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.parameters(), lr=rate, betas=(0.9, 0.98))
    losses = []
    for step in range(steps):
        words = draw(chance) if draw else random_words(32, int(torch.randint(4, longest + 1, (), generator=chance)), chance)
        loss = F.cross_entropy(model(words).flatten(0, 1), tags(words).flatten())
        optimizer_step(model, optimizer, loss, rate * min(1, (step + 1) / 20))
        losses.append(float(loss.detach()))
    return TrainedTagger(model, losses)


def random_words(count: int, length: int, chance: torch.Generator) -> Tensor:
    """Sentences of random words, `B T`."""
    return torch.randint(WORDS, (count, length), generator=chance)


def optimizer_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor, rate: float) -> None:
    """One optimizer step at a learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()


def accuracy(model: nn.Module, tags: Tags, length: int) -> float:
    """Share of right tags over 64 fresh sentences of one length; the first word, which has no word before it, aside."""
    words = random_words(64, length, torch.Generator().manual_seed(1000 + length))
    with torch.inference_mode():
        right = model(words).argmax(dim=-1) == tags(words)
    return float(right[:, 1:].float().mean())


FIRST_WORD = 4
"""Ids of words follow those of `<pad>`, `<unk>`, `<s>` and `</s>`."""


def sentences(count: int, length: int, chance: torch.Generator) -> list[list[int]]:
    """Random sentences as ids."""
    return torch.randint(FIRST_WORD, FIRST_WORD + WORDS, (count, length), generator=chance).tolist()


def repeat_words(sources: Sequence[Sequence[int]]) -> PairBatch:
    """Sentences and, as their translations, every word of them twice."""
    targets = [[word for word in source for _ in range(2)] + [EOS] for source in sources]
    return make_batch([[*source, EOS] for source in sources], targets)


def train_repeater(shifted: bool, steps: int, seed: int = 1) -> tuple[Transformer, float]:
    """A Transformer that learned to say every word twice, and its last loss in training; `shifted` as the paper says, or not."""
    torch.manual_seed(seed)
    config = ModelConfig(d_model=32, d_ff=64, n_heads=1, encoder_layers=1, decoder_layers=1, dropout=0.0, norm="pre")
    model = Transformer(config, FIRST_WORD + WORDS, FIRST_WORD + WORDS)
    optimizer, chance, last = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98)), torch.Generator().manual_seed(seed), 0.0
    for step in range(steps):
        length = int(torch.randint(2, 6, (), generator=chance))
        batch = repeat_words(sentences(32, length, chance))
        states = model.decode(model.encode(batch.src, None), batch.tgt_in if shifted else batch.tgt_out)
        loss = F.cross_entropy(model.logits(states).flatten(0, 1), batch.tgt_out.flatten())
        optimizer_step(model, optimizer, loss, 0.01 * min(1, (step + 1) / 20, (steps - step) / 60))
        last = float(loss.detach())
    return model.eval(), last
