"""Weights of GPT-2, BERT and ViT as `transformers` makes and saves them give the same logits here."""

import json
import shutil

import pytest
import torch

from undivided.core.errors import InputError
from undivided.interop.pretrained import load_pretrained

transformers = pytest.importorskip("transformers")
SHAPE = {
    "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
}  # fmt: skip
V, B, T = 61, 3, 11


def saved(model, folder):
    """A model with weights that are far from their first values, in a folder."""
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.3)
    model.eval()
    model.save_pretrained(folder)
    return model


def gpt2(folder, **more):
    config = transformers.GPT2Config(vocab_size=V, n_positions=16, n_embd=32, n_layer=3, n_head=4, **more)
    return saved(transformers.GPT2LMHeadModel(config), folder)


def bert_config(**more):
    return transformers.BertConfig(vocab_size=V, max_position_embeddings=16, **SHAPE, **more)


@pytest.fixture(autouse=True)
def quiet():
    transformers.logging.disable_progress_bar()


def tokens():
    return torch.randint(4, V, (B, T), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("more", [{}, {"n_inner": 40, "activation_function": "relu"}, {"tie_word_embeddings": False}], ids=str)
def test_gpt2(tmp_path, more):
    theirs = gpt2(tmp_path, **more)
    found = load_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(found.model.logits(found.model(tokens())), theirs(tokens()).logits, atol=1e-5, rtol=1e-5)
    assert found.config.kind == "decoder_only"


def test_gpt2_writes_the_same(tmp_path):
    """Greedy, with our cache: token for token what `transformers` generates."""
    theirs = gpt2(tmp_path)
    model = load_pretrained(tmp_path).model
    prompt = tokens()[:, :4]
    wanted = theirs.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False, pad_token_id=0)
    state = model.start(B)
    with torch.no_grad():
        for token in prompt.split(1, dim=1):
            logits = model.step(state, token)
        written = [prompt]
        for _ in range(8):
            written.append(logits.argmax(dim=-1))
            logits = model.step(state, written[-1])
    # Theirs stop nowhere: no id is its `eos_token_id`.
    assert torch.cat(written, dim=1).tolist() == wanted.tolist()


def test_bert_guesses_words(tmp_path):
    theirs = saved(transformers.BertForMaskedLM(bert_config()), tmp_path)
    found = load_pretrained(tmp_path)
    real = torch.arange(T) < torch.tensor([[11], [7], [4]])
    segments = (torch.arange(T) >= 3).long().expand(B, T)
    for mask, kinds in ((None, None), (real, None), (real, segments)):
        with torch.no_grad():
            wanted = theirs(tokens(), attention_mask=mask, token_type_ids=kinds).logits
            ours = found.model(tokens(), mask, kinds)
        kept = real if mask is not None else torch.ones_like(real)
        torch.testing.assert_close(ours[kept], wanted[kept], atol=1e-5, rtol=1e-5)


def test_bert_names_classes(tmp_path):
    theirs = saved(transformers.BertForSequenceClassification(bert_config(num_labels=5)), tmp_path)
    found = load_pretrained(tmp_path)
    with torch.no_grad():
        torch.testing.assert_close(found.model(tokens(), None), theirs(tokens()).logits, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(("height", "width", "channels"), [(12, 12, 3), (8, 16, 1)])
def test_vit(tmp_path, height, width, channels):
    size = height if height == width else (height, width)
    config = transformers.ViTConfig(image_size=size, patch_size=4, num_channels=channels, num_labels=6, **SHAPE)
    theirs = saved(transformers.ViTForImageClassification(config), tmp_path)
    found = load_pretrained(tmp_path)
    images = torch.rand(B, channels, height, width, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(found.model(images), theirs(images).logits, atol=1e-5, rtol=1e-5)


def test_what_does_not_fit_is_named(tmp_path):
    gpt2(tmp_path / "good")
    changes = {
        "n_layer": (4, "h.3.attn.c_attn.weight"),
        "n_positions": (17, "embedding.positions.learned has shape"),
        "activation_function": ("mish", "activation_function 'mish' is not supported"),
        "scale_attn_by_inverse_layer_idx": (True, "attention is not scaled by"),
        "model_type": ("t5", "models of type 't5' are not supported; supported: gpt2, bert, vit"),
    }
    for key, (value, message) in changes.items():
        folder = tmp_path / key
        shutil.copytree(tmp_path / "good", folder)
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {key: value}))
        with pytest.raises(InputError, match=message):
            load_pretrained(folder)
    with pytest.raises(InputError, match="missing or damaged"):
        load_pretrained(tmp_path / "nowhere")
