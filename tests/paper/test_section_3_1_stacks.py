"""Section 3.1: encoder and decoder stacks, residual connections, the shift, and who sees whom."""

import pytest
import torch
import torch.nn.functional as F

from undivided.config import ModelConfig
from undivided.core.ids import BOS, EOS, PAD
from undivided.data.batches import make_batch, pad_rows
from undivided.models import make_model
from undivided.nn.layers import Residual

VOCAB = 20
NORMS = pytest.mark.parametrize("norm", ["post", "pre"])
POSITIONS = pytest.mark.parametrize("positions", ["sinusoidal", "halves", "learned", "index", "none"])


def tiny(**changes):
    torch.manual_seed(0)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2} | changes
    return make_model(ModelConfig(**settings), VOCAB, VOCAB).eval()


def states_of(model, sources, targets):
    """Encoder and decoder states of rows of ids, batched together."""
    batch = make_batch(sources, targets)
    with torch.no_grad():
        memory = model.encode(batch.src, batch.src_mask)
        return memory.states, model.decode(memory, batch.tgt_in)


@NORMS
@POSITIONS
def test_no_future_token_changes_an_earlier_output(norm, positions):
    model = tiny(norm=norm, positions=positions)
    tgt_in = torch.tensor([[BOS, 5, 6, 7, 8, 9]])
    with torch.no_grad():
        memory = model.encode(torch.tensor([[5, 6, 7, EOS]]), None)
        before = model.decode(memory, tgt_in)
        for place in range(1, 6):
            changed = tgt_in.clone()
            changed[0, place] = 15
            after = model.decode(memory, changed)
            torch.testing.assert_close(after[:, :place], before[:, :place], atol=1e-6, rtol=0)
            assert (after[:, place:] - before[:, place:]).abs().amax(dim=-1).min() > 1e-4


def test_decoder_has_no_gradient_from_the_future():
    model = tiny()
    tgt_in = torch.tensor([[BOS, 5, 6, 7, 8]])
    memory = model.encode(torch.tensor([[5, EOS]]), None)
    vectors = F.embedding(tgt_in, model.target_embedding.weight).detach().requires_grad_()
    model.target_embedding.forward = lambda tokens: model.target_embedding.positions(vectors)
    model.decode(memory, tgt_in)[0, 2].sum().backward()
    reached = vectors.grad[0].abs().sum(dim=-1) > 0
    assert reached.tolist() == [True, True, True, False, False]


@NORMS
@POSITIONS
def test_no_padding_changes_an_output(norm, positions):
    """A pair gives the same states alone as beside longer pairs, whichever side is padded, in any row."""
    model = tiny(norm=norm, positions=positions)
    sources = [[5, 6, EOS], [7, 8, 9, 10, 11, 12, EOS], [EOS], [13, 14, 15, EOS]]
    targets = [[5, 6, 7, 8, 9, EOS], [7, EOS], [8, 9, EOS], [EOS]]
    memory, states = states_of(model, sources, targets)
    for row, (source, target) in enumerate(zip(sources, targets)):
        alone_memory, alone_states = states_of(model, [source], [target])
        torch.testing.assert_close(memory[row, : len(source)], alone_memory[0], atol=2e-6, rtol=0)
        torch.testing.assert_close(states[row, : len(target)], alone_states[0], atol=2e-6, rtol=0)


def test_padded_ids_have_no_influence():
    """Whatever stands where the mask says padding, nothing real changes."""
    model = tiny()
    src, tgt_in = torch.tensor([[5, 6, EOS, PAD, PAD]]), torch.tensor([[BOS, 5, PAD, PAD]])
    real = src != PAD
    with torch.no_grad():
        before = model.decode(model.encode(src, real), tgt_in)
        after = model.decode(model.encode(src.masked_fill(~real, 9), real), torch.tensor([[BOS, 5, 9, 10]]))
    torch.testing.assert_close(after[:, :2], before[:, :2], atol=1e-6, rtol=0)


