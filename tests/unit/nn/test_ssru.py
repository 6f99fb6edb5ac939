"""The recurrent unit that may stand in place of a decoder's self-attention, and a decoder that starts from zeros."""

import pytest
import torch

from samples import write_lines
from undivided import Translator
from undivided.artifact import Artifact
from undivided.config import CorpusFiles, ModelConfig, build_recipe
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import BOS, MASKED, PAD
from undivided.inference.engines.ctranslate2_convert import UnsupportedModel, check_supported
from undivided.interop.marian_out import check_expressible
from undivided.look import look, run_what_if, summarize
from undivided.look.heads import report_heads
from undivided.look.html import render_page
from undivided.look.live import render_live
from undivided.models import make_model
from undivided.nn.loss import smoothed_loss
from undivided.nn.ssru import SSRU, CellState, weighted_sum

CONFIG = ModelConfig(d_model=8, n_heads=2)


def plain(forget, x):
    """By the formula, position by position."""
    cell, cells = torch.zeros_like(x[:, 0]), []
    for place in range(x.shape[1]):
        cell = forget[:, place] * cell + x[:, place]
        cells.append(cell)
    return torch.stack(cells, dim=1)


@pytest.mark.parametrize("length", [1, 2, 7])
def test_the_sum_and_its_gradient_are_those_of_a_plain_loop(length):
    chance = torch.Generator().manual_seed(length)
    forget = torch.rand(3, length, 5, generator=chance, dtype=torch.double).requires_grad_()
    x = torch.randn(3, length, 5, generator=chance, dtype=torch.double).requires_grad_()
    torch.testing.assert_close(weighted_sum(forget, x), plain(forget, x))
    slope = torch.randn(3, length, 5, generator=chance, dtype=torch.double)
    ours = torch.autograd.grad(weighted_sum(forget, x), (forget, x), slope)
    torch.testing.assert_close(ours, torch.autograd.grad(plain(forget, x), (forget, x), slope))
    assert torch.autograd.gradcheck(weighted_sum, (forget, x))


@torch.no_grad()
def test_a_unit_computes_what_the_paper_says():
    """f = σ(xW_f + b), c = f c₋ + (1 − f) xW, and of it max(0, c); whole and step by step."""
    torch.manual_seed(1)
    unit = SSRU(CONFIG)
    unit.forget.bias.normal_()
    x = torch.randn(2, 6, 8)
    forget = torch.sigmoid(x @ unit.forget.weight.t() + unit.forget.bias)
    wanted = plain(forget, (1 - forget) * (x @ unit.candidate.weight.t())).clamp(min=0)
    torch.testing.assert_close(unit(x, None), wanted)
    assert (wanted == 0).any()
    assert (wanted > 0).any()
    past = unit.start()
    for place in range(6):
        torch.testing.assert_close(unit.step(x[:, None, place], past)[:, 0], wanted[:, place], atol=1e-6, rtol=1e-5)


def test_what_is_remembered_goes_with_its_beam():
    cell = torch.arange(12.0).view(2, 3, 2)
    chosen = CellState(cell).select(torch.tensor([1]), torch.tensor([[2, 2, 0]]))
    assert chosen.cell.tolist() == [[[10.0, 11.0], [10.0, 11.0], [6.0, 7.0]]]
    assert CellState().select(torch.tensor([0]), torch.tensor([[0]])).cell is None


def zero_start(**changes):
    torch.manual_seed(2)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0} | changes
    return make_model(ModelConfig(start="zero", output_bias=True, **settings), 30, 30)


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_the_start_stays_zero_in_training(tie):
    """Whatever the optimizer does with what has no gradient; and `<s>` and `<pad>` are never likely."""
    model = zero_start(tie=tie)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.1)
    src, tgt = torch.randint(4, 30, (4, 6)), torch.randint(4, 30, (4, 6))
    tgt_in = torch.cat([torch.full((4, 1), BOS), tgt[:, :-1]], dim=1)
    first = model.target_embedding.weight.detach().clone()
    for _ in range(5):
        optimizer.zero_grad()
        states = model.decode(model.encode(src, None), tgt_in)
        rows, weight = model.loss_factors(states)
        smoothed_loss(rows, weight, tgt, 0.1)[0].backward()
        optimizer.step()
    assert not model.target_embedding.weight[BOS].any()
    assert (model.target_embedding.weight - first)[tgt_in[0, 1]].abs().max() > 0.01
    chances = model.logits(model.decode(model.encode(src, None), tgt_in)).softmax(-1)
    assert not chances[..., [PAD, BOS]].any()
    assert model.output_bias[BOS].item() == pytest.approx(MASKED, rel=0.01)


def test_a_start_of_zeros_needs_an_output_bias():
    assert ModelConfig(start="zero").faults() == [
        "start: zero needs model.output_bias, which is how <s> and <pad> are never written"
    ]


@pytest.fixture(scope="module")
def artifact(translator):
    torch.manual_seed(3)
    model = {"d_model": 16, "d_ff": 24, "n_heads": 2, "encoder_layers": 2, "decoder_layers": 3, "decoder_self": "ssru"}
    recipe = build_recipe({"model": model, "search": {"max_extra": 4, "beam_size": 3}})
    tokenizer = translator.artifact.tokenizer
    return Artifact(recipe, tokenizer, make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval())


def test_a_look_has_no_decoder_self_attention(artifact):
    result = look(artifact, "a dog")
    source, target = len(result.source), len(result.steps)
    assert result.encoder.shape == (2, 2, source, source)
    assert result.decoder.shape == (0, 0, target, target)
    assert result.cross.shape == (3, 2, target, source)
    with_heads = run_what_if(artifact, result)
    assert {each.use for each in with_heads.heads_off} == {"encoder", "cross"}
    assert summarize(with_heads)
    assert "</html>" in render_page(with_heads)


def test_who_cannot_compute_it_says_so(artifact):
    with pytest.raises(UnsupportedModel, match="no decoders without self-attention"):
        check_supported(artifact)
    with pytest.raises(InputError, match=r"a decoder without self-attention .*--to bergamot has one"):
        check_expressible(artifact)
    with pytest.raises(InputError, match="its decoder has no self-attention"):
        render_live(artifact)


def test_the_head_report_names_only_heads_that_are_there(artifact, tmp_path):
    files = CorpusFiles(*(write_lines(tmp_path / f"t.{side}", ["a dog", "two cats"]) for side in ("en", "de")))
    found = report_heads(Translator(artifact), files, 0, Console(quiet=True))
    assert {head.use for head in found.heads} == {"encoder", "cross"}
