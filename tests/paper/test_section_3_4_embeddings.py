"""Section 3.4: embeddings scaled by √d_model; one matrix for source, target and output."""

import math

import pytest
import torch

from undivided.config import ModelConfig
from undivided.models import make_model


def tiny(**changes):
    torch.manual_seed(0)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1} | changes
    return make_model(ModelConfig(**settings), 20, 20).eval()


def test_embeddings_are_scaled_by_the_root_of_d_model():
    model = tiny(positions="none")
    tokens = torch.tensor([[5, 6, 5]])
    torch.testing.assert_close(model.source_embedding(tokens)[0, 1], model.source_embedding.weight[6] * math.sqrt(16))
    torch.testing.assert_close(model.target_embedding(tokens)[0, 2], model.target_embedding.weight[5] * 4.0)


def test_positions_are_added_unscaled():
    with_positions, without = tiny(), tiny(positions="none")
    tokens = torch.tensor([[5, 6, 7]])
    added = with_positions.source_embedding(tokens) - without.source_embedding(tokens)
    torch.testing.assert_close(added[0], with_positions.source_embedding.positions.rows(3), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("tie", "matrices"), [("all", 1), ("target", 2), ("none", 3)])
def test_tying_shares_storage_and_saves_parameters(tie, matrices):
    model = tiny(tie=tie)
    weights = [model.source_embedding.weight, model.target_embedding.weight, model.output_weight]
    assert len({weight.data_ptr() for weight in weights}) == matrices
    assert weights[1].data_ptr() == weights[2].data_ptr() or tie == "none"
    count = {kind: sum(p.numel() for p in tiny(tie=kind).parameters()) for kind in ("all", tie)}
    assert count[tie] - count["all"] == (matrices - 1) * 20 * 16


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_gradients_reach_a_matrix_from_all_its_uses(tie):
    model = tiny(tie=tie)
    states = model.decode(model.encode(torch.tensor([[5, 3]]), None), torch.tensor([[2, 6]]))
    model.logits(states)[..., 7].sum().backward()
    used = {name: set(p.grad.abs().sum(dim=1).nonzero().flatten().tolist()) for name, p in weights_by_use(model).items()}
    shared = {"all": {"source": {2, 3, 5, 6, 7}}, "target": {"source": {3, 5}}, "none": {"source": {3, 5}}}[tie]
    shared["target"] = {"all": {2, 3, 5, 6, 7}, "target": {2, 6, 7}, "none": {2, 6}}[tie]
    shared["output"] = {"all": {2, 3, 5, 6, 7}, "target": {2, 6, 7}, "none": {7}}[tie]
    assert used == shared


def weights_by_use(model):
    return {"source": model.source_embedding.weight, "target": model.target_embedding.weight, "output": model.output_weight}


def test_logits_are_products_with_the_output_matrix():
    model = tiny()
    states = torch.randn(2, 3, 16)
    torch.testing.assert_close(model.logits(states), states @ model.target_embedding.weight.T)


def test_one_matrix_cannot_serve_two_vocabularies():
    with pytest.raises(ValueError, match="20 and 30"):
        make_model(ModelConfig(d_model=16, n_heads=4), 20, 30)
    model = make_model(ModelConfig(d_model=16, d_ff=16, n_heads=4, tie="target"), 20, 30)
    assert (len(model.source_embedding.weight), len(model.output_weight)) == (20, 30)


def test_first_loss_is_near_that_of_a_guess():
    """The initialisation is such that a fresh model spreads its guess over the vocabulary."""
    torch.manual_seed(0)
    model = make_model(ModelConfig(d_model=64, d_ff=128, n_heads=4, encoder_layers=2, decoder_layers=2), 1000, 1000).eval()
    with torch.no_grad():
        states = model.decode(model.encode(torch.randint(4, 1000, (8, 9)), None), torch.randint(4, 1000, (8, 10)))
        loss = torch.nn.functional.cross_entropy(model.logits(states).flatten(0, 1), torch.randint(4, 1000, (80,)))
    assert abs(float(loss) - math.log(1000)) < 1.0
