"""Translators go out as Marian: `transformers` loads them and computes the same; out, in and out again changes nothing."""

import pytest
import torch
from safetensors.torch import load_file

from marian_models import make_marian, sentences
from undivided.artifact import Artifact, save_artifact
from undivided.cli import main
from undivided.config import SearchConfig, build_recipe
from undivided.config.settings import nest_values
from undivided.core.errors import InputError
from undivided.data.subwords import Tokenizer
from undivided.inference.search import search
from undivided.interop import marian_out
from undivided.interop.door import import_model
from undivided.interop.export import export_model
from undivided.models import make_model

SMALL = {"model.d_model": 32, "model.d_ff": 48, "model.n_heads": 4, "model.encoder_layers": 2, "model.decoder_layers": 2}
KINDS = {
    "paper": {},
    "pre-norm": {"model.norm": "pre", "model.positions": "halves"},
    "pre-norm, alternating": {"model.norm": "pre"},
    "learned positions": {"model.positions": "learned", "model.max_positions": 64},
    "untied": {"model.tie": "none", "model.activation": "gelu_tanh"},
    "separate": {"model.tie": "target", "tokens.joint": False},
}


def make_translator(folder, settings):
    recipe = build_recipe(nest_values(SMALL | {"tokens.vocab_size": 330} | settings))
    pairs = [(line, line.upper()) for line in sentences(300, 1)]
    tokenizer = Tokenizer.learn(lambda: iter(pairs), recipe.tokens, len(pairs), 1)
    torch.manual_seed(2)
    model = make_model(recipe.model, len(tokenizer.source), len(tokenizer.target))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn_like(parameter)
    model.eval()
    artifact = Artifact(recipe, tokenizer, model)
    save_artifact(artifact, folder)
    return artifact


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_transformers_translates_as_we_do(kind, tmp_path, console):
    from transformers import AutoModelForSeq2SeqLM, MarianTokenizer

    ours = make_translator(tmp_path / "ours", KINDS[kind])
    export_model(tmp_path / "ours", tmp_path / "theirs", "marian", console)
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "theirs")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "theirs")
    assert type(theirs).__name__ == ("PegasusForConditionalGeneration" if "pre" in kind else "MarianMTModel")
    for line in sentences(4, 9):
        for beams in (1, 4):
            config = SearchConfig(beam_size=beams, length_penalty=1.0, length_norm="length", max_extra=20)
            row = ours.tokenizer.source.encode([line])
            best = search(ours.model, row, config, torch.device("cpu"))[0][0]
            found = theirs.generate(
                **tokenizer(line, return_tensors="pt"), num_beams=beams, length_penalty=1.0, max_new_tokens=len(row[0]) + 19
            )
            assert [tokenizer.decode([token]) for token in found[0][1:] if token not in (0, theirs.config.pad_token_id)] == [
                tokenizer.decode([tokenizer.target_encoder[piece] if kind in ("separate", "untied") else tokenizer.encoder[piece]])
                for piece in ours.tokenizer.target.pieces(best.tokens)
            ]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("separate", [False, True])
def test_out_in_and_out_again_changes_no_weight(separate, tmp_path, console):
    make_marian(tmp_path / "theirs", separate=separate)
    import_model(tmp_path / "theirs", tmp_path / "ours", console)
    export_model(tmp_path / "ours", tmp_path / "out", "marian", console)
    import_model(tmp_path / "out", tmp_path / "in", console)
    export_model(tmp_path / "in", tmp_path / "again", "marian", console)
    first, again = (load_file(tmp_path / name / "model.safetensors") for name in ("out", "again"))
    assert first.keys() == again.keys()
    assert all(torch.equal(first[name], again[name]) for name in first)
    theirs = load_file(tmp_path / "theirs" / "model.safetensors")
    layer = "model.decoder.layers.1.encoder_attn.v_proj.weight"
    assert torch.equal(theirs[layer], first[layer])
    assert (tmp_path / "out" / "vocab.json").read_bytes() == (tmp_path / "again" / "vocab.json").read_bytes()


def test_what_marian_cannot_express_is_refused_with_every_reason(tmp_path, console):
    make_translator(tmp_path / "ours", {"model.window": 4, "model.activation": "swiglu", "model.join_positions": "concatenate"})
    with pytest.raises(InputError, match=r"window.*join_positions.*swiglu"):
        export_model(tmp_path / "ours", tmp_path / "out", "marian", console)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_computes_something_else_fails_and_leaves_nothing(tmp_path, monkeypatch, capsys):
    make_translator(tmp_path / "ours", {})
    monkeypatch.setattr(marian_out, "_reorder", lambda layer, halves: layer)
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "out"), "--to", "marian"]) == 1
    assert "transformers computes something else: sample sentence 1, step 1: logits differ by" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]


def test_a_vocabulary_that_splits_text_in_another_way_fails(tmp_path, monkeypatch, capsys):
    make_translator(tmp_path / "ours", {})
    write = marian_out._write

    def swapped(path, value):
        words = [word for word in value if len(word) > 1 and word.startswith("▁")]
        other = dict(zip(words, [value[word] for word in reversed(words)]))
        write(path, value | other if path.name == "vocab.json" else value)

    monkeypatch.setattr(marian_out, "_write", swapped)
    assert main(["export", str(tmp_path / "ours"), str(tmp_path / "out"), "--to", "marian"]) == 1
    assert "MarianTokenizer splits text in another way: sample sentence" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["ours"]
