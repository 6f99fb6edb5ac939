"""GPT-2 and ViT folders of `transformers` come in as model folders; text that sentencepiece cannot split is refused."""

import json

import numpy as np
import pytest
import sentencepiece
import torch

from marian_models import learn, sentences
from undivided.artifact import load_any
from undivided.cli import main
from undivided.core.errors import InputError
from undivided.inference.classify import Classifier
from undivided.interop.door import import_model

transformers = pytest.importorskip("transformers")


def saved(model, folder):
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) * 0.2)
    model.eval().save_pretrained(folder)
    return model


def test_vit_classifies_pixels_as_its_processor_would_give_them(tmp_path, console):
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48, image_size=8, patch_size=4,
        id2label={0: "cat", 1: "dog", 2: "bird"}, label2id={"cat": 0, "dog": 1, "bird": 2},
    )  # fmt: skip
    theirs = saved(transformers.ViTForImageClassification(config), tmp_path / "theirs")
    shown = {"do_normalize": True, "image_mean": [0.4, 0.5, 0.6], "image_std": [0.5, 0.25, 0.2]}
    (tmp_path / "theirs" / "preprocessor_config.json").write_text(json.dumps(shown))
    import_model(tmp_path / "theirs", tmp_path / "ours", console, "apache-2.0")
    found = load_any(tmp_path / "ours")
    assert found.recipe.data.classes == ["cat", "dog", "bird"]
    assert found.facts["license"] == "apache-2.0"
    images = np.random.default_rng(1).integers(0, 256, (5, 3, 8, 8), dtype=np.uint8)
    mean, std = (torch.tensor(shown[name])[:, None, None] for name in ("image_mean", "image_std"))
    with torch.inference_mode():
        wanted = theirs(pixel_values=(torch.from_numpy(images).float() / 255 - mean) / std).logits
        assert torch.allclose(found.model(torch.from_numpy(images).float() / 255), wanted, atol=1e-4)
    names = [each.name for each in Classifier(tmp_path / "ours").images(images)]
    assert names == [["cat", "dog", "bird"][number] for number in wanted.argmax(dim=1).tolist()]


def gpt2(folder, size=120):
    config = transformers.GPT2Config(
        vocab_size=size, n_positions=32, n_embd=32, n_layer=2, n_head=4, bos_token_id=1, eos_token_id=2
    )
    return saved(transformers.GPT2LMHeadModel(config), folder)


def test_gpt2_with_a_sentencepiece_model_computes_the_same(tmp_path, console):
    theirs = gpt2(tmp_path / "theirs")
    (tmp_path / "theirs" / "spiece.model").write_bytes(learn(sentences(400, 1)))
    import_model(tmp_path / "theirs", tmp_path / "ours", console)
    found = load_any(tmp_path / "ours")
    split = sentencepiece.SentencePieceProcessor(model_proto=(tmp_path / "theirs" / "spiece.model").read_bytes())
    for line in sentences(5, 2):
        ids, ours = split.encode(line), found.text.source.encode([line])[0][:-1]
        assert found.text.source.pieces(ours) == split.encode(line, out_type=str)
        with torch.inference_mode():
            one = found.model.logits(found.model(torch.tensor([ours])))[0, :, ours]
            other = theirs(torch.tensor([ids])).logits[0, :, ids]
        assert torch.allclose(one, other, atol=1e-4)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_text_that_cannot_be_split_is_refused_with_the_reason(kind, tmp_path, console, capsys):
    gpt2(tmp_path / "theirs")
    config = tmp_path / "theirs" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"model_type": kind}))
    with pytest.raises(InputError, match="byte-level BPE" if kind == "gpt2" else "WordPiece"):
        import_model(tmp_path / "theirs", tmp_path / "ours", console)
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "ours")]) == 2
    assert not (tmp_path / "ours").exists()
