"""Section 3.2: scaled dot-product attention (Eq. 1), multi-head attention, and its three uses."""

import math

import pytest
import torch

from undivided.config import ModelConfig
from undivided.nn.attention import MultiHeadAttention, attend, attention, causal_mask, padding_mask
from undivided.nn.backend.dispatch import LARGEST_SCORES


def naive_attention(query, key, value, mask):
    """Eq. 1 for one head of one sentence: `T K`, `S K`, `S V` as lists of numbers → outputs and weights."""
    outputs, weights = [], []
    for t, q in enumerate(query):
        scores = [sum(a * b for a, b in zip(q, k)) / math.sqrt(len(q)) for k in key]
        allowed = [mask is None or bool(mask[t][s]) for s in range(len(key))]
        powers = [math.exp(score) if yes else 0.0 for score, yes in zip(scores, allowed)]
        row = [power / sum(powers) for power in powers]
        weights.append(row)
        outputs.append([sum(w * v[c] for w, v in zip(row, value)) for c in range(len(value[0]))])
    return torch.tensor(outputs), torch.tensor(weights)


def sequences(batch, heads, tgt, src, d_k, d_v, seed=0):
    rng = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, tgt, d_k), (batch, heads, src, d_k), (batch, heads, src, d_v)
    return [torch.randn(shape, generator=rng) for shape in shapes]


def random_mask(*shape):
    """Every query may attend to the first key and to about half of the others."""
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(1)) < 0.5
    mask[..., 0] = True
    return mask


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("tgt", "src", "d_k", "d_v"), [(4, 4, 6, 6), (3, 5, 4, 7), (5, 2, 8, 3), (1, 1, 2, 2)])
def test_eq_1_equals_naive_loops(tgt, src, d_k, d_v, masked):
    query, key, value = sequences(2, 3, tgt, src, d_k, d_v)
    mask = random_mask(2, 1, tgt, src) if masked else None
    output, weights = attention(query, key, value, mask)
    for b in range(2):
        for h in range(3):
            one_mask = mask[b, 0].tolist() if masked else None
            wanted = naive_attention(query[b, h].tolist(), key[b, h].tolist(), value[b, h].tolist(), one_mask)
            torch.testing.assert_close((output[b, h], weights[b, h]), wanted)


@pytest.mark.parametrize("kind", ["none", "random", "causal", "padding"])
@pytest.mark.parametrize(
    ("tgt", "src", "d_k", "d_v"), [(7, 7, 8, 8), (5, 9, 4, 6), (1, 12, 8, 5), (200, 150, 8, 12), (300, 300, 4, 4)]
)
def test_fast_path_equals_eq_1(tgt, src, d_k, d_v, kind):
    query, key, value = sequences(2, 2, tgt, src, d_k, d_v)
    real = torch.arange(src) < torch.tensor([[src], [max(1, src // 2)]])
    mask = {
        "none": None,
        "random": random_mask(2, 1, tgt, src),
        "causal": torch.ones(tgt, src, dtype=torch.bool).tril(),
        "padding": padding_mask(real),
    }[kind]
    torch.testing.assert_close(attend(query, key, value, mask), attention(query, key, value, mask)[0], atol=2e-6, rtol=1e-4)


def test_fast_path_was_tried_on_both_of_its_branches():
    assert 7 * 7 <= LARGEST_SCORES < 200 * 150


@pytest.mark.parametrize("length", [6, 150])
def test_fast_path_has_the_gradients_of_eq_1(length):
    grads = []
    for function in (attend, lambda *inputs: attention(*inputs)[0]):
        inputs = [part.requires_grad_() for part in sequences(1, 2, length, length, 4, 6)]
        function(*inputs, causal_mask(length)).square().sum().backward()
        grads.append([part.grad for part in inputs])
    torch.testing.assert_close(grads[0], grads[1], atol=1e-5, rtol=1e-4)


def test_scores_are_scaled_by_the_root_of_d_k():
    """3.2.1: without 1/√d_k the dot products of wide heads would grow, and the softmax with them get hard."""
    query, key, value = sequences(1, 1, 4, 4, 64, 2)
    _, weights = attention(query, key, value)
    torch.testing.assert_close(weights.log().diff(dim=-1), (query @ key.transpose(-2, -1) / 8.0).diff(dim=-1), atol=1e-5, rtol=1e-4)


def head_weights(linear, part, head, width):
    """W_i of one head out of a stacked projection; `part` is the row where the wanted kind begins."""
    return linear.weight[part + head * width : part + (head + 1) * width].T


@pytest.mark.parametrize(("d_k", "d_v"), [(0, 0), (3, 5), (6, 2)])
def test_multi_head_equals_a_loop_over_heads(d_k, d_v):
    """3.2.2: Concat(head_1, …, head_h) W^O, head_i = Attention(X W^Q_i, X W^K_i, X W^V_i); d_k and d_v are free."""
    torch.manual_seed(0)
    config = ModelConfig(d_model=12, n_heads=3, d_k=d_k, d_v=d_v)
    layer = MultiHeadAttention(config).eval()
    wide_k, wide_v = d_k or 4, d_v or 4
    x = torch.randn(2, 5, 12)
    heads = []
    for i in range(3):
        query = x @ head_weights(layer.qkv, 0, i, wide_k)
        key = x @ head_weights(layer.qkv, 3 * wide_k, i, wide_k)
        value = x @ head_weights(layer.qkv, 6 * wide_k, i, wide_v)
        heads.append(attention(query, key, value, causal_mask(5))[0])
    wanted = torch.cat(heads, dim=-1) @ layer.output.weight.T
    torch.testing.assert_close(layer(x, causal_mask(5)), wanted)
    assert layer.output.weight.shape == (12, 3 * wide_v)


@pytest.mark.parametrize("tgt", [2, 9])
def test_encoder_decoder_attention_reads_sequences_of_another_length(tgt):
    """3.2.3: queries come from the decoder, keys and values from the encoder; m ≠ n."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(ModelConfig(d_model=12, n_heads=3, d_k=5, d_v=2), across=True).eval()
    x, memory = torch.randn(2, tgt, 12), torch.randn(2, 6, 12)
    heads = []
    for i in range(3):
        query = x @ head_weights(layer.query, 0, i, 5)
        key = memory @ head_weights(layer.key_value, 0, i, 5)
        value = memory @ head_weights(layer.key_value, 15, i, 2)
        heads.append(attention(query, key, value)[0])
    wanted = torch.cat(heads, dim=-1) @ layer.output.weight.T
    torch.testing.assert_close(layer.across(x, memory, None), wanted)
    torch.testing.assert_close(layer.across_read(x, *layer.read(memory), None), wanted)


def test_attention_has_no_biases_unless_asked():
    assert [name for name, _ in MultiHeadAttention(ModelConfig()).named_parameters()] == ["qkv.weight", "output.weight"]
    with_bias = MultiHeadAttention(ModelConfig(attention_bias=True), across=True)
    assert {name for name, _ in with_bias.named_parameters() if name.endswith("bias")} == {
        "query.bias",
        "key_value.bias",
        "output.bias",
    }


def test_causal_mask_hides_exactly_the_future():
    mask = causal_mask(5)
    assert all(bool(mask[i, j]) == (j <= i) for i in range(5) for j in range(5))


def test_more_heads_cost_no_more_parameters():
    """3.2.2: with d_k = d_v = d_model/h the cost does not depend on h."""
    sizes = {sum(p.numel() for p in MultiHeadAttention(ModelConfig(n_heads=h)).parameters()) for h in (1, 4, 8, 16, 32)}
    assert sizes == {4 * 512 * 512}
