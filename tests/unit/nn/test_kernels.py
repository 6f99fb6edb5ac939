"""The kernels against PyTorch's own operations: values and gradients, dropout's masks, and what happens without a compiler."""

import math
import os
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from undivided.config import ModelConfig, SearchConfig
from undivided.inference.search import search
from undivided.models import make_model
from undivided.nn import library
from undivided.nn.backend import KEEP_ALL, DropoutMask, choice, kernel_attention, kernels, why_no_kernels
from undivided.nn.backend.mask import mask_factors
from undivided.nn.dropout import Dropout, seeded_dropout
from undivided.nn.layers import FeedForward, Residual
from undivided.nn.library.signatures import SIGNATURES
from undivided.nn.loss import smoothed_loss

pytestmark = pytest.mark.skipif(bool(why_no_kernels()), reason=f"no kernels: {why_no_kernels()}")
MASK = DropoutMask(seed=0xFEDCBA9876543210, threshold=64, scale=256 / 192)
WORK = """
import torch
from undivided.nn.backend import why_no_kernels
from undivided.config import ModelConfig
from undivided.nn.layers import Residual
from undivided.nn.dropout import seeded_dropout
torch.manual_seed(0)
layer = Residual(ModelConfig(d_model=24, dropout=0.3))
x = torch.randn(3, 7, 24, requires_grad=True)
with seeded_dropout(5):
    out = layer(x, lambda x: x * 2)
out.pow(3).sum().backward()
print(repr(why_no_kernels()), float(out.detach().square().sum()), float(x.grad.square().sum()))
"""


@pytest.fixture(autouse=True)
def _same_numbers_every_time():
    torch.manual_seed(0)


def gradients(function, *tensors):
    """What a function gives, and the gradients of a sum in which every element counts otherwise."""
    tensors = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    out = function(*tensors)
    weight = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    return out, *torch.autograd.grad((out * weight).sum(), tensors)


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("shape", [(1,), (7,), (3, 5, 17), (4096,), (33, 4097)])
def test_dropout_has_the_mask_that_pytorch_would_have(shape):
    x = torch.randn(shape)
    assert_same(gradients(lambda x: kernels.drop(x, MASK), x), gradients(lambda x: x * mask_factors(MASK, x), x))
    y = torch.randn(shape)
    assert_same(gradients(lambda x, y: kernels.drop(x, MASK, y), x, y), gradients(lambda x, y: y + x * mask_factors(MASK, x), x, y))


@pytest.mark.parametrize("mask", [KEEP_ALL, MASK], ids=["whole", "dropout"])
@pytest.mark.parametrize("width", [5, 15, 128, 513])
def test_norm_of_a_sum(mask, width):
    norm = nn.LayerNorm(width)
    x, y, gain, shift = torch.randn(4, 5, width), torch.randn(4, 5, width), torch.randn(width), torch.randn(width)
    x[0, 0] += 10

    def ours(x, y, gain, shift):
        return kernels._AddNorm.apply(x, y, mask, gain, shift, norm.eps)

    def theirs(x, y, gain, shift):
        return F.layer_norm(x + y * mask_factors(mask, y), (width,), gain, shift, norm.eps)

    assert_same(gradients(ours, x, y, gain, shift), gradients(theirs, x, y, gain, shift))


@pytest.mark.parametrize("width", [1, 40, 256])
def test_linear_and_relu(width):
    x, weight, bias = torch.randn(3, 5, 24), torch.randn(width, 24), torch.randn(width)
    assert_same(
        gradients(kernels.linear_relu, x, weight, bias), gradients(lambda x, w, b: F.linear(x, w, b).relu(), x, weight, bias)
    )


def plain_attention(heads, widths, mask):
    def attend(packed, memory=None):
        read = packed if memory is None else memory
        wide = [heads * widths[0], heads * widths[0], heads * widths[1]]
        parts = packed.split(wide, -1) if memory is None else (packed, *read.split(wide[1:], -1))
        query, key, value = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in parts)
        scores = query @ key.transpose(-1, -2) / math.sqrt(widths[0])
        weights = scores if mask is None else scores.masked_fill(~mask, -math.inf)
        return (weights.softmax(-1) @ value).transpose(1, 2).flatten(2)

    return attend


