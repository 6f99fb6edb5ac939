"""Section 4: self-attention restricted to a neighbourhood of size r."""

import pytest
import torch

from undivided.config import ModelConfig
from undivided.core.ids import BOS, EOS
from undivided.data.batches import make_batch
from undivided.models import make_model
from undivided.nn.attention import self_mask, window_mask


def tiny(window, layers=1, **changes):
    torch.manual_seed(0)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": layers, "decoder_layers": layers} | changes
    return make_model(ModelConfig(window=window, **settings), 20, 20).eval()


@pytest.mark.parametrize("size", [1, 3, 5, 9])
def test_window_is_a_neighbourhood_of_its_size_around_each_position(size):
    mask = window_mask(12, size)
    assert all(bool(mask[i, j]) == (abs(i - j) <= (size - 1) // 2) for i in range(12) for j in range(12))
    assert mask[6].sum() == size


def test_no_window_and_one_wider_than_the_sequence_are_the_same():
    device = torch.device("cpu")
    assert self_mask(6, causal=False, window=0, device=device) is None
    assert self_mask(6, causal=False, window=11, device=device) is None
    assert torch.equal(self_mask(6, causal=True, window=11, device=device), self_mask(6, causal=True, window=0, device=device))


@pytest.mark.parametrize("window", [1, 3, 5])
def test_one_encoder_layer_sees_only_the_neighbourhood(window):
    model = tiny(window)
    src = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 13, EOS]])
    with torch.no_grad():
        before = model.encode(src, None).states
        for place in range(10):
            changed = src.clone()
            changed[0, place] = 15
            moved = (model.encode(changed, None).states - before).abs().amax(dim=-1)[0] > 1e-5
            assert moved.tolist() == [abs(i - place) <= window // 2 for i in range(10)]


@pytest.mark.parametrize("window", [1, 3, 5])
def test_one_decoder_layer_sees_only_the_past_of_the_neighbourhood(window):
    model = tiny(window)
    tgt_in = torch.tensor([[BOS, 6, 7, 8, 9, 10, 11, 12]])
    with torch.no_grad():
        memory = model.encode(torch.tensor([[5, EOS]]), None)
        before = model.decode(memory, tgt_in)
        for place in range(1, 8):
            changed = tgt_in.clone()
            changed[0, place] = 15
            moved = (model.decode(memory, changed) - before).abs().amax(dim=-1)[0] > 1e-5
            assert moved.tolist() == [0 <= i - place <= window // 2 for i in range(8)]


def test_reach_grows_with_depth():
    """O(n/r) layers connect any two positions: k layers reach k·r/2 far."""
    src = torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, 13, EOS]])
    changed = src.clone()
    changed[0, 0] = 15
    for layers in (1, 2, 3):
        model = tiny(3, layers)
        with torch.no_grad():
            moved = (model.encode(changed, None).states - model.encode(src, None).states).abs().amax(dim=-1)[0] > 1e-6
        assert moved.tolist() == [i <= layers for i in range(10)]


@pytest.mark.parametrize("window", [1, 3, 6])
def test_no_padding_changes_an_output_with_a_window(window):
    """Padding far from all real tokens sees nothing at all; that must not spoil what is real."""
    model = tiny(window, layers=2)
    sources, targets = [[5, 6, EOS], [5, 6, 7, 8, 9, 10, 11, 12, 13, EOS]], [[7, EOS], [8, 9, 10, 11, EOS]]
    with torch.no_grad():
        batch = make_batch(sources, targets)
        memory = model.encode(batch.src, batch.src_mask)
        states = model.decode(memory, batch.tgt_in)
        for row in range(2):
            alone = make_batch(sources[row : row + 1], targets[row : row + 1])
            alone_memory = model.encode(alone.src, None)
            torch.testing.assert_close(memory.states[row, : len(sources[row])], alone_memory.states[0], atol=2e-6, rtol=0)
            wanted = model.decode(alone_memory, alone.tgt_in)[0]
            torch.testing.assert_close(states[row, : len(targets[row])], wanted, atol=2e-6, rtol=0)


def test_training_with_a_window_and_padding_has_finite_gradients():
    model = tiny(3, layers=2).train()
    batch = make_batch([[5, EOS], [5, 6, 7, 8, 9, 10, 11, 12, EOS]], [[7, EOS], [8, EOS]])
    model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in).square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
