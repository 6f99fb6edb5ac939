"""Encoder and decoder equal `torch.nn.Transformer` with the same weights."""

import pytest
import torch
from torch import nn

from undivided.config import ModelConfig
from undivided.core.ids import EOS, PAD
from undivided.data.batches import make_batch
from undivided.models import make_model

VOCAB, WIDTH, HEADS, INNER = 30, 16, 4, 40
SOURCES = [[5, 6, 7, 8, 9, 10, EOS], [11, 12, EOS], [13, 14, 15, 16, EOS]]
TARGETS = [[17, 18, EOS], [19, 20, 21, 22, 23, EOS], [24, EOS]]


def copy(target, source):
    """Weights of our linear or norm into torch's."""
    with torch.no_grad():
        target.weight.copy_(source.weight)
        target.bias.copy_(source.bias)


def copy_attention(target, source):
    parts = [source.qkv] if hasattr(source, "qkv") else [source.query, source.key_value]
    with torch.no_grad():
        target.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        target.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    copy(target.out_proj, source.output)


def copy_layer(target, source):
    copy_attention(target.self_attn, source.self_attention)
    if hasattr(source, "cross_attention"):
        copy_attention(target.multihead_attn, source.cross_attention)
    copy(target.linear1, source.feed_forward.inner)
    copy(target.linear2, source.feed_forward.outer)
    for number, residual in enumerate(source.residuals, 1):
        copy(getattr(target, f"norm{number}"), residual.norm)


def randomise(model):
    """Biases and norms start at 0 and 1, where mistakes in them would not show."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias") or "norm" in name:
            nn.init.normal_(parameter, mean=float("norm.weight" in name), std=0.3)


def both(norm, activation, encoder_layers, decoder_layers):
    """Our model, and torch's with its weights. Torch ends its stacks with a norm, which post-norm has not."""
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=WIDTH, d_ff=INNER, n_heads=HEADS, encoder_layers=encoder_layers, decoder_layers=decoder_layers,
        norm=norm, activation=activation, attention_bias=True,
    )  # fmt: skip
    ours = make_model(config, VOCAB, VOCAB).eval()
    randomise(ours)
    pre = norm == "pre"
    settings = {"dim_feedforward": INNER, "dropout": 0.0, "activation": activation, "batch_first": True, "norm_first": pre}
    encoder_layer = nn.TransformerEncoderLayer(WIDTH, HEADS, **settings)
    decoder_layer = nn.TransformerDecoderLayer(WIDTH, HEADS, **settings)
    last = [nn.LayerNorm(WIDTH) if pre else None for _ in range(2)]
    theirs = nn.Transformer(
        WIDTH, HEADS, batch_first=True,
        custom_encoder=nn.TransformerEncoder(encoder_layer, encoder_layers, last[0], enable_nested_tensor=False),
        custom_decoder=nn.TransformerDecoder(decoder_layer, decoder_layers, last[1]),
    )  # fmt: skip
    for layer, source in zip([*theirs.encoder.layers, *theirs.decoder.layers], [*ours.encoder, *ours.decoder], strict=True):
        copy_layer(layer, source)
    if pre:
        copy(theirs.encoder.norm, ours.encoder_norm)
        copy(theirs.decoder.norm, ours.decoder_norm)
    return ours, theirs


@pytest.mark.parametrize("mode", ["evaluation", "training"])
@pytest.mark.parametrize(
    ("norm", "activation", "encoder_layers", "decoder_layers"),
    [("post", "relu", 2, 2), ("pre", "relu", 2, 2), ("post", "gelu", 3, 1), ("pre", "gelu", 1, 3)],
)
def test_memory_and_states_equal_torch(norm, activation, encoder_layers, decoder_layers, mode):
    """In training mode (without dropout) torch takes its plain path, in evaluation its fused one."""
    ours, theirs = both(norm, activation, encoder_layers, decoder_layers)
    theirs.train(mode == "training")
    batch = make_batch(SOURCES, TARGETS)
    source, target = ours.source_embedding(batch.src), ours.target_embedding(batch.tgt_in)
    real_src, real_tgt = batch.src != PAD, batch.tgt_out != PAD
    future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool).triu(1)
    with torch.no_grad():
        memory = ours.encode(batch.src, batch.src_mask)
        states = ours.decode(memory, batch.tgt_in)
        wanted_memory = theirs.encoder(source, src_key_padding_mask=~real_src)
        wanted = theirs(
            source, target, tgt_mask=future, tgt_is_causal=True,
            src_key_padding_mask=~real_src, tgt_key_padding_mask=~real_tgt, memory_key_padding_mask=~real_src,
        )  # fmt: skip
    torch.testing.assert_close(memory.states[real_src], wanted_memory[real_src], atol=1e-5, rtol=0)
    torch.testing.assert_close(states[real_tgt], wanted[real_tgt], atol=1e-5, rtol=0)


def test_gradients_equal_torch():
    ours, theirs = both("post", "relu", 2, 2)
    batch = make_batch(SOURCES[:1], TARGETS[:1])
    future = torch.ones(3, 3, dtype=torch.bool).triu(1)
    inputs = [embed(ids).detach() for embed, ids in ((ours.source_embedding, batch.src), (ours.target_embedding, batch.tgt_in))]
    ours.decode(ours.encode(batch.src, None), batch.tgt_in).pow(3).sum().backward()
    theirs(*inputs, tgt_mask=future, tgt_is_causal=True).pow(3).sum().backward()
    for layer, source in zip([*theirs.encoder.layers, *theirs.decoder.layers], [*ours.encoder, *ours.decoder], strict=True):
        grads = layer.self_attn.in_proj_weight.grad, layer.linear1.weight.grad, layer.norm1.weight.grad
        wanted = source.self_attention.qkv.weight.grad, source.feed_forward.inner.weight.grad, source.residuals[0].norm.weight.grad
        torch.testing.assert_close(grads, wanted, atol=1e-4, rtol=1e-4)