@pytest.mark.parametrize("widths", [(16, 16), (32, 32), (16, 48), (64, 16)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 5), (16, 16), (19, 19), (40, 40)])
def test_self_attention(widths, queries, keys):
    heads, packed = 3, 2 * torch.randn(4, queries, 3 * (2 * widths[0] + widths[1]))
    padding = torch.ones(4, 1, 1, keys, dtype=torch.bool)
    padding[1, ..., keys // 2 + 1 :] = False
    causal = torch.ones(queries, keys, dtype=torch.bool).tril()
    for mask in (None, causal, padding, padding & causal):
        wanted = gradients(plain_attention(heads, widths, mask), packed)
        assert_same(gradients(lambda packed, mask=mask: kernel_attention.attend(packed, None, heads, widths, mask), packed), wanted)


@pytest.mark.parametrize(("queries", "keys"), [(1, 30), (30, 1), (17, 9), (9, 33)])
def test_attention_across(queries, keys):
    heads, widths = 2, (16, 32)
    packed, memory = torch.randn(3, queries, 2 * 16), torch.randn(3, keys, 2 * (16 + 32))
    padding = torch.ones(3, 1, 1, keys, dtype=torch.bool)
    padding[0, ..., keys // 2 + 1 :] = False
    for mask in (None, padding):
        wanted = gradients(plain_attention(heads, widths, mask), packed, memory)
        ours = gradients(
            lambda packed, memory, mask=mask: kernel_attention.attend(packed, memory, heads, widths, mask), packed, memory
        )
        assert_same(ours, wanted)


@pytest.mark.parametrize("window", [0, 5])
@pytest.mark.parametrize("beam", [1, 4])
def test_search_with_and_without(beam, window, monkeypatch):
    """Sentences of several lengths leave the batch one by one, beams are chosen anew at every step: the same is found."""
    config = ModelConfig(d_model=32, d_ff=64, n_heads=2, encoder_layers=1, decoder_layers=2, norm="pre", window=window)
    model = make_model(config, 40, 40).eval()
    with torch.no_grad():
        model.output_weight.mul_(4)
    sources = [[*torch.randint(4, 40, (length,)).tolist(), 3] for length in (1, 3, 4, 9, 12, 20, 21, 30)]
    wanted = SearchConfig(beam_size=beam, n_best=beam, max_extra=10)
    used = []
    monkeypatch.setattr(
        kernel_attention,
        "attend_cached",
        lambda *args, real=kernel_attention.attend_cached, **more: used.append(1) or real(*args, **more),
    )
    ours = search(model, sources, wanted, torch.device("cpu"))
    assert len(used) >= 2 * 2 * 11
    monkeypatch.setattr(choice, "supports_kernels", lambda *tensors: False)
    count = len(used)
    theirs = search(model, sources, wanted, torch.device("cpu"))
    assert len(used) == count
    assert len({len(found[0].tokens) for found in ours}) > 3
    for one, other in zip(ours, theirs, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        assert [each.score for each in one] == pytest.approx([each.score for each in other], abs=1e-4)


@pytest.mark.parametrize("length", [1, 5, 16, 37])
def test_one_position_reads_a_memory_with_padding(length):
    """Of every beam, from rows in any order: what Eq. 1 gives for the real positions alone."""
    rows, beams, heads, width = 5, 3, 2, 16
    key, value = torch.randn(rows, heads, length, width), torch.randn(rows, heads, length, 2 * width)
    query = torch.randn(4, beams, heads * width)
    places = torch.tensor([4, 0, 0, 2]).repeat_interleave(beams)[:, None].expand(-1, length)
    real = torch.rand(4 * beams, length) < 0.6
    real[:, 0] = True
    for mask in (None, real):
        out = kernel_attention.attend_cached(query, key, value, places, mask).view(4 * beams, heads, 2 * width)
        scores = torch.einsum("bhk,bhtk->bht", query.view(-1, heads, width), key[places[:, 0]]) / math.sqrt(width)
        scores = scores if mask is None else scores.masked_fill(~mask[:, None], -math.inf)
        torch.testing.assert_close(
            out, torch.einsum("bht,bhtk->bhk", scores.softmax(-1), value[places[:, 0]]), rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("vocabulary", [5, 8, 63, 64, 65, 1000, 6001])
def test_best_next_tokens(vocabulary):
    """The best of the log-softmax over all tokens, those never written left out but counted in its sum."""
    for scale in (0.1, 3.0, 200.0):
        logits = scale * torch.randn(3, 4, vocabulary)
        count = min(8, vocabulary)
        scores, tokens = kernels.top_tokens(logits, count, 3)
        wanted = logits.log_softmax(-1)
        wanted[..., :3] = -math.inf
        best, places = wanted.topk(count, dim=-1)
        assert tokens[best > -math.inf].equal(places[best > -math.inf])
        torch.testing.assert_close(scores, best, rtol=1e-5, atol=2e-5)


def test_best_next_tokens_of_equals_and_of_nothing():
    scores, tokens = kernels.top_tokens(torch.zeros(1, 200), 4, 3)
    assert tokens.tolist() == [[3, 4, 5, 6]]
    assert scores.tolist() == [pytest.approx([-math.log(200)] * 4)]
    only = torch.full((1, 100), -math.inf)
    only[0, 70] = 5.0
    scores, tokens = kernels.top_tokens(only, 3, 3)
    assert tokens[0, 0] == 70
    assert scores[0, 0] == 0
    assert scores[0, 1:].tolist() == [-math.inf] * 2
    scores, _ = kernels.top_tokens(torch.full((1, 100), math.nan), 2, 3)
    assert not (scores > -math.inf).any()


def test_attention_of_extreme_scores():
    """Scores of ±10⁴: the softmax neither overflows nor forgets."""
    packed = 400 * torch.randn(2, 20, 3 * 16)
    wanted = gradients(plain_attention(1, (16, 16), None), packed)
    ours = gradients(lambda packed: kernel_attention.attend(packed, None, 1, (16, 16), None), packed)
    for one, other in zip(ours, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("vocabulary", [3, 16, 1000, 6001])
def test_loss(vocabulary, monkeypatch):
    states, weight = 3 * torch.randn(2, 9, 24), torch.randn(vocabulary, 24)
    labels = torch.randint(1, vocabulary, (2, 9))
    labels[0, 5:] = 0

    def loss(states, weight):
        return smoothed_loss(states, weight, labels, 0.1)[0]

    ours = gradients(loss, states, weight)
    monkeypatch.setattr(choice, "supports_kernels", lambda *tensors: False)
    assert_same(ours, gradients(loss, states, weight))


@pytest.mark.parametrize("vocabulary", [3, 16, 1000, 6001])
def test_the_softmax_of_half_numbers_is_that_of_the_same_numbers_rounded(vocabulary):
    torch.manual_seed(0)
    logits, labels = (5 * torch.randn(7, vocabulary)).bfloat16(), torch.randint(0, vocabulary, (7,))
    exact, totals, half_totals = logits.float(), torch.empty(7, 1), torch.empty(7, 1)
    wanted = kernels.softmax_loss(exact, labels, 0.1, totals)
    assert kernels.softmax_loss(logits, labels, 0.1, half_totals) == wanted
    assert torch.equal(half_totals, totals)
    assert torch.equal(logits, exact.bfloat16())
    logits = torch.tensor([[1.0, math.nan, 2.0]]).bfloat16()
    kernels.softmax_loss(logits, torch.tensor([0]), 0.1, half_totals)
    assert bool(logits.isnan().any())


def test_what_is_no_number_stays_none():
    """A loss that is not finite must be seen: training goes back on it."""
    states, weight = torch.randn(1, 3, 16), torch.randn(40, 16)
    states[0, 1, 3] = math.nan
    loss, _ = smoothed_loss(states.requires_grad_(), weight.requires_grad_(), torch.tensor([[5, 6, 7]]), 0.1)
    assert math.isnan(float(loss.detach()))
    packed = torch.randn(1, 4, 48, requires_grad=True)
    with torch.no_grad():
        packed[0, 2, 5] = math.nan
    assert kernel_attention.attend(packed, None, 1, (16, 16), None).isnan().any()


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_a_model_learns_the_same_with_and_without(norm, monkeypatch):
    """The loss and every gradient of a whole model, dropout on: masks are the same too."""
    torch.manual_seed(0)
    config = ModelConfig(
        d_model=32, d_ff=64, n_heads=2, encoder_layers=2, decoder_layers=2, dropout=0.2, activation_dropout=0.1, norm=norm
    )
    model = make_model(config, 50, 50)
    src, tgt = torch.randint(4, 50, (3, 11)), torch.randint(4, 50, (3, 8))
    real = torch.ones(3, 11, dtype=torch.bool)
    real[2, 6:] = False

    def step():
        with seeded_dropout(3):
            loss, _ = smoothed_loss(model.decode(model.encode(src, real), tgt), model.output_weight, tgt, 0.1)
        return loss, *torch.autograd.grad(loss, list(model.parameters()))

    used = []
    monkeypatch.setattr(kernel_attention, "attend", lambda *args, attend=kernel_attention.attend: used.append(1) or attend(*args))
    ours = step()
    assert len(used) == 6
    monkeypatch.setattr(choice, "supports_kernels", lambda *tensors: False)
    assert_same(ours, step())
    assert len(used) == 6


def test_they_stay_away_where_they_do_not_belong():
    x = torch.randn(2, 3)
    assert choice.trains_with_kernels(x)
    assert not choice.trains_with_kernels(x.double())
    assert not choice.trains_with_kernels(x.to("meta"))
    with torch.no_grad():
        assert not choice.trains_with_kernels(x)
    with torch.autocast("cpu", torch.bfloat16):
        assert not choice.trains_with_kernels(x)


@pytest.mark.parametrize("layer", [FeedForward, Residual])
def test_layers_without_gradients_give_the_same(layer):
    torch.manual_seed(0)
    made = layer(ModelConfig(d_model=16, d_ff=48, dropout=0.1)).eval()
    x = torch.randn(2, 3, 16)
    call = (lambda: made(x)) if layer is FeedForward else lambda: made(x, torch.tanh)
    with torch.no_grad():
        plain = call()
    torch.testing.assert_close(call().detach(), plain)


def test_masks_of_a_seed_are_the_same_in_any_thread_and_differ_from_one_to_the_next():
    drop, ones = Dropout(0.5).train(), torch.ones(1000, requires_grad=True)
    with seeded_dropout(7):
        first, second = drop(ones), drop(ones)
    with seeded_dropout(7):
        assert torch.equal(drop(ones), first)
    assert 400 < int((first != second).sum()) < 600


def run(tmp_path, **environment):
    known = {name: value for name, value in os.environ.items() if name not in ("CC", library.SWITCH)}
    command = [sys.executable, "-c", WORK]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=True, env=known | {"XDG_CACHE_HOME": str(tmp_path)} | environment
    )
    why, *numbers = ran.stdout.rsplit(maxsplit=2)
    return why, [float(number) for number in numbers]


def test_without_a_compiler_the_same_comes_out(tmp_path):
    (tmp_path / "bin").mkdir()
    why, numbers = run(tmp_path)
    without, same = run(tmp_path, PATH=str(tmp_path / "bin"))
    assert why == "''"
    assert "no C compiler" in without
    assert same == pytest.approx(numbers, rel=1e-5)
    assert "turns them off" in run(tmp_path, UNDIVIDED_KERNELS="0")[0]


@pytest.mark.parametrize("fault", ["fails", "builds nonsense", "builds what computes wrongly"])
def test_a_compiler_that_cannot_is_told_and_done_without(tmp_path, fault):
    wrong = tmp_path / "wrong.c"
    wrong.write_text("".join(f"int {name}(void) {{ return 0; }}\n" for name in SIGNATURES))
    scripts = {
        "fails": "echo 'no space left' >&2; exit 1",
        "builds nonsense": 'while [ "$1" != -o ]; do shift; done; echo nonsense > "$2"',
        "builds what computes wrongly": f'while [ "$1" != -o ]; do shift; done; gcc -shared -o "$2" {wrong}',
    }
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nif [ "$1" = --version ]; then echo 1; exit 0; fi\n{scripts[fault]}\n')
    compiler.chmod(0o700)
    why, _ = run(tmp_path, CC=str(compiler))
    assert "failed" in why
    assert not list((tmp_path / "undivided").glob("*"))


def test_a_cache_that_others_can_write_to_is_not_trusted(tmp_path):
    (tmp_path / "undivided").mkdir()
    (tmp_path / "undivided").chmod(0o777)
    assert run(tmp_path)[0] == "''"
    assert not list((tmp_path / "undivided").glob("*"))
