"""Subword models of other programs: taken as they are, their special ids put into our places; nothing is lost."""

import io

import pytest
import sentencepiece

from samples import sentences, tiny_recipe, write_pairs
from undivided import InputError, Translator
from undivided.core.console import Console
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.foreign_subwords import adopt_model
from undivided.data.subwords import Subwords
from undivided.training.loop import train

TEXTS = [text for pair in sentences(300) for text in pair]


def learn(**flags):
    model = io.BytesIO()
    settings = {"vocab_size": 120, "model_type": "bpe", "minloglevel": 2} | flags
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(TEXTS), model_writer=model, **settings)
    return model.getvalue()


@pytest.mark.parametrize(
    "flags",
    [
        {},
        {"model_type": "unigram", "vocab_size": 90},
        {"pad_id": 3, "user_defined_symbols": ["<sep>"]},
        {"unk_id": 3, "bos_id": -1, "eos_id": 0, "pad_id": 1, "unk_piece": "<UNK>"},
        {"byte_fallback": True, "vocab_size": 350},
    ],
    ids=str,
)
def test_the_same_subwords_with_our_special_ids(flags):
    theirs, ours = learn(**flags), adopt_model(learn(**flags))
    before, after = sentencepiece.SentencePieceProcessor(model_proto=theirs), Subwords(ours)
    processor = sentencepiece.SentencePieceProcessor(model_proto=ours)
    assert [processor.pad_id(), processor.unk_id(), processor.bos_id(), processor.eos_id()] == [PAD, UNK, BOS, EOS]
    for text in TEXTS[:50]:
        (row,) = after.encode([text])
        assert after.pieces(row[:-1]) == before.encode(text, out_type=str)
        assert row[-1] == EOS
        assert after.decode([row]) == [text]
    assert after.decode(after.encode(["東京 ▁ 🏳"])) == ["東京 ▁ 🏳"], "bytes for what the vocabulary lacks"


def test_ours_stay_as_they_are(translator):
    model = translator.artifact.tokenizer.source.model
    assert adopt_model(model) == model


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"split_by_whitespace": False}, "--split_by_whitespace=true"),
        ({"treat_whitespace_as_suffix": True}, "--treat_whitespace_as_suffix=false"),
        ({"add_dummy_prefix": False}, "--add_dummy_prefix=true"),
    ],
)
def test_what_cannot_be_is_said_with_the_flags_that_would_make_it(flags, said):
    with pytest.raises(InputError, match=f"train it with {said}"):
        adopt_model(learn(**flags))


def test_damage_is_said():
    model = learn()
    for broken in (b"", b"hello", model[: len(model) // 2], bytes(100), b"\xff" * 50):
        with pytest.raises(InputError, match=r"not a model of sentencepiece|damaged"):
            Subwords(adopt_model(broken))


def test_a_file_is_named_for_training(tmp_path):
    (tmp_path / "own.model").write_bytes(learn())
    values = tiny_recipe(tmp_path / "m", write_pairs(tmp_path, "train", sentences(60)))
    values["train"]["max_steps"] = 1
    values["tokens"] = {"ready": str(tmp_path / "own.model")}
    folder = train(values, Console(quiet=True))
    assert len(Translator(folder, engine="torch").artifact.tokenizer.source) > 120
    values["train"]["out"] = str(tmp_path / "two")
    (tmp_path / "other.model").write_bytes(learn(vocab_size=110))
    values["tokens"] = {"ready": f"{tmp_path / 'own.model'},{tmp_path / 'other.model'}"}
    with pytest.raises(InputError, match=r"set tokens\.joint to false"):
        train(values, Console(quiet=True))
    values["tokens"]["joint"] = False
    assert not Translator(train(values, Console(quiet=True)), engine="torch").artifact.tokenizer.joint
    values["tokens"] = {"ready": str(tmp_path / "none.model")}
    values["train"]["out"] = str(tmp_path / "three")
    with pytest.raises(InputError, match="no such file or folder"):
        train(values, Console(quiet=True))
