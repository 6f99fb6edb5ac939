"""Section 3.3: position-wise feed-forward networks, Eq. 2."""

import math

import pytest
import torch

from undivided.config import ModelConfig
from undivided.nn.layers import FeedForward


def swish(x):
    return x / (1 + math.exp(-x))


ACTIVATIONS = {"relu": lambda x: max(0.0, x), "gelu": lambda x: x * 0.5 * (1 + math.erf(x / math.sqrt(2))), "swish": swish}


def affine(x, weight, bias):
    return [sum(a * w for a, w in zip(x, row)) + b for row, b in zip(weight, bias)]


@pytest.mark.parametrize("gradients", [True, False], ids=["training", "inference"])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish", "swiglu"])
def test_eq_2_equals_naive_loops(activation, gradients):
    torch.manual_seed(0)
    layer = FeedForward(ModelConfig(d_model=6, d_ff=10, activation=activation)).eval()
    x = torch.randn(2, 3, 6)
    inner, outer = ((part.weight.tolist(), part.bias.tolist()) for part in (layer.inner, layer.outer))
    with torch.set_grad_enabled(gradients):
        result = layer(x.clone())
    for b in range(2):
        for t in range(3):
            hidden = affine(x[b, t].tolist(), *inner)
            if activation == "swiglu":
                hidden = [swish(gate) * value for gate, value in zip(hidden[:10], hidden[10:], strict=True)]
            else:
                hidden = [ACTIVATIONS[activation](value) for value in hidden]
            torch.testing.assert_close(result[b, t], torch.tensor(affine(hidden, *outer)))


def test_default_is_relu_with_both_biases():
    layer = FeedForward(ModelConfig())
    assert layer.activation == "relu"
    assert {name: tuple(p.shape) for name, p in layer.named_parameters()} == {
        "inner.weight": (2048, 512),
        "inner.bias": (2048,),
        "outer.weight": (512, 2048),
        "outer.bias": (512,),
    }


def test_each_position_is_treated_alone_and_alike():
    torch.manual_seed(0)
    layer = FeedForward(ModelConfig(d_model=6, d_ff=10)).eval()
    x = torch.randn(1, 5, 6)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(layer(x)[:, order], layer(x[:, order]))
