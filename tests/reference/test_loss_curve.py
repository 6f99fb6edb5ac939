"""The loss of every step of a whole training equals that of `torch.nn.Transformer` in a plain loop, dropout off."""

import io
import math
import threading

import pytest
import torch
import torch.nn.functional as F
from test_torch_transformer import copy_layer
from torch import nn

from samples import sentences, tiny_recipe, write_pairs
from undivided.core.console import Console
from undivided.core.ids import PAD
from undivided.data.batches import make_batch
from undivided.nn.layers import sinusoids
from undivided.training.loop import Trainer
from undivided.training.prepare import prepare
from undivided.training.schedule import learning_rate

STEPS = 12


class Plain(nn.Module):
    """The reference: torch's own Transformer between a tied embedding and its transpose."""

    def __init__(self, ours):
        super().__init__()
        config = ours.config
        self.embedding = nn.Parameter(ours.output_weight.detach().clone())
        self.body = nn.Transformer(
            config.d_model, config.n_heads, config.encoder_layers, config.decoder_layers, config.d_ff, 0.0, batch_first=True
        )
        self.body.encoder.norm = self.body.decoder.norm = None
        for target, source in zip([*self.body.encoder.layers, *self.body.decoder.layers], [*ours.encoder, *ours.decoder]):
            copy_layer(target, source)

    def embed(self, ids):
        width = self.embedding.shape[1]
        return F.embedding(ids, self.embedding) * math.sqrt(width) + sinusoids(ids.shape[1], width)

    def forward(self, batch):
        hidden = batch.src == PAD
        future = torch.ones(batch.tgt_in.shape[1], batch.tgt_in.shape[1], dtype=torch.bool).triu(1)
        masks = {"tgt_mask": future, "src_key_padding_mask": hidden, "memory_key_padding_mask": hidden}
        return self.body(self.embed(batch.src), self.embed(batch.tgt_in), **masks) @ self.embedding.t()


@pytest.fixture
def trainer(tmp_path):
    """A trainer before its first step, with two threads."""
    recipe = tiny_recipe(tmp_path / "run", write_pairs(tmp_path, "train", sentences(60)))
    recipe["model"] |= {"dropout": 0.0, "attention_bias": True, "encoder_layers": 2, "norm": "post"}
    recipe["batches"]["tokens"] = 100
    recipe["train"] |= {"precision": "float32", "threads": 2, "clip": 0.0}
    console = Console(quiet=True, stream=io.StringIO())
    before = torch.get_num_threads()
    with prepare(recipe, console) as prepared:
        made = Trainer(prepared, console)
    made.model.train()
    yield made
    torch.set_num_threads(before)


def meet_in_pairs(task, monkeypatch):
    """Let every part of a batch wait for another: with fewer than two threads at work, the wait ends in an error."""
    barrier, loss, threads = threading.Barrier(2, timeout=20), task.loss, set()

    def wait_for_the_other(batch):
        threads.add(threading.get_ident())
        barrier.wait()
        return loss(batch)

    monkeypatch.setattr(task, "loss", wait_for_the_other)
    return threads


def test_every_loss_of_two_threads_equals_the_plain_reference(trainer, monkeypatch):
    threads = meet_in_pairs(trainer.task, monkeypatch)
    plain = Plain(trainer.model)
    store, stream = trainer.task.store, trainer.task.stream
    plans = list(zip(range(STEPS), stream.plans()))
    assert min(len(plan[0]) for _, plan in plans) > 1
    optimizer = torch.optim.Adam(plain.parameters(), betas=(0.9, 0.98), eps=1e-9)
    ours, theirs = [], []
    for step, plan in plans:
        loss, _, tokens = trainer._step(iter([plan]))
        ours.append(loss / tokens)
        batch = make_batch(*([row.tolist() for row in store.rows(side, plan[0])] for side in (0, 1)))
        optimizer.param_groups[0]["lr"] = learning_rate(step + 1, trainer.config, trainer.recipe.model.d_model)
        logits = plain(batch).flatten(0, 1)
        mean = F.cross_entropy(logits, batch.tgt_out.flatten(), ignore_index=PAD, label_smoothing=trainer.config.label_smoothing)
        theirs.append(mean.item())
        optimizer.zero_grad()
        mean.backward()
        optimizer.step()
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(theirs), atol=2e-3, rtol=0)
    assert ours[-1] < ours[0] - 0.5
    assert len(threads - {threading.get_ident()}) == 2
