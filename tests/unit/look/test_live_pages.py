"""`undivided look --live`: what is written, and every reason why not."""

import re

import pytest
import torch

from undivided.artifact import Artifact
from undivided.config import build_recipe
from undivided.core.errors import InputError
from undivided.look.live import page, render_live
from undivided.models import make_model


def test_one_file_with_the_model_inside(run, model, tmp_path):
    out = tmp_path / "page.html"
    ran = run("look", model, "-o", out, "--live")
    assert (ran.code, ran.out) == (0, "")
    assert re.fullmatch(rf"wrote {out}, 0\.\d MB with the model inside\n", ran.err)
    text = out.read_text(encoding="utf-8")
    assert not re.search(r"(src|href)=\"(?!data:)", text)
    assert "import {" not in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--live"], "--live writes a page; name it with -o"),
        (["--live", "-o", "page.json"], "--live writes a page; name it with -o"),
        (["--live", "-o", "p.html", "--target", "x", "--fast"], "--target: cannot be used with --live; --fast: cannot be used"),
    ],
)
def test_usage(run, model, options, said):
    ran = run("look", model, *options)
    assert ran.code == 2
    assert said in ran.err


def test_a_model_is_refused_with_every_reason(translator, monkeypatch):
    torch.manual_seed(1)
    recipe = build_recipe({"model": {"kind": "recurrent", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}})
    tokenizer = translator.artifact.tokenizer
    made = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target))
    made.output_weight.data[0, 0] = 1e6
    monkeypatch.setattr(page, "MOST_BYTES", 1000)
    with pytest.raises(InputError) as refused:
        render_live(Artifact(recipe, tokenizer, made), "", "float16")
    said = str(refused.value)
    assert "the Transformer alone, and this is a recurrent model" in said
    assert "too large for float16" in said
    assert re.search(r"would take 0 MB as float16, and a page holds 0 MB \(use --weights int8, distil it", said)
