"""A small model that has half learned to write a sequence backwards: unsure, but its sentences differ and end."""

import functools

import pytest
import torch

from undivided.config import ModelConfig
from undivided.core.ids import EOS
from undivided.data.batches import make_batch
from undivided.models import make_model
from undivided.nn.loss import smoothed_loss

VOCAB = 24


@functools.cache
def learned(**changes):
    torch.manual_seed(0)
    config = ModelConfig(d_model=16, d_ff=40, n_heads=4, encoder_layers=2, decoder_layers=2, dropout=0.0, **changes)
    model = make_model(config, VOCAB, VOCAB)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    rng = torch.Generator().manual_seed(0)
    for _ in range(120):
        rows = [torch.randint(4, VOCAB, (int(n),), generator=rng).tolist() for n in torch.randint(1, 8, (24,), generator=rng)]
        batch = make_batch([[*row, EOS] for row in rows], [[*row[::-1], EOS] for row in rows])
        states = model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)
        loss, _ = smoothed_loss(states, model.output_weight, batch.tgt_out, 0.0)
        (loss / sum(len(row) + 1 for row in rows)).backward()
        optimizer.step()
        optimizer.zero_grad()
    return model.eval()


@pytest.fixture(scope="session")
def half_learned():
    """Call it with changes to the config; a model is learned once in a session and must not be changed."""
    return learned
