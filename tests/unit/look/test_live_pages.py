"""`undivided look --live`: what is written, and every reason why not."""

import base64
import random
import re

import pytest
import torch

from undivided.artifact import Artifact, SingleStackArtifact, save_artifact
from undivided.config import build_recipe
from undivided.core.errors import InputError
from undivided.look.live import measure_loss, page, render_live
from undivided.look.live.weights import DIGITS, pack_weights, to_base85
from undivided.models import make_model, make_single_stack
from undivided.training.budget import SIZES

SUBWORD_BYTES = 20
"""That one takes in a page, with its score: German and English ones take 18."""


def test_one_file_with_the_model_inside(run, model, tmp_path):
    out = tmp_path / "page.html"
    ran = run("look", model, "-o", out, "--live")
    assert (ran.code, ran.out) == (0, "")
    close = r"; as int8 its weights are 0\.\d+ % \(root mean square\) from those that were trained"
    assert re.fullmatch(rf"wrote {out}, 0\.\d MB with the model inside{close}\n", ran.err)
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
    recipe = build_recipe({"model": {"kind": "convolutional", "d_model": 16, "encoder_layers": 1, "decoder_layers": 1}})
    tokenizer = translator.artifact.tokenizer
    made = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target))
    made.output_weight.data[0, 0] = 1e6
    monkeypatch.setattr(page, "MOST_BYTES", 1000)
    with pytest.raises(InputError) as refused:
        render_live(Artifact(recipe, tokenizer, made), "", "float16")
    said = str(refused.value)
    kinds = "transformer, recurrent, decoder_only, encoder_only and vision models, and this is a convolutional model"
    assert f"a live page holds {kinds} (leave out --live to look inside it)" in said
    assert "too large for float16" in said
    assert re.search(r"would take 0 MB as float16, and a page holds 0 MB \(use --weights int8, distil it", said)


def folder_of(kind, tokenizer, home, **model):
    """A folder of an untrained single-stack model."""
    torch.manual_seed(1)
    depth = "decoder_layers" if kind in ("decoder_only", "drawing") else "encoder_layers"
    images = {"image_height": 4, "image_width": 4} if kind in ("vision", "drawing") else {}
    classes = ["a", "b"] if kind == "vision" else []
    recipe = build_recipe(
        {"model": {"kind": kind, "d_model": 16, "n_heads": 2, "d_ff": 16, depth: 1} | images | model, "data": {"classes": classes}}
    )
    text = None if kind == "vision" else tokenizer
    made = make_single_stack(recipe.model, len(text.source) if text else 0, len(classes))
    save_artifact(SingleStackArtifact(recipe, text, made.eval()), home)
    return home


@pytest.mark.parametrize(("kind", "mount"), [("decoder_only", "Language"), ("encoder_only", "Masked"), ("vision", "Vision")])
def test_single_stacks_have_pages_of_their_own(run, translator, tmp_path, kind, mount):
    folder = folder_of(kind, translator.artifact.tokenizer, tmp_path / "m")
    out = tmp_path / "page.html"
    ran = run("look", folder, *([] if kind == "vision" else ["a text"]), "-o", out, "--live")
    assert (ran.code, ran.out) == (0, "")
    text = out.read_text(encoding="utf-8")
    assert f'mount{mount}(document.getElementById("look"))' in text
    assert "import {" not in text
    # Of the engine, only what this kind of model needs.
    assert ("function drawOne" in text) == (kind == "decoder_only")
    without = run("look", folder, "a text")
    assert without.code == 2
    assert f"See inside it with: undivided look {folder} -o page.html --live" in without.err


def test_a_drawing_model_is_refused_before_its_weights_are_read(run, translator, tmp_path):
    folder = folder_of("drawing", translator.artifact.tokenizer, tmp_path / "m")
    (folder / "model.safetensors").unlink(missing_ok=True)
    ran = run("look", folder, "-o", tmp_path / "page.html", "--live")
    assert ran.code == 2
    assert "this is a drawing model (use it with: undivided generate)" in ran.err
    assert "--live" not in run("look", folder, "a text").err.split("follows translators alone")[1]


def test_a_viewer_takes_no_text(run, translator, tmp_path):
    ran = run("look", folder_of("vision", None, tmp_path / "m"), "a text", "-o", tmp_path / "page.html", "--live")
    assert ran.code == 2
    assert "a vision model reads images: leave out the text" in ran.err


def test_a_single_stack_that_is_too_large_is_refused_with_its_size(translator, monkeypatch):
    recipe = build_recipe({"model": {"kind": "decoder_only", "d_model": 16, "n_heads": 2, "decoder_layers": 1}})
    tokenizer = translator.artifact.tokenizer
    made = make_single_stack(recipe.model, len(tokenizer.source), 0)
    monkeypatch.setattr(page, "MOST_BYTES", 1000)
    small = r"would take 0 MB as float32, and a page holds 0 MB \(use --weights int8, train a smaller one\)"
    with pytest.raises(InputError, match=small):
        render_live(SingleStackArtifact(recipe, tokenizer, made), "", "float32")


B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"


def test_weights_are_text_that_means_nothing_in_a_page():
    chance = random.Random(1)
    for size in [0, 1, 2, 3, 4, 5, 1000, 1001, 1002]:
        content = chance.randbytes(size // 2) + b"\xff" * (size - size // 2)
        text = to_base85(content)
        assert base64.b85decode(text.encode().translate(bytes.maketrans(DIGITS, B85))) == content
        assert not set(text) & set("<>&\"'\\/ ")


def test_how_close_weights_are_is_said(translator):
    model = translator.artifact.model
    assert measure_loss(model, "float32") == 0
    assert 1e-5 < measure_loss(model, "float16") < 1e-3 < measure_loss(model, "int8") < 0.02


def test_the_page_of_a_demo_takes_less_than_4_mb(translator):
    """The largest model that the demo trains, its weights distributed as those of trained ones are."""
    torch.manual_seed(1)
    sizes = SIZES[1]
    made = make_model(build_recipe({"model": sizes.model}).model, sizes.most_subwords, sizes.most_subwords)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter)
    small = translator.artifact
    rest = len(render_live(small, "", "int8")) - len(pack_weights(small.model, "int8").text)
    assert rest + sizes.most_subwords * SUBWORD_BYTES + len(pack_weights(made, "int8").text) < 4e6
