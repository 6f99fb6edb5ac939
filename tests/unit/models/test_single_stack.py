"""The relatives of the Transformer: their laws as models, their tasks, their folders, and what is said of bad input."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from samples import sentences, write_lines, write_pairs
from undivided.artifact import load_artifact, load_single_stack
from undivided.config import CorpusFiles, ModelConfig, SearchConfig
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.images import contact_sheet, encode_png, read_images, write_idx
from undivided.inference.classify import Classifier
from undivided.inference.generate import Generator, stream_likelihood, token_scores
from undivided.inference.search import continue_prompts
from undivided.models import DecoderOnly, EncoderOnly, make_model, make_single_stack
from undivided.models.drawing import Codebook, Drawing
from undivided.models.vision import Vision, cut_patches, join_patches
from undivided.training.checkpoint import average
from undivided.training.loop import train
from undivided.training.tasks.classes import shift_images
from undivided.training.tasks.masked import mask_tokens
from undivided.training.tasks.rows import encode_texts, read_blocks, read_good_texts

SMALL = {"d_model": 16, "d_ff": 32, "n_heads": 2, "dropout": 0.0}
STEPS = {"max_steps": 30, "schedule": "cosine", "warmup_steps": 5, "rate": 0.01, "threads": 1, "average": 1, "save_every": 30}


def decoder(**more):
    torch.manual_seed(3)
    return DecoderOnly(ModelConfig(kind="decoder_only", decoder_layers=2, **SMALL, **more), 40).eval()


def ids(*shape, seed=1, top=40):
    return torch.randint(EOS + 1, top, shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "none"])
@pytest.mark.parametrize("window", [0, 4])
def test_a_step_with_cache_equals_the_whole_sequence(norm, positions, window):
    model = decoder(norm=norm, positions=positions, window=window)
    tokens, state = ids(3, 9), model.start(3)
    with torch.no_grad():
        whole = model.logits(model(tokens))
        steps = [model.step(state, token) for token in tokens.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_a_decoder_sees_nothing_that_comes_later():
    model, tokens = decoder(), ids(2, 8)
    changed = torch.cat([tokens[:, :5], ids(2, 3, seed=9)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(tokens)[:, :5], model(changed)[:, :5])


def test_greedy_writing_with_cache_equals_writing_without():
    model, prompts = decoder(norm="pre"), [[5, 6, 7], [8]]
    config = SearchConfig(beam_size=1, max_extra=10)
    found = continue_prompts(model, model.start(2), prompts, config, torch.tensor([12, 12]), [0, 1])
    for prompt, (best,) in zip(prompts, found):
        row = [BOS, *prompt]
        while len(row) - 1 < 12:
            with torch.no_grad():
                scores = model.logits(model(torch.tensor([row]))[0, -1])
            scores[[PAD, 1, BOS]] = -torch.inf
            row.append(int(scores.argmax()))
            if row[-1] == EOS:
                break
        assert best.tokens == [token for token in row[1:] if token != EOS]
        assert best.tokens[: len(prompt)] == prompt


@pytest.mark.parametrize("context", [6, 7])
@pytest.mark.parametrize("length", [1, 5, 6, 7, 20, 21, 24])
def test_every_token_of_a_stream_is_predicted_once(context, length):
    """Of a model that knows no context, the likelihood of a stream is that of its tokens whatever the windows."""
    stream = ids(length).numpy()

    class Unigram(DecoderOnly):
        def forward(self, tokens):
            return torch.ones(*tokens.shape, 16)

    model = Unigram(decoder().config, 40).eval()
    with torch.no_grad():
        wanted = float(token_scores(model, torch.from_numpy(stream)).sum())
    assert stream_likelihood(model, stream, context, torch.device("cpu")) == pytest.approx(wanted, abs=1e-4)


def test_padding_changes_nothing_for_an_encoder():
    torch.manual_seed(4)
    model = EncoderOnly(ModelConfig(kind="encoder_only", encoder_layers=2, **SMALL), 40, 3).eval()
    alone = ids(1, 5)
    wide = torch.cat([alone, torch.zeros(1, 4, dtype=torch.long)], dim=1)
    with torch.no_grad():
        torch.testing.assert_close(model(alone, None), model(wide, wide != PAD), atol=1e-5, rtol=1e-5)


def test_hidden_tokens_are_asked_for_and_nothing_else():
    tokens = ids(2000, top=200)
    tokens[0], tokens[-1] = BOS, EOS
    hidden = mask_tokens(tokens, 0.15, 200, 1, 2)
    asked = hidden.labels != PAD
    assert torch.equal(hidden.labels[asked], tokens[asked])
    assert torch.equal(hidden.tokens[~asked], tokens[~asked])
    assert not asked[0]
    assert not asked[-1]
    assert asked.float().mean() == pytest.approx(0.15, abs=0.02)
    shares = [float((hidden.tokens[asked] == UNK).float().mean()), float((hidden.tokens[asked] == tokens[asked]).float().mean())]
    assert shares == pytest.approx([0.8, 0.1], abs=0.06)
    assert torch.equal(mask_tokens(tokens, 0.15, 200, 1, 2).tokens, hidden.tokens)
    assert not torch.equal(mask_tokens(tokens, 0.15, 200, 1, 3).tokens, hidden.tokens)
    assert all((mask_tokens(tokens[:4], 0.01, 200, key).labels != PAD).any() for key in range(20))


def test_patches_are_the_image():
    images = torch.arange(2 * 3 * 4 * 6).view(2, 3, 4, 6).float()
    cut = cut_patches(images, 2)
    assert cut.shape == (2, 6, 12)
    assert cut[0, 1].tolist() == images[0, :, 0:2, 2:4].flatten().tolist()
    assert torch.equal(join_patches(cut, 3, 4, 6, 2), images)


def test_moved_images_hold_what_stayed_inside():
    images = torch.arange(1.0, 65).view(1, 1, 8, 8).repeat(200, 1, 1, 1)
    found = shift_images(images, 1, 5, np.arange(200))
    seen = set()
    for each in found[:, 0]:
        down, across = divmod(int(each[3, 3]) - 1, 8)
        seen.add((down - 3, across - 3))
        assert each.count_nonzero() == (8 - abs(down - 3)) * (8 - abs(across - 3))
    assert torch.equal(shift_images(images[50:60], 1, 5, np.arange(50, 60)), found[50:60])
    assert seen == {(y, x) for y in (-1, 0, 1) for x in (-1, 0, 1)}
    assert torch.equal(shift_images(images, 0, 5, np.arange(200)), images)


def test_a_codebook_that_holds_every_patch_finds_it_again():
    config = ModelConfig(kind="drawing", image_height=4, image_width=4, codes=16, d_code=4, **SMALL)
    torch.manual_seed(5)
    codebook, images = Codebook(config), torch.rand(2, 1, 4, 4)
    codebook.copy_codes_from(images)
    vectors = codebook.into(cut_patches(images, 2))
    torch.testing.assert_close(codebook.codes[codebook.tokens(images)], vectors)
    loss, codes = codebook.loss(images)
    gradients = torch.autograd.grad(loss, list(codebook.parameters()))
    assert all(bool(gradient.isfinite().all()) for gradient in gradients)
    assert codebook.draw(codes).shape == images.shape


def test_pictures_come_back(tmp_path):
    image = np.arange(48, dtype=np.uint8).reshape(6, 8) * 5
    (tmp_path / "a.png").write_bytes(encode_png(image))
    assert (read_images(tmp_path / "a.png") == image).all()
    colour = np.arange(72, dtype=np.uint8).reshape(4, 6, 3)
    (tmp_path / "b.png").write_bytes(encode_png(colour))
    assert (read_images(tmp_path / "b.png")[0] == colour.transpose(2, 0, 1)).all()
    write_idx(tmp_path / "c.idx", np.stack([image, image]))
    assert read_images(tmp_path / "c.idx").shape == (2, 1, 6, 8)
    assert contact_sheet(np.stack([image] * 3), 2, 2).shape == (2 * 14 + 2, 2 * 18 + 2)


def text_recipe(tmp_path, kind, files, **model):
    name = "encoder_layers" if kind == "encoder_only" else "decoder_layers"
    return {
        "data": {"train": [files], "valid": [files], "max_length": 48},
        "tokens": {"vocab_size": 300},
        "batches": {"tokens": 240},
        "model": {"kind": kind, name: 1, **SMALL, **model},
        "train": {**STEPS, "out": str(tmp_path / "model")},
    }


def image_files(tmp_path, size=8, labels=None):
    """Bright left halves and bright right halves."""
    chance = np.random.RandomState(1)
    side = chance.randint(0, 2, 60)
    images = chance.randint(0, 80, (60, size, size))
    for number, right in enumerate(side):
        images[number, :, size // 2 * right : size // 2 * (1 + right)] += 150
    write_idx(tmp_path / "images.idx", images)
    if labels is None:
        write_idx(tmp_path / "labels.idx", side)
    else:
        write_lines(tmp_path / "labels.idx", [labels[number] for number in side])
    return [str(tmp_path / "images.idx"), str(tmp_path / "labels.idx")]


def image_recipe(tmp_path, kind, files, **model):
    name = "encoder_layers" if kind == "vision" else "decoder_layers"
    return {
        "data": {"train": [files], "valid": [files], "classes": ["left", "right"], "max_length": 12},
        "tokens": {"vocab_size": 300},
        "batches": {"tokens": 400},
        "model": {"kind": kind, "patch": 4, name: 1, **SMALL, **model},
        "train": {**STEPS, "out": str(tmp_path / "model")},
    }


@pytest.fixture
def text(tmp_path):
    return [str(write_lines(tmp_path / "text", [source for source, _ in sentences(80)]))]


def test_a_language_model_from_text_to_text(tmp_path, text, run):
    recipe = text_recipe(tmp_path, "decoder_only", text)
    out = train(recipe, Console(quiet=True))
    before = (out / "model.safetensors").read_bytes()
    train(recipe | {"train": recipe["train"] | {"max_steps": 40}}, Console(quiet=True))
    assert (out / "model.safetensors").read_bytes() != before
    ran = run("generate", out, "The dog", "A cat", "--max-extra", "5", "--beam", "1")
    assert ran.code == 0
    assert [line.split()[0] for line in ran.out.splitlines()] == ["The", "A"]
    sampled = [run("generate", out, "The dog", "--sample", "--n-best", "3", "--seed", seed).out for seed in ("1", "1", "2")]
    assert sampled[0] == sampled[1] != sampled[2]
    assert sampled[0].count("\n") == 3
    assert not (out / "README.md").read_text(encoding="utf-8").startswith("# A translator")
    average(out, 1, tmp_path / "averaged")
    assert Generator(tmp_path / "averaged").text(["The"])
    ran = run("score", "--model", out, text[0])
    perplexity = float(ran.out.split()[1])
    lines = Path(text[0]).read_text(encoding="utf-8").splitlines()
    ids = [token for row in load_single_stack(out).text.source.encode(lines) for token in row]
    nats = -stream_likelihood(load_single_stack(out).model, np.array(ids), recipe["data"]["max_length"], torch.device("cpu"))
    assert perplexity == pytest.approx(math.exp(nats / len(ids)), abs=0.01)
    assert "is scored on a text only" in run("score", "--model", out, text[0], text[0]).err
    assert run("generate", out, "The", "--top-p", "1").code == 0
    assert "--top-p: 2.0 is more than 1" in run("generate", out, "The", "--top-p", "2").err
    for verb, message in (("translate", "does not translate"), ("classify", "was not trained to classify")):
        ran = run(verb, out, text[0])
        assert (ran.code, message in ran.err) == (2, True), ran.err


def test_many_prompts_are_continued_in_batches_and_come_out_as_they_do_alone(tmp_path, text, run, monkeypatch):
    from undivided.cli import generate
    from undivided.data.subwords import to_one_line
    from undivided.inference import generate as generating

    out = train(text_recipe(tmp_path / "m", "decoder_only", text), Console(quiet=True))
    prompts = [source[:3] for source, _ in sentences(9)]
    samples = {"sample": True, "n_best": 2, "seed": 3}
    whole = [Generator(out).text(prompts, **more) for more in ({}, samples)]
    batches, real = [], generating.continue_prompts
    monkeypatch.setattr(generating, "continue_prompts", lambda *given: (batches.append(len(given[2])), real(*given))[1])
    monkeypatch.setattr(generating, "BATCH_ROWS", 8)
    texts = [[[each.text for each in row] for row in found] for found in whole]
    for more, right in zip(({}, samples), texts):
        assert [[each.text for each in row] for row in Generator(out).text(prompts, **more)] == right
    assert max(batches) <= 4
    assert len(batches) > 4
    # The command reads its input in chunks.
    monkeypatch.setattr(generate, "CHUNK_LINES", 4)
    done = run("generate", out, *prompts, "--sample", "--n-best", "2", "--seed", "3")
    assert done.out.split("\n")[:-1] == [to_one_line(text) for row in texts[1] for text in row]


def test_lines_may_be_texts_of_their_own(tmp_path, text):
    """Then what a model thinks of a text does not depend on the order of its lines; of one text, it does."""
    lines = [*dict.fromkeys(Path(text[0]).read_text(encoding="utf-8").splitlines())][:20]
    told = {}
    for rows in ("lines", "stream"):
        recipe = text_recipe(tmp_path / rows, "decoder_only", text)
        recipe["data"] |= {"rows": rows, "max_length": 6}
        generator = Generator(train(recipe, Console(quiet=True)))
        told[rows] = [generator.perplexity(order) for order in (lines, lines[::-1])]
        given, subwords = generator.artifact.recipe, generator.artifact.text.source
        files = CorpusFiles(text[0])
        texts, cut = list(encode_texts(read_good_texts(files, given), subwords)), read_blocks(files, given, subwords)
        assert np.concatenate([row[1:] for row in cut]).tolist() == np.concatenate(texts).tolist()
        assert max(map(len, cut)) == 7
        assert (sum(row[0] == EOS for row in cut) == len(texts)) == (rows == "lines")
    assert told["lines"][0] == pytest.approx(told["lines"][1], rel=1e-5)
    assert told["stream"][0] != pytest.approx(told["stream"][1], rel=1e-4)


def test_hidden_words_then_classes(tmp_path, text, run):
    pretrained = train(text_recipe(tmp_path / "first", "encoder_only", text), Console(quiet=True))
    assert run("classify", pretrained, text[0]).code == 2
    pairs = [(source, "dog" if "dog" in source else "other") for source, _ in sentences(80)]
    recipe = text_recipe(tmp_path, "encoder_only", write_pairs(tmp_path, "labelled", pairs))
    del recipe["model"]
    recipe["train"] |= {"start": str(pretrained), "max_steps": 60}
    recipe["model"] = {"kind": "encoder_only"}
    out = train(recipe, Console(quiet=True))
    assert load_single_stack(out).recipe.model == load_single_stack(pretrained).recipe.model
    assert load_single_stack(out).text.source.model == load_single_stack(pretrained).text.source.model
    ran = run("classify", out, tmp_path / "labelled.src")
    right = [line.split("\t")[0] == label for line, (_, label) in zip(ran.out.splitlines(), pairs, strict=True)]
    assert np.mean(right) > 0.9
    assert Classifier(out).texts(["The dog sees the house today."])[0].name == "dog"
    accuracy = 100 * np.mean(right)
    ran = run("score", "--model", out, tmp_path / "labelled.src", tmp_path / "labelled.tgt")
    assert ran.out == f"accuracy {accuracy:.2f} percent|examples:80\n"
    (tmp_path / "odd").write_text("The dog sees the house today.\n\n" + "The dog sees. " * 100 + "\n", encoding="utf-8")
    ran = run("classify", out, tmp_path / "odd")
    first, empty, long = ran.out.splitlines()
    assert (first.split()[0], empty, len(long.split())) == ("dog", "", 2)
    assert "odd, line 3: longer than" in ran.err
    assert ran.err.count("longer than") == 1
    wrong = run("train", "--train", *write_pairs(tmp_path, "x", pairs), "--from", out, "--model.kind", "vision", "--out", "no")
    assert "holds a model of kind encoder_only, not vision" in wrong.err
    (tmp_path / "empty.yaml").write_text("model:\n")
    assert run("train", tmp_path / "empty.yaml", "--out", out).code == 0
    wrong = run("train", "--model.kind", "vision", "--out", out)
    assert "holds the training of a model of kind encoder_only, not vision; choose another --out" in wrong.err


def test_images_to_classes(tmp_path, run):
    out = train(image_recipe(tmp_path, "vision", image_files(tmp_path)), Console(quiet=True))
    ran = run("classify", out, tmp_path / "images.idx")
    names = [line.split("\t")[0] for line in ran.out.splitlines()]
    side = np.random.RandomState(1).randint(0, 2, 60)
    assert np.mean([name == ["left", "right"][number] for name, number in zip(names, side, strict=True)]) > 0.9
    (tmp_path / "one.png").write_bytes(encode_png(read_images(tmp_path / "images.idx")[0, 0]))
    assert run("classify", out, tmp_path / "one.png").out.splitlines()[0] == ran.out.splitlines()[0]
    large = read_images(tmp_path / "images.idx")[0, 0].repeat(3, axis=0).repeat(3, axis=1)
    (tmp_path / "large.png").write_bytes(encode_png(large[:, :, None].repeat(3, axis=2)))
    resized = run("classify", out, tmp_path / "large.png")
    assert resized.out.splitlines()[0] == ran.out.splitlines()[0], "in colour and three times as large, it is the same image"
    assert "large.png: made 1 × 8 × 8 (channels × height × width), as in training; it is 3 × 24 × 24" in resized.err
    refused = run("look", out, "a")
    assert refused.code == 2
    assert "look without --live follows translators alone. See inside it with: undivided look" in refused.err
    with pytest.raises(InputError, match="does not translate"):
        load_artifact(out)


def test_words_to_images(tmp_path, run):
    files = image_files(tmp_path, labels=["bright left", "bright right"])
    recipe = image_recipe(tmp_path, "drawing", files, codes=8)
    recipe["data"]["classes"] = []
    out = train(recipe, Console(quiet=True))
    assert run("generate", out, "bright left", "-o", tmp_path / "left.png", "--n-best", "4", "--sample").code == 0
    assert read_images(tmp_path / "left.png").shape == (1, 1, 12, 42)
    images = Generator(out).images(["bright left", "bright right"], n_best=2, seed=1)
    assert images.shape == (4, 1, 8, 8)
    assert (images == Generator(out).images(["bright left", "bright right"], n_best=2, seed=1)).all()
    assert "name a .png file" in run("generate", out, "bright left").err
    assert "drawings have no score" in run("score", "--model", out, files[0], files[1]).err
    found = load_single_stack(out)
    data = dataclasses.replace(found.recipe.data, classes=["bright left", "bright right"])
    known = Generator(dataclasses.replace(found, recipe=dataclasses.replace(found.recipe, data=data)))
    with pytest.raises(
        InputError, match=r"'bright lift' is not a class that it learned to draw; did you mean 'bright left'\?; it knows: bright"
    ):
        known.images(["bright lift"])


def test_drawing_with_cache_equals_predicting_the_whole():
    torch.manual_seed(6)
    config = ModelConfig(kind="drawing", image_height=4, image_width=4, codes=8, d_code=4, decoder_layers=2, **SMALL)
    model = Drawing(config, 40).eval()
    row = torch.cat([ids(2, 5), 40 + torch.randint(0, 8, (2, 4))], dim=1)
    state = model.decoder.start(2)
    with torch.no_grad():
        steps = torch.cat([model.decoder.step(state, token) for token in row.split(1, dim=1)], dim=1)
        torch.testing.assert_close(steps, model.decoder.logits(model.decoder(row)), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["decoder_only", "encoder_only", "vision", "drawing"])
def test_a_relative_is_no_translator_and_the_other_way_round(kind):
    with pytest.raises(ValueError, match="do not go from sequence to sequence"):
        make_model(ModelConfig(kind=kind), 10, 10)
    with pytest.raises(ValueError, match="go from sequence to sequence"):
        make_single_stack(ModelConfig(), 10, 2)
    assert isinstance(make_single_stack(ModelConfig(kind="vision", image_height=4, image_width=4, **SMALL), 0, 2), Vision)
