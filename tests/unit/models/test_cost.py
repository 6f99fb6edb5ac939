"""What a model costs by its shapes is what torch counts, for every kind of model."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from undivided.config import ModelConfig
from undivided.models import make_model
from undivided.models.cost import count_products, model_cost
from undivided.nn.loss import smoothed_loss

PAIRS, SOURCE, TARGET, VOCAB = 3, 7, 5, 50
TRANSFORMERS = [
    {},
    {"activation": "swiglu", "encoder_layers": 3},
    {"d_k": 3, "d_v": 5},
    {"norm": "pre", "tie": "none", "decoder_layers": 1},
    {"join_positions": "concatenate"},
    {"window": 2},
    {"decoder_self": "ssru"},
    {"decoder_self": "ssru", "d_k": 3, "d_v": 5},
]
RECURRENT = [
    {"cell": cell, "attention": attention, "bidirectional": both}
    for cell in ("rnn", "lstm", "gru")
    for attention, both in (("none", True), ("additive", True), ("multiplicative", False))
] + [{"d_hidden": 24}, {"cell": "gru", "input_feeding": True, "d_hidden": 24}, {"cell": "lstm", "input_feeding": True}]
CONVOLUTIONAL = [{}, {"kernel_width": 5, "d_hidden": 24, "encoder_layers": 3}, {"join_positions": "concatenate"}]
MODELS = (
    [{"d_ff": 24, "n_heads": 2} | each for each in TRANSFORMERS]
    + [{"kind": "recurrent"} | each for each in RECURRENT]
    + [{"kind": "convolutional"} | each for each in CONVOLUTIONAL]
)


def small(changes, d_model=16):
    config = ModelConfig(**{"d_model": d_model, "encoder_layers": 2, "decoder_layers": 2, "dropout": 0.0} | changes)
    assert not config.faults()
    return config


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_products_are_those_that_torch_counts(changes):
    """Exactly, but for the product with the one vector of additive attention, which torch does not count.

    Without oneDNN, whose LSTM is a single operation to torch.
    """
    config = small(changes)
    model = make_model(config, VOCAB, VOCAB).eval()
    src, tgt = torch.randint(4, VOCAB, (PAIRS, SOURCE)), torch.randint(4, VOCAB, (PAIRS, TARGET))
    with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
        # The first pass of a process may try out which arithmetic is fastest here, with products of its own.
        model.logits(model.decode(model.encode(src, None), tgt))
        with FlopCounterMode(display=False) as counter:
            model.logits(model.decode(model.encode(src, None), tgt))
    is_additive = config.kind == "recurrent" and config.attention == "additive"
    uncounted = 2 * PAIRS * SOURCE * TARGET * config.hidden_width if is_additive else 0
    assert counter.get_total_flops() + uncounted == PAIRS * count_products(config, VOCAB, SOURCE, TARGET).forward_flops


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("window", [4, 90])
def test_products_of_long_sequences_under_a_window_are_those_that_torch_counts(window):
    """In blocks where that saves work, masked where it does not."""
    config = small({"d_ff": 24, "n_heads": 2, "window": window})
    model = make_model(config, VOCAB, VOCAB).eval()
    src, tgt = torch.randint(4, VOCAB, (1, 128)), torch.randint(4, VOCAB, (1, 120))
    with torch.no_grad():
        model.logits(model.decode(model.encode(src, None), tgt))
        with FlopCounterMode(display=False) as counter:
            model.logits(model.decode(model.encode(src, None), tgt))
    products = count_products(config, VOCAB, 128, 120)
    assert counter.get_total_flops() == products.forward_flops
    assert (products.source_attention < 2 * 128 * 128 * 32 / 3) == (window == 4)


@pytest.mark.parametrize("changes", [{"d_ff": 24, "n_heads": 2}, {"kind": "convolutional"}], ids=str)
def test_backward_costs_twice_as_much_as_forward(changes):
    """But for the embeddings, whose gradient is no product."""
    config = small(changes | {"encoder_layers": 1, "decoder_layers": 1})
    model = make_model(config, VOCAB, VOCAB)
    src, tgt = torch.randint(4, VOCAB, (PAIRS, SOURCE)), torch.randint(4, VOCAB, (PAIRS, TARGET))
    with FlopCounterMode(display=False) as counter:
        model.logits(model.decode(model.encode(src, None), tgt)).sum().backward()
    assert counter.get_total_flops() == PAIRS * count_products(config, VOCAB, SOURCE, TARGET).training_flops


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_the_cost_of_tokens_is_that_of_their_pair(changes):
    config = small(changes)
    cost, products = model_cost(config, VOCAB, 10), count_products(config, VOCAB, 10, 10)
    assert 10 * (cost.per_source_token + cost.per_target_token) == pytest.approx(products.forward_flops)
    assert cost.step_flops(10, 10) == pytest.approx(products.training_flops)


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_memory_is_what_is_kept_for_the_backward_pass(changes):
    """Within a third, in small models and short sentences; the gradient of the output matrix, one for all tokens, aside."""
    changes = {name: value for name, value in changes.items() if name not in ("d_k", "d_v", "d_hidden")}
    config = small(changes | {"dropout": 0.1} | ({"d_ff": 96, "n_heads": 4} if "n_heads" in changes else {}), d_model=64)
    model = make_model(config, VOCAB, VOCAB).train()
    tokens = torch.randint(4, VOCAB, (20, 12))
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        smoothed_loss(model.decode(model.encode(tokens, None), tokens), model.output_weight, tokens, 0.1)
    found = sum(storage.nbytes() for storage in kept.values()) - 4 * model.output_weight.numel()
    cost = model_cost(config, VOCAB, 12)
    assert tokens.numel() * (cost.bytes_per_source_token + cost.bytes_per_target_token) == pytest.approx(found, rel=1 / 3)
