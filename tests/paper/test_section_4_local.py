"""Section 4: restricted self-attention computed in blocks, O(r·n·d), is that of the whole sequence under a mask."""

import pytest
import torch

from undivided.config import ModelConfig
from undivided.core.ids import BOS, EOS
from undivided.models import DecoderOnly, make_model
from undivided.nn import local
from undivided.nn.attention import MultiHeadAttention, attention, attention_hook, restrict, self_mask
from undivided.nn.local import LocalMask, cut_blocks

CPU = torch.device("cpu")
LENGTHS = [1, 32, 33, 97]


@pytest.fixture
def everywhere(monkeypatch):
    """Blocks also where they do not pay, so that short sequences test them."""
    monkeypatch.setattr(local, "WORTH", 0)


def layer(window, **changes):
    torch.manual_seed(1)
    return MultiHeadAttention(ModelConfig(**{"d_model": 32, "n_heads": 2, "dropout": 0.0, "window": window} | changes))


def lengths_mask(lengths):
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]


def dense(length, causal, window, real):
    """`B 1 T T`, by its definition: near, not later, no padding; who sees nobody sees itself."""
    place = torch.arange(length)
    near = (place[:, None] - place).abs() <= window // 2
    if causal:
        near &= place <= place[:, None]
    if real is not None:
        near = near & real[:, None, None, :]
    return near | torch.eye(length, dtype=torch.bool)