@pytest.mark.parametrize(("n", "m"), [(1, 7), (7, 1), (3, 5), (90, 4), (4, 90)])
def test_source_and_target_lengths_are_free(n, m):
    sources = [[5 + i % 10 for i in range(n - 1)] + [EOS]]
    targets = [[6 + i % 9 for i in range(m - 1)] + [EOS]]
    memory, states = states_of(tiny(), sources, targets)
    assert memory.shape == (1, n, 16)
    assert states.shape == (1, m, 16)
    assert states.isfinite().all()


def test_every_source_token_reaches_every_target_state():
    model = tiny()
    source, target = [5, 6, 7, EOS], [[8, 9, EOS]]
    _, before = states_of(model, [source], target)
    for place in range(3):
        _, after = states_of(model, [[*source[:place], 15, *source[place + 1 :]]], target)
        assert (after - before).abs().amax(dim=-1).min() > 1e-5


def test_stacks_have_their_own_depths():
    model = tiny(encoder_layers=3, decoder_layers=1)
    assert (len(model.encoder), len(model.decoder)) == (3, 1)
    assert (len(model.encoder[0].residuals), len(model.decoder[0].residuals)) == (2, 3)


@NORMS
@pytest.mark.parametrize("training", [True, False])
def test_norms_take_their_epsilon_from_the_settings(norm, training):
    """With a very large one a norm gives next to nothing but its bias."""
    x = torch.randn(2, 3, 16, requires_grad=training)
    for epsilon, size in ((1e-5, 1.0), (1e6, 1e-3)):
        residual = Residual(ModelConfig(d_model=16, norm=norm, norm_epsilon=epsilon))
        # The sub-layer of a pre-norm sees the norm's output, and post-norm ends with it.
        out = residual.eval()(x, torch.zeros_like if norm == "post" else torch.Tensor.neg)
        normed = out if norm == "post" else x - out
        assert normed.detach().square().mean().sqrt() == pytest.approx(size, rel=0.3)


@NORMS
def test_residual_and_norm_are_in_the_order_of_the_paper(norm):
    """LayerNorm(x + Sublayer(x)); pre-norm: x + Sublayer(LayerNorm(x))."""
    torch.manual_seed(0)
    residual = Residual(ModelConfig(d_model=8, norm=norm)).eval()
    torch.nn.init.normal_(residual.norm.weight)
    torch.nn.init.normal_(residual.norm.bias)
    x, square = torch.randn(2, 3, 8), torch.square

    def layer_norm(y):
        spread = (y.var(dim=-1, keepdim=True, correction=0) + 1e-5).sqrt()
        return (y - y.mean(dim=-1, keepdim=True)) / spread * residual.norm.weight + residual.norm.bias

    wanted = layer_norm(x + square(x)) if norm == "post" else x + square(layer_norm(x))
    torch.testing.assert_close(residual(x, square), wanted)


def test_pre_norm_ends_each_stack_with_a_norm_and_post_norm_does_not():
    names = [name for name, _ in tiny(norm="pre").named_parameters() if name.startswith(("encoder_norm", "decoder_norm"))]
    assert sorted(names) == ["decoder_norm.bias", "decoder_norm.weight", "encoder_norm.bias", "encoder_norm.weight"]
    assert not [name for name, _ in tiny(norm="post").named_parameters() if name.startswith(("encoder_norm", "decoder_norm"))]


def test_decoder_input_is_the_output_shifted_right():
    """Rows of different lengths: <s> first, then all but the last token, then padding as in `tgt_out`."""
    targets = [[5, 6, 7, EOS], [EOS], [8, EOS], [9, 10, 11, 12, 13, EOS]]
    batch = make_batch([[4, EOS]] * 4, targets)
    for row, target in enumerate(targets):
        rest = [PAD] * (6 - len(target))
        assert batch.tgt_in[row].tolist() == [BOS, *target[:-1], *rest]
        assert batch.tgt_out[row].tolist() == [*target, *rest]


def test_padding_stands_last_and_is_masked():
    batch = make_batch([[4, EOS], [4, 5, 6, EOS]], [[EOS], [EOS]])
    assert torch.equal(batch.src, pad_rows([[4, EOS], [4, 5, 6, EOS]]))
    assert batch.src_mask.tolist() == [[True, True, False, False], [True, True, True, True]]
