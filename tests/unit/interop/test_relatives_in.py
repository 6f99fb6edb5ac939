"""GPT-2, BERT and ViT folders of `transformers` come in as model folders."""

import json
import os
import re

import numpy as np
import pytest
import sentencepiece
import torch

from marian_models import learn, sentences
from samples import write_lines, write_pairs
from undivided.artifact import load_any
from undivided.cli import main
from undivided.core.ids import BOS, EOS
from undivided.data.subwords import to_one_line
from undivided.inference.classify import Classifier
from undivided.interop.door import import_model

tokenizers = pytest.importorskip("tokenizers")
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


def gpt2(folder, size=120, start=1, end=2):
    config = transformers.GPT2Config(
        vocab_size=size, n_positions=64, n_embd=32, n_layer=2, n_head=4, bos_token_id=start, eos_token_id=end
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


TEXTS = [
    "The dog sees a tree.", "Don't   ask; it's 3.14!", " ÀÉÎ naïve café",
    "日本語 한국어 中文", "😀 a\u0301 x\u200by", "UPPER lower 123", "",
    "a tree, the river: today again", "line\twith\ttabs", "«quotes» …",
]  # fmt: skip


def byte_bpe(folder, apart, size=400):
    """A byte-level BPE trained on a few lines, saved as `transformers` 4 (apart) or 5 (one file) does; its tokenizer."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, special_tokens=["<|endoftext|>"])
    model.train_from_iterator([*TEXTS * 5, *sentences(100, 1)], trainer)
    found = json.loads(model.to_str())["model"]
    theirs = transformers.GPT2Tokenizer(vocab=found["vocab"], merges=[tuple(pair) for pair in found["merges"]])
    if apart:
        (folder / "vocab.json").write_text(json.dumps(found["vocab"]))
        (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(f"{left} {right}\n" for left, right in found["merges"]))
    else:
        theirs.save_pretrained(folder)
    return theirs


def wordpiece(folder, apart, size=300):
    model = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
    model.normalizer, model.pre_tokenizer = tokenizers.normalizers.BertNormalizer(), tokenizers.pre_tokenizers.BertPreTokenizer()
    # The order of those that are published: [PAD], unused ones, then the others.
    special = ["[PAD]", "[unused0]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=size, special_tokens=special)
    model.train_from_iterator([*TEXTS[:3] * 5, *sentences(100, 1)], trainer)
    vocab = model.get_vocab()
    theirs = transformers.BertTokenizer(vocab=vocab)
    if apart:
        (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in sorted(vocab, key=vocab.get)))
    else:
        theirs.save_pretrained(folder)
    return theirs


@pytest.mark.parametrize("apart", [True, False])
def test_gpt2_with_byte_level_bpe_computes_the_same_and_generates(apart, tmp_path, console, capsys):
    (tmp_path / "theirs").mkdir()
    split = byte_bpe(tmp_path / "theirs", apart)
    end = split.convert_tokens_to_ids("<|endoftext|>")
    theirs = gpt2(tmp_path / "theirs", len(split) + 3, end, end)
    import_model(tmp_path / "theirs", tmp_path / "ours", console)
    found = load_any(tmp_path / "ours")
    subwords = found.text.source
    for text in TEXTS:
        ids, ours = split(text)["input_ids"], subwords.encode([text])[0][:-1]
        assert subwords.pieces(ours) == split.convert_ids_to_tokens(ids)
        assert subwords.decode([ours]) == [text]
        with torch.inference_mode():
            one = found.model.logits(found.model(torch.tensor([[BOS, *ours]])))[0]
            other = theirs(torch.tensor([[end, *ids]])).logits[0]
        assert torch.allclose(one[:, EOS], other[:, end], atol=1e-5)
        assert torch.allclose(one[:, ours], other[:, ids], atol=1e-5)
        # As many tokens can be written as they have: <pad>, <unk> and <s> take no probability.
        assert torch.allclose(one.logsumexp(-1), other.logsumexp(-1), atol=1e-5)
    capsys.readouterr()
    assert main(["generate", str(tmp_path / "ours"), "The dog", "--beam-size", "1", "--max-extra", "12"]) == 0
    given = torch.tensor([[end, *split("The dog")["input_ids"]]])
    wanted = theirs.generate(given, max_new_tokens=12, do_sample=False, pad_token_id=end)[0, 1:]
    line = split.decode(wanted[: (wanted == end).nonzero()[0] if bool((wanted == end).any()) else None])
    assert capsys.readouterr().out == to_one_line(line) + "\n"


def bert(folder, head, size, **more):
    config = transformers.BertConfig(
        vocab_size=size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48,
        max_position_embeddings=40, **more,
    )  # fmt: skip
    return saved(getattr(transformers, head)(config), folder)


@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("head", ["BertForMaskedLM", "BertForPreTraining"])
def test_bert_guesses_the_same_words(head, apart, tmp_path, console):
    (tmp_path / "theirs").mkdir()
    split = wordpiece(tmp_path / "theirs", apart)
    theirs = bert(tmp_path / "theirs", head, len(split))
    import_model(tmp_path / "theirs", tmp_path / "ours", console)
    found = load_any(tmp_path / "ours")
    subwords = found.text.source
    assert subwords.pieces([subwords.mask]) == ["[MASK]"]
    for text in [*TEXTS, "The [MASK] sees a tree."]:
        ids, ours = split(text)["input_ids"], [BOS, *subwords.encode([text])[0]]
        named = [{"<unk>": "[UNK]"}.get(piece, piece) for piece in subwords.pieces(ours[1:-1])]
        assert named == split.convert_ids_to_tokens(ids)[1:-1]
        with torch.inference_mode():
            one, other = found.model(torch.tensor([ours]), None)[0], theirs(torch.tensor([ids]))[0][0]
        assert torch.allclose(one[:, ours], other[:, ids], atol=1e-5)
        assert torch.allclose(one.logsumexp(-1), other.logsumexp(-1), atol=1e-5)


def test_bert_classifies_the_same_and_is_fine_tuned(tmp_path, console):
    (tmp_path / "theirs").mkdir()
    split = wordpiece(tmp_path / "theirs", apart=True)
    names = {0: "good", 1: "bad", 2: "neither"}
    more = {"id2label": names, "label2id": {name: number for number, name in names.items()}}
    theirs = bert(tmp_path / "theirs", "BertForSequenceClassification", len(split), **more)
    import_model(tmp_path / "theirs", tmp_path / "ours", console)
    with torch.inference_mode():
        wanted = [theirs(torch.tensor([split(text)["input_ids"]])).logits[0].softmax(-1) for text in TEXTS]
    for each, probabilities, text in zip(Classifier(tmp_path / "ours").texts(TEXTS), wanted, TEXTS):
        if text:
            assert each.name == names[int(probabilities.argmax())]
            assert each.probability == pytest.approx(float(probabilities.max()), abs=1e-5)
    bert(tmp_path / "theirs", "BertForMaskedLM", len(split))
    import_model(tmp_path / "theirs", tmp_path / "words", console)
    lines = sentences(60, 2)
    write_lines(tmp_path / "texts", lines)
    write_lines(tmp_path / "labels", ["even" if len(line) % 2 else "odd" for line in lines])
    given = ["--train", str(tmp_path / "texts"), str(tmp_path / "labels"), "--out", str(tmp_path / "tuned")]
    limits = ["--max-steps", "2", "--threads", "1", "--data.max_length", "40"]
    assert main(["train", "--from", str(tmp_path / "words"), *given, *limits]) == 0
    assert (tmp_path / "tuned" / "subwords.json").read_bytes() == (tmp_path / "ours" / "subwords.json").read_bytes()
    assert load_any(tmp_path / "tuned").recipe.data.classes == ["even", "odd"]
    more = ["--model.kind", "encoder_only", "--train", str(tmp_path / "texts"), "--out", str(tmp_path / "further")]
    assert main(["train", "--from", str(tmp_path / "words"), *more, *limits]) == 0


def test_subwords_of_a_relative_do_not_serve_a_translator(tmp_path, console, capsys):
    (tmp_path / "theirs").mkdir()
    bert(tmp_path / "theirs", "BertForMaskedLM", len(wordpiece(tmp_path / "theirs", apart=True)))
    import_model(tmp_path / "theirs", tmp_path / "ours", console)
    pair = write_pairs(tmp_path, "train", [(line, line) for line in sentences(40, 1)])
    given = ["--tokens.ready", str(tmp_path / "ours"), "--train", *pair, "--out", str(tmp_path / "out"), "--preset", "tiny"]
    assert main(["train", *given]) == 2
    assert "which translators cannot use" in capsys.readouterr().err


def change(name, **settings):
    def act(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | settings))

    return act


def damage(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def link(name):
    def act(folder):
        (folder / name).unlink()
        (folder / name).symlink_to("/etc/passwd")

    return act


def pickled(folder):
    (folder / "model.safetensors").unlink()
    torch.save({"transformer.wte.weight": Canary(folder.parent / "sang")}, folder / "pytorch_model.bin")


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


HUGE = json.dumps({"transformer.wte.weight": {"dtype": "F32", "shape": [10 << 28], "data_offsets": [0, 10 << 30]}}).encode()
BAD = {
    "gpt2": {
        "no vocabulary": (lambda folder: (folder / "vocab.json").unlink(), "vocab.json|tokenizer"),
        "no merges": (lambda folder: (folder / "merges.txt").unlink(), "merges.txt: missing"),
        "a merge of nothing": (damage("merges.txt", b"a b c\n"), "not every merge is a pair"),
        "a merge of unknown pieces": (
            lambda folder: damage("merges.txt", (folder / "merges.txt").read_bytes() + "Ġq 日本\n".encode())(folder),
            "not in its vocabulary",
        ),
        "half of the merges": (damage("merges.txt", b"#version: 0.2\ne r\n"), "they are incomplete"),
        "merges in another encoding": (damage("merges.txt", b"\xff\xfe"), "not UTF-8"),
        "a damaged vocabulary": (damage("vocab.json", b'{"a": '), "vocab.json: damaged"),
        "ids twice": (damage("vocab.json", b'{"a": 1, "b": 1}'), "same id"),
        "ids out of bounds": (damage("vocab.json", b'{"a": 1000000000}'), "not every piece has an id"),
        "bytes that are missing": (damage("vocab.json", b'{"a": 1, "b": 2}'), "lacks 25. of the 256 bytes|not in its vocab"),
        "a link": (link("vocab.json"), "is a link"),
        "a link to weights": (link("model.safetensors"), "is a link"),
        "a link to settings": (link("config.json"), "is a link"),
        "truncated weights": (damage("model.safetensors", b"abc"), "model.safetensors: damaged"),
        "10 GB": (damage("model.safetensors", len(HUGE).to_bytes(8, "little") + HUGE), "model.safetensors: damaged"),
        "a pickle canary": (pickled, "not allowed to run"),
        "another head": (change("config.json", architectures=["GPT2ForSequenceClassification"]), "architecture is GPT2ForSeq"),
        "two reasons": (change("config.json", architectures=["X"], add_cross_attention=True), "is X.*add_cross_attention"),
        "a huge width": (change("config.json", n_embd=1 << 30), "do not fit|expected form|no model that can be built"),
        "many layers": (change("config.json", n_layer=10**9), "expected form"),
        "a huge vocabulary": (change("config.json", vocab_size=10**9), "not believable|do not fit"),
        "text for a number": (change("config.json", n_head="4"), "expected form|no model that can be built"),
        "heads that do not divide": (change("config.json", n_head=5), "do not fit"),
        "no end": (change("config.json", eos_token_id=None), "no eos_token_id"),
        "a vocabulary size of text": (change("config.json", vocab_size="400"), "vocab_size is '400'"),
        "another splitter": (
            lambda folder: (folder / "tokenizer.json").write_text(json.dumps({"pre_tokenizer": {"type": "Digits"}, "model": {}})),
            "its pre_tokenizer is Digits, not ByteLevel",
        ),
    },
    "bert": {
        "no vocabulary": (lambda folder: (folder / "vocab.txt").unlink(), "tokenizer of the expected form"),
        "no mask": (damage("vocab.txt", b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n"), r"no \[MASK\]|not believable"),
        "too many pieces": (damage("vocab.txt", b"".join(b"w%d\n" % number for number in range(900))), "has 900 pieces"),
        "pieces twice": (damage("vocab.txt", b"a\na\n"), "twice|not believable"),
        "another head": (change("config.json", architectures=["BertForQuestionAnswering"]), "is BertForQuestionAnswering"),
        "several labels": (change("config.json", problem_type="multi_label_classification"), "multi_label"),
        "relative positions": (change("config.json", position_embedding_type="relative_key"), "relative_key"),
        "a decoder": (change("config.json", is_decoder=True), "is_decoder"),
        "many labels": (change("config.json", num_labels=10**9), ""),
        "added tokens": (damage("added_tokens.json", b'{"<new>": 300}'), "1 tokens were added"),
        "a truncated file": (damage("config.json", b'{"model_type": "bert"'), "config.json"),
    },
}  # fmt: skip


@pytest.mark.parametrize(("kind", "case"), [(kind, case) for kind, cases in BAD.items() for case in cases])
def test_bad_folders_are_refused_in_one_line(kind, case, tmp_path, capsys):
    folder, (act, said) = tmp_path / "theirs", BAD[kind][case]
    folder.mkdir()
    if kind == "gpt2":
        split = byte_bpe(folder, apart=True)
        gpt2(folder, len(split), *split.convert_tokens_to_ids(["<|endoftext|>"] * 2))
    else:
        bert(folder, "BertForMaskedLM", len(wordpiece(folder, apart=True)))
    act(folder)
    capsys.readouterr()
    code = main(["import", str(folder), str(tmp_path / "ours")])
    err = capsys.readouterr().err
    assert not (tmp_path / "sang").exists()
    if not said:
        assert code == 0
        return
    assert code == 2, err
    assert err.count("\n") == 1, err
    assert re.search(said, err), err
    assert not (tmp_path / "ours").exists()
