"""Section 3.5: sinusoids in both layouts, beyond the table, and the other kinds of positions."""

import math

import pytest
import torch

from undivided.config import ModelConfig
from undivided.core.errors import InputError
from undivided.models import make_model
from undivided.nn.layers import Positions, sinusoids

LAYOUTS = pytest.mark.parametrize("layout", ["sinusoidal", "halves"])


def angle(place, i, width):
    return place / 10000 ** (2 * i / width)


def naive(length, width, layout):
    table = [[0.0] * width for _ in range(length)]
    for place in range(length):
        for i in range(width // 2):
            even, odd = (2 * i, 2 * i + 1) if layout == "sinusoidal" else (i, width // 2 + i)
            table[place][even] = math.sin(angle(place, i, width))
            table[place][odd] = math.cos(angle(place, i, width))
    return torch.tensor(table)


def tiny(**changes):
    torch.manual_seed(0)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2} | changes
    return make_model(ModelConfig(**settings), 20, 20).eval()


@LAYOUTS
@pytest.mark.parametrize(("length", "width"), [(1, 2), (9, 6), (50, 64), (2000, 8)])
def test_sinusoids_equal_naive_loops(length, width, layout):
    torch.testing.assert_close(sinusoids(length, width, layout), naive(length, width, layout), atol=1e-6, rtol=0)


def test_one_layout_is_a_permutation_of_the_other():
    order = torch.arange(64).view(32, 2).T.flatten()
    assert torch.equal(sinusoids(100, 64, "halves"), sinusoids(100, 64, "sinusoidal")[:, order])


def test_wavelengths_grow_from_2_pi_to_10000_times_2_pi():
    table = sinusoids(3, 512)
    assert float(table[1, 0]) == pytest.approx(math.sin(1.0))
    assert float(table[2, -2]) == pytest.approx(math.sin(2 / 10000 ** (510 / 512)), rel=1e-5)


def test_a_fixed_offset_is_a_linear_function():
    """PE(pos + k) is a rotation of PE(pos) by an angle of k alone, for all pos."""
    offset, table = 7, sinusoids(400, 32).double().view(400, 16, 2)
    turn = torch.tensor([angle(offset, i, 32) for i in range(16)], dtype=torch.float64)
    sine, cosine = table[:-offset, :, 0], table[:-offset, :, 1]
    turned = torch.stack([sine * turn.cos() + cosine * turn.sin(), cosine * turn.cos() - sine * turn.sin()], dim=2)
    torch.testing.assert_close(turned, table[offset:], atol=1e-6, rtol=0)


@LAYOUTS
def test_sinusoids_reach_past_their_table(layout):
    positions = Positions(ModelConfig(d_model=8, positions=layout))
    length = 5 * len(positions.table)
    torch.testing.assert_close(positions.rows(length), naive(length, 8, layout), atol=1e-6, rtol=0)
    torch.testing.assert_close(positions.rows(3), naive(3, 8, layout), atol=1e-6, rtol=0)


@pytest.mark.parametrize("join", ["add", "concatenate"])
def test_a_table_that_grew_while_translating_serves_training(join):
    model = tiny(join_positions=join)
    with torch.inference_mode():
        model.encode(torch.full((1, 300), 5), None)
    model.train().encode(torch.full((1, 200), 5), None).states.sum().backward()
    assert model.source_embedding.weight.grad[5].abs().sum() > 0


def test_a_start_place_shifts_the_positions():
    positions = Positions(ModelConfig(d_model=8))
    torch.testing.assert_close(positions(torch.zeros(1, 3, 8), start=70)[0], naive(73, 8, "sinusoidal")[70:], atol=1e-6, rtol=0)


def test_bare_index_adds_its_number():
    positions = Positions(ModelConfig(d_model=8, positions="index"))
    here = positions(torch.zeros(2, 100, 8))
    assert torch.equal(here, torch.arange(100.0)[None, :, None].expand(2, 100, 8))


def test_learned_positions_are_parameters_and_are_added():
    model = tiny(positions="learned", max_positions=12)
    (learned,) = [p for name, p in model.named_parameters() if name.endswith("learned")]
    assert learned.shape == (12, 16)
    torch.testing.assert_close(model.source_embedding.positions(torch.zeros(1, 4, 16))[0], learned[:4])


def test_learned_positions_past_their_table_are_a_clear_error():
    model = tiny(positions="learned", max_positions=4)
    model.encode(torch.full((1, 4), 5), None)
    with pytest.raises(InputError, match=r"5 tokens .* 4 learned positions"):
        model.encode(torch.full((1, 5), 5), None)
    state = model.start(model.encode(torch.full((1, 2), 5), None))
    for _ in range(4):
        model.step(state, torch.tensor([[5]]))
    with pytest.raises(InputError, match="max_positions"):
        model.step(state, torch.tensor([[5]]))


def test_concatenated_positions_are_projected_back():
    torch.manual_seed(0)
    positions = Positions(ModelConfig(d_model=8, join_positions="concatenate"))
    x = torch.randn(2, 5, 8)
    both = torch.cat([x, naive(5, 8, "sinusoidal").expand(2, 5, 8)], dim=-1)
    torch.testing.assert_close(positions(x), both @ positions.project.weight.T)


def test_without_positions_the_encoder_knows_no_order():
    """Permute the source and its states are permuted alike; with positions they are not."""
    src, order = torch.tensor([[5, 6, 7, 8, 9, 3]]), torch.tensor([4, 2, 0, 5, 1, 3])
    for positions, same in (("none", True), ("sinusoidal", False)):
        model = tiny(positions=positions)
        difference = model.encode(src[:, order], None).states - model.encode(src, None).states[:, order]
        assert (float(difference.detach().abs().max()) < 1e-5) == same


def test_without_positions_a_decoder_layer_knows_no_order_of_the_past():
    """One layer only: in a second one, the states of the past would have seen different pasts of their own."""
    model = tiny(positions="none", decoder_layers=1)
    memory = model.encode(torch.tensor([[5, 3]]), None)
    first, second = (model.decode(memory, torch.tensor([[2, *middle, 9]])) for middle in ([5, 6, 7], [7, 5, 6]))
    torch.testing.assert_close(first[:, -1], second[:, -1], atol=1e-5, rtol=0)
