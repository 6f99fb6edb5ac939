"""Steps of training equal a plain loop of `F.cross_entropy` and `torch.optim.Adam`."""

import copy

import pytest
import torch
import torch.nn.functional as F

from undivided.config import ModelConfig, TrainConfig
from undivided.core.ids import EOS, PAD
from undivided.data.batches import make_batch
from undivided.models import make_model
from undivided.nn import loss as loss_room
from undivided.nn.loss import smoothed_loss
from undivided.training.schedule import learning_rate, make_optimizer

VOCAB, WIDTH, STEPS = 40, 16, 5
CONFIG = TrainConfig(warmup_steps=3, rate=0.05)


def batches():
    rng = torch.Generator().manual_seed(1)
    for _ in range(STEPS):
        sides = [
            [[*torch.randint(4, VOCAB, (int(n),), generator=rng).tolist(), EOS] for n in torch.randint(1, 9, (6,), generator=rng)]
            for _ in range(2)
        ]
        yield make_batch(*sides)


def train_ours(model):
    optimizer = make_optimizer(model, CONFIG)
    for step, batch in enumerate(batches(), 1):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, CONFIG, WIDTH)
        states = model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)
        loss, _ = smoothed_loss(states, model.output_weight, batch.tgt_out, 0.1)
        (loss / int((batch.tgt_out != PAD).sum())).backward()
        optimizer.step()
        optimizer.zero_grad()


def train_plainly(model):
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9, fused=False, foreach=False)
    for step, batch in enumerate(batches(), 1):
        optimizer.param_groups[0]["lr"] = 0.05 * WIDTH**-0.5 * min(step**-0.5, step * 3**-1.5)
        logits = model.logits(model.decode(model.encode(batch.src, batch.src != PAD), batch.tgt_in))
        F.cross_entropy(logits.flatten(0, 1), batch.tgt_out.flatten(), ignore_index=PAD, label_smoothing=0.1).backward()
        optimizer.step()
        optimizer.zero_grad()


@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "tie": "none", "activation": "swiglu"}, {"tie": "target", "d_k": 3}], ids=str
)
def test_five_steps_equal_a_plain_loop(monkeypatch, changes):
    """With chunks of five tokens; what is learned is far more than the difference allowed."""
    monkeypatch.setattr(loss_room, "CHUNK_ELEMENTS", 5 * VOCAB)
    torch.manual_seed(0)
    settings = {"d_model": WIDTH, "d_ff": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0} | changes
    start = make_model(ModelConfig(**settings), VOCAB, VOCAB).double().train()
    ours, plain = copy.deepcopy(start), copy.deepcopy(start)
    train_ours(ours)
    train_plainly(plain)
    for (name, first), one, other in zip(start.named_parameters(), ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-5, rtol=0, msg=lambda text, name=name: f"{name}: {text}")
        assert (one - first).abs().max() > 1e-3