@pytest.mark.parametrize("causal", [False, True], ids=["both sides", "causal"])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.usefixtures("everywhere")
def test_blocks_equal_the_mask_over_the_whole_sequence(length, causal):
    """Values and gradients, for windows below, at and above the size of a block, without and with padding."""
    for window in (1, 7, 70):
        for real in (None, lengths_mask([length, max(1, length // 3), 1])):
            attend, x = layer(window), torch.randn(3, length, 32)
            outs, slopes = [], []
            blocks = restrict(length, causal=causal, window=window, real=real, device=CPU)
            assert isinstance(blocks, LocalMask)
            kept = torch.ones(3, length, dtype=torch.bool) if real is None else real
            for mask in (blocks, dense(length, causal, window, real)):
                x = x.detach().requires_grad_()
                attend.zero_grad()
                outs.append(attend(x, mask)[kept])
                outs[-1].square().sum().backward()
                slopes.append([x.grad, *(each.grad for each in attend.parameters())])
            torch.testing.assert_close(*outs, atol=2e-6, rtol=1e-5)
            for one, other in zip(*slopes, strict=True):
                torch.testing.assert_close(one, other, atol=5e-5, rtol=1e-4)


@pytest.mark.parametrize("widths", [{}, {"d_k": 5, "d_v": 3}], ids=["with kernels", "without"])
@pytest.mark.usefixtures("everywhere")
def test_blocks_equal_eq_1(widths):
    """By the reference, head by head, in inference too."""
    attend, x = layer(9, attention_bias=True, **widths).eval(), torch.randn(2, 70, 32)
    query, key, value = (attend.heads(part) for part in attend.qkv(x).split(attend.widths, dim=-1))
    wanted = attend.output(attention(query, key, value, dense(70, False, 9, None))[0].transpose(1, 2).flatten(2))
    mask = restrict(70, causal=False, window=9, real=None, device=CPU)
    torch.testing.assert_close(attend(x, mask), wanted, atol=2e-6, rtol=1e-5)
    with torch.inference_mode():
        torch.testing.assert_close(attend(x, mask), wanted.detach(), atol=2e-6, rtol=1e-5)


@pytest.mark.usefixtures("everywhere")
def test_dropout_of_weights_keeps_expectations():
    """Its masks are others than those over whole sequences, its mean is the same."""
    attend, x = layer(8, attention_dropout=0.5), torch.randn(1, 80, 32)
    mask = restrict(80, causal=True, window=8, real=None, device=CPU)
    with torch.no_grad():
        drawn = torch.stack([attend(x, mask) for _ in range(150)])
        wanted = attend.eval()(x, mask)
    assert (drawn[0] - drawn[1]).abs().max() > 0.01
    torch.testing.assert_close(drawn.mean(dim=0), wanted, atol=0.3, rtol=0)


def translator(window, **changes):
    torch.manual_seed(0)
    settings = {"d_model": 32, "d_ff": 64, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 2} | changes
    return make_model(ModelConfig(window=window, **settings), 30, 30).eval()


def tokens(rows, length, seed=1):
    return torch.randint(5, 30, (rows, length), generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("window", [1, 6, 16])
@pytest.mark.usefixtures("everywhere")
def test_cached_steps_equal_whole_sequences(window):
    """Also when the cache has dropped what nobody will read again, and beams have changed places."""
    model = translator(window, encoder_layers=1, decoder_layers=1)
    tgt_in, src = tokens(2, 60), tokens(1, 40, seed=2)
    tgt_in[:, 0] = BOS
    with torch.inference_mode():
        wanted = model.logits(model.decode(model.encode(src.expand(2, -1), None), tgt_in))
        state = model.start(model.encode(src, None))
        for place in range(60):
            logits = model.step(state, tgt_in[None, :, place])
            torch.testing.assert_close(logits[0], wanted[:, place], atol=2e-5, rtol=1e-4)
            if place % 30 == 20:
                state = state.select(torch.tensor([0]), torch.tensor([[1, 0]]))
                tgt_in, wanted = tgt_in.flip(0), wanted.flip(0)
        held = {cache.places.shape[1] for cache in state.past}
    assert max(held) <= 2 * (window // 2) + 9, "of 60 positions"


@pytest.mark.usefixtures("everywhere")
def test_a_language_model_too():
    torch.manual_seed(0)
    config = ModelConfig(kind="decoder_only", d_model=32, d_ff=64, n_heads=2, decoder_layers=1, window=6)
    model, rows = DecoderOnly(config, 30).eval(), tokens(2, 50)
    with torch.inference_mode():
        wanted, state = model.logits(model(rows)), model.start(2)
        got = torch.stack([model.step(state, rows[:, at : at + 1])[:, 0] for at in range(50)], dim=1)
    torch.testing.assert_close(got, wanted, atol=2e-5, rtol=1e-4)


def test_models_compute_blocks_where_they_pay_and_masks_where_not(monkeypatch):
    made = []
    monkeypatch.setattr(
        LocalMask, "attend", lambda self, *rest, original=LocalMask.attend: made.append(self) or original(self, *rest)
    )
    model = translator(6)
    for length, count in ((20, 0), (400, 2)):
        made.clear()
        model.encode(tokens(1, length), None)
        assert len(made) == count, "a layer each"
    made.clear()
    translator(300).encode(tokens(1, 400), None)
    assert not made
    assert cut_blocks(400, 0, causal=False) is None


def test_who_looks_sees_weights_over_whole_sequences():
    model, seen = translator(6), []
    with torch.no_grad(), attention_hook(lambda module, weights: seen.append(weights) or weights):
        looked = model.encode(tokens(1, 400), None).states
    assert [weights.shape for weights in seen] == [(1, 2, 400, 400)] * 2
    near = self_mask(400, causal=False, window=6, device=CPU)
    assert seen[0][..., ~near].abs().max() == 0
    with torch.no_grad():
        torch.testing.assert_close(model.encode(tokens(1, 400), None).states, looked, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_scores_grow_with_the_length_not_with_its_square(causal):
    """O(r·n·d): twice as long, twice as many; a wider window, more of them in proportion, up to that of a block."""
    for window in (8, 64, 256):
        scores = [cut_blocks(length, window, causal=causal).scores for length in (4096, 8192)]
        assert scores[1] == 2 * scores[0]
        assert 4096 * window <= scores[0] <= 4096 * (2 * window + 2 * local.SMALLEST_BLOCK)


def test_memory_does_not_grow_with_the_square_of_the_length():
    """The largest tensor of a pass, forward and backward, is a share of what one head's scores over all would take."""
    length, largest = 3000, []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), settings=None):
            out = function(*arguments, **(settings or {}))
            for each in out if isinstance(out, tuple | list) else [out]:
                if isinstance(each, torch.Tensor):
                    largest.append(each.numel())
            return out

    model = translator(16, encoder_layers=1)
    with Watch():
        model.encode(tokens(1, length), torch.ones(1, length, dtype=torch.bool)).states.sum().backward()
    assert max(largest) < length * length / 10


def test_padding_changes_nothing_in_long_sequences():
    model = translator(6, norm="pre")
    short, long = [5, 6, 7, 8] * 20, [9, 10, 11] * 100
    rows = torch.tensor([[*short, EOS] + [0] * (len(long) - len(short)), [*long, EOS]])
    with torch.no_grad():
        together = model.encode(rows, rows != 0).states
        for row, length in enumerate((len(short) + 1, len(long) + 1)):
            alone = model.encode(rows[row : row + 1, :length], None).states[0]
            torch.testing.assert_close(together[row, :length], alone, atol=1e-5, rtol=0)
