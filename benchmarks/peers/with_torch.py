"""`torch.nn.Transformer` in a plain loop with cross-entropy and Adam."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import nn
from worker import PAD, Weights, at_its_best, compiled, padded, read_batches, serve, shifted


class Model(nn.Module):
    def __init__(self, shape: dict, vocabulary: int, dropout: float, weights: Weights) -> None:
        super().__init__()
        self.width = shape["d_model"]
        self.embedding = nn.Embedding(vocabulary, self.width, PAD)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("positions", weights.positions)
        self.transformer = nn.Transformer(
            self.width, shape["n_heads"], shape["encoder_layers"], shape["decoder_layers"], shape["d_ff"], dropout,
            batch_first=True,
        )  # fmt: skip
        # It closes each stack with a further norm, which the post-norm Transformer has not.
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for layer in [*self.transformer.encoder.layers, *self.transformer.decoder.layers]:
            layer.dropout.p = 0.0
            layer.self_attn.dropout = 0.0
            if hasattr(layer, "multihead_attn"):
                layer.multihead_attn.dropout = 0.0
        self.load(weights)

    @torch.no_grad()
    def load(self, weights: Weights) -> None:
        self.embedding.weight.copy_(weights.embedding)
        for side in ("encoder", "decoder"):
            for number, layer in enumerate(getattr(self.transformer, side).layers):
                parts = weights.parts(side, number)
                for name, attention in (("self", layer.self_attn), ("cross", getattr(layer, "multihead_attn", None))):
                    if attention is not None:
                        rows = [parts[f"{name}.{each}"] for each in "qkv"]
                        attention.in_proj_weight.copy_(torch.cat([weight for weight, _ in rows]))
                        attention.in_proj_bias.copy_(torch.cat([bias for _, bias in rows]))
                        _copy(attention.out_proj, parts[f"{name}.out"])
                _copy(layer.linear1, parts["feed.inner"])
                _copy(layer.linear2, parts["feed.outer"])
                for place, norm in enumerate(["self", *(["cross"] if side == "decoder" else []), "feed"], 1):
                    _copy(getattr(layer, f"norm{place}"), parts[f"{norm}.norm"])

    def embed(self, ids):
        return self.dropout(self.embedding(ids) * math.sqrt(self.width) + self.positions[: ids.shape[1]])

    def forward(self, src, tgt_in):
        hidden = src == PAD
        causal = nn.Transformer.generate_square_subsequent_mask(tgt_in.shape[1]).isinf()
        states = self.transformer(
            self.embed(src), self.embed(tgt_in), tgt_mask=causal, src_key_padding_mask=hidden,
            memory_key_padding_mask=hidden, tgt_is_causal=True,
        )  # fmt: skip
        return F.linear(states, self.embedding.weight)


def _copy(module, pair) -> None:
    module.weight.copy_(pair[0])
    module.bias.copy_(pair[1])


class Training:
    def __init__(self, job: dict) -> None:
        self.batches = read_batches(job)
        self.job = job
        self.model = Model(job["model"], job["vocabulary"], job["model"]["dropout"], Weights(job["weights"]))
        self.forward = compiled(job, self.model)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9)
        self.smoothing = job["smoothing"]

    def loss(self, number: int, smoothing: float, forward):
        sources, targets = self.batches[number]
        logits = forward(padded(sources), shifted(targets))
        return F.cross_entropy(logits.float().flatten(0, 1), padded(targets).flatten(), ignore_index=PAD, label_smoothing=smoothing)

    def likelihood(self) -> float:
        # In evaluation it takes a path of its own that cuts padding off; gradients on keep it on the one it trains with.
        self.model.eval()
        found = float(self.loss(0, 0.0, self.model))
        self.model.train()
        return found

    def step(self, number: int) -> None:
        self.optimizer.zero_grad()
        with at_its_best(self.job):
            loss = self.loss(number, self.smoothing, self.forward)
        loss.backward()
        self.optimizer.step()


if __name__ == "__main__":
    serve(Training)
