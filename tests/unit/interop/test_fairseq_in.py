"""Checkpoints in fairseq's layout come in: the logits are those of `transformers`' port of fairseq (FSMT) with the same weights."""

import argparse
import enum
import os

import pytest
import sentencepiece
import torch

from marian_models import learn, sentences
from undivided.artifact import load_artifact
from undivided.core.errors import InputError
from undivided.core.ids import BOS
from undivided.interop.door import import_model, read_model
from undivided.interop.torch_file import Inert, read_checkpoint

transformers = pytest.importorskip("transformers")


class Strange(enum.Enum):
    """What newer versions keep in a checkpoint: an object of a class that is not known elsewhere."""

    YES = 1


def make_fairseq(folder, *, shared=True, cfg=False, **changes):
    folder.mkdir()
    lines = sentences(400, 1), [line.upper() for line in sentences(400, 2)]
    models = [learn(lines[0] + lines[1], size=120)] * 2 if shared else [learn(each) for each in lines]
    sizes = []
    for model, language, name in zip(models, ("en", "xx"), ("source.spm", "target.spm")):
        processor = sentencepiece.SentencePieceProcessor(model_proto=model)
        # Their dictionaries are sorted by count and lack pieces that no text had.
        pieces = [processor.id_to_piece(token) for token in range(3, len(processor) - 4)]
        (folder / f"dict.{language}.txt").write_text("".join(f"{piece} {900 - at}\n" for at, piece in enumerate(pieces)))
        (folder / name).write_bytes(model)
        sizes.append(4 + len(pieces))
    config = transformers.FSMTConfig(
        langs=["en", "xx"], src_vocab_size=sizes[0], tgt_vocab_size=sizes[1], d_model=32, encoder_layers=2, decoder_layers=2,
        encoder_ffn_dim=48, decoder_ffn_dim=48, encoder_attention_heads=4, decoder_attention_heads=4, scale_embedding=True,
        max_position_embeddings=128, tie_word_embeddings=shared, activation_function="relu",
    )  # fmt: skip
    torch.manual_seed(3)
    theirs = transformers.FSMTForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "embed_positions" not in name:
                parameter.normal_(0, 0.25)
        if shared:
            theirs.model.encoder.embed_tokens.weight.copy_(theirs.model.decoder.embed_tokens.weight)
    state = {name.removeprefix("model."): value for name, value in theirs.state_dict().items() if "embed_positions" not in name}
    settings = {
        "arch": "transformer_iwslt_de_en", "encoder_embed_dim": 32, "decoder_embed_dim": 32, "encoder_ffn_embed_dim": 48,
        "decoder_ffn_embed_dim": 48, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_layers": 2,
        "decoder_layers": 2, "encoder_normalize_before": False, "decoder_normalize_before": False, "activation_fn": "relu",
        "encoder_learned_pos": False, "decoder_learned_pos": False, "source_lang": "en", "target_lang": "xx", "dropout": 0.3,
    } | changes  # fmt: skip
    names = argparse.Namespace(**settings)
    known = {"cfg": {"model": names, "task": {"source_lang": "en"}, "odd": Strange.YES}} if cfg else {"args": names}
    torch.save(known | {"model": state, "optimizer_history": [{"lr": 1.0}], "extra_state": {"epoch": 3}}, folder / "checkpoint.pt")
    return theirs


@pytest.mark.parametrize("options", [{}, {"shared": False, "cfg": True}], ids=["args, shared", "cfg, separate"])
def test_logits_are_those_of_the_port(options, tmp_path):
    theirs = make_fairseq(tmp_path / "theirs", **options)
    found = read_model(tmp_path / "theirs")
    source, target = found.vocabularies
    rows, kept = torch.tensor(target.rows), torch.tensor([not masked for masked in target.masked])
    for row in found.tokenizer.source.encode(sentences(8, 3)):
        read = [BOS, *range(5, 25)]
        with torch.inference_mode():
            ours = found.model.logits(found.model.decode(found.model.encode(torch.tensor([row]), None), torch.tensor([read])))[0]
            given = {"input_ids": torch.tensor([[source.rows[token] for token in row]]), "decoder_input_ids": rows[read][None]}
            other = theirs(**given, use_cache=False).logits[0]
        assert torch.allclose(ours[:, kept], other[:, rows[kept]], atol=1e-4)


def test_the_folder_is_a_model_folder(tmp_path, console):
    make_fairseq(tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "ours", console, "mit")
    assert load_artifact(tmp_path / "ours").facts["origin"]["format"] == "fairseq"


class Canary:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (os.mkdir, (str(self.path),))


def test_objects_of_unknown_classes_are_data(tmp_path):
    torch.save({"model": {"a": torch.ones(2)}, "args": Canary(tmp_path / "sang")}, tmp_path / "a.pt")
    tensors, whole = read_checkpoint(tmp_path / "a.pt", "model")
    assert tensors["a"].tolist() == [1, 1]
    assert isinstance(whole["args"], Inert)
    assert not (tmp_path / "sang").exists()


def test_what_cannot_be_expressed_is_refused_with_every_reason(tmp_path, console):
    make_fairseq(tmp_path / "theirs", decoder_ffn_embed_dim=7, activation_fn="tanh", layernorm_embedding=True)
    with pytest.raises(InputError, match=r"ffn_embed_dim 7 differ.*'tanh'.*layernorm_embedding") as raised:
        import_model(tmp_path / "theirs", tmp_path / "ours", console)
    assert "\n" not in str(raised.value)
    assert not (tmp_path / "ours").exists()


def test_other_checkpoints_are_refused_with_the_reason(tmp_path, console):
    (tmp_path / "theirs").mkdir()
    torch.save({"model": {}, "generator": {}, "opt": None}, tmp_path / "theirs" / "model.pt")
    (tmp_path / "theirs" / "sentencepiece.model").touch()
    with pytest.raises(InputError, match=r"neither a checkpoint of OpenNMT-py .* nor, with its dict.LANGUAGE.txt, of fairseq"):
        import_model(tmp_path / "theirs", tmp_path / "ours", console)
