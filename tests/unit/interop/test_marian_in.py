"""Marian folders of `transformers` come in: the same ids, logits and translations."""

import itertools

import pytest
import torch

from marian_models import make_marian, sentences
from undivided.artifact import load_artifact
from undivided.cli import main
from undivided.config import SearchConfig
from undivided.core.console import Console
from undivided.core.ids import BOS, EOS
from undivided.inference.search import search
from undivided.interop.door import import_model, read_model

CONFIGURATIONS = {
    "shared": {},
    "separate": {"separate": True},
    "untied": {"tied": False},
    "relu, unscaled, bpe": {"activation": "relu", "scale": False, "kind": "bpe"},
    "multilingual": {"languages": ("deu", "fra")},
    "a checkpoint of PyTorch": {"activation": "gelu", "binary": True},
}


@pytest.fixture(params=CONFIGURATIONS, scope="module")
def pair(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian") / "theirs"
    theirs = make_marian(folder, **CONFIGURATIONS[request.param])
    return folder, theirs, read_model(folder), CONFIGURATIONS[request.param]


def tokenizer_of(folder):
    from transformers import MarianTokenizer

    return MarianTokenizer.from_pretrained(folder)


def texts(options, count):
    # Capitals stand in the vocabulary, but not in the sentencepiece model of the source: they are known by name.
    lines = [*sentences(count - 3, 5), "Unknown: Ж  and ▁ spaces", "Ümläute!", "R ver I RIVER THE dog"]
    return [f">>deu<< {line}" for line in lines] if options.get("languages") else lines


def test_text_becomes_their_ids(pair):
    folder, _, found, options = pair
    tokenizer = tokenizer_of(folder)
    for line in texts(options, 40):
        ours = [found.vocabularies[0].rows[token] for token in found.tokenizer.source.encode([line])[0]]
        assert ours == tokenizer(line).input_ids


def test_logits_are_theirs(pair):
    _folder, theirs, found, options = pair
    source, target = found.vocabularies
    rows = torch.tensor(target.rows)
    kept = torch.tensor([not each for each in target.masked])
    for line in texts(options, 12):
        src = found.tokenizer.source.encode([line])[0]
        read = [BOS, *range(5, 25)]
        with torch.inference_mode():
            ours = found.model.logits(found.model.decode(found.model.encode(torch.tensor([src]), None), torch.tensor([read])))[0]
            inputs = torch.tensor([[source.rows[token] for token in src]]), rows[torch.tensor([read])]
            other = theirs(input_ids=inputs[0], decoder_input_ids=inputs[1]).logits[0]
        assert torch.allclose(ours[:, kept], other[:, rows[kept]], atol=1e-5)
        # What they cannot write has no probability here either.
        assert float(ours.softmax(dim=-1)[:, ~kept].max()) == 0


@pytest.mark.filterwarnings("ignore")
def test_beams_are_those_of_generate(pair):
    """200 sentences; those of one length together, for `generate` has one limit for all."""
    _folder, theirs, found, options = pair
    source, target = found.vocabularies
    sources = sorted(found.tokenizer.source.encode(texts(options, 200)), key=len)
    config = SearchConfig(beam_size=4, length_penalty=1.0, length_norm="length", max_extra=8)
    ours = iter(search(found.model, sources, config, torch.device("cpu")))
    never = [[theirs.config.pad_token_id], [1]]
    for length, rows in itertools.groupby(sources, len):
        inputs = torch.tensor([[source.rows[token] for token in row] for row in rows])
        limit = {"max_new_tokens": length - 1 + 8, "num_beams": 4, "length_penalty": 1.0}
        with torch.inference_mode():
            others = theirs.generate(inputs, attention_mask=torch.ones_like(inputs), bad_words_ids=never, **limit)
        for other in others.tolist():
            best = next(ours)[0]
            ids = [target.rows[token] for token in [*best.tokens, *([EOS] if best.finished else [])]]
            assert ids == [token for token in other[1:] if token != theirs.config.pad_token_id]
    assert next(ours, None) is None


def test_the_folder_is_a_model_folder_like_any_other(tmp_path, console):
    make_marian(tmp_path / "theirs")
    (tmp_path / "theirs" / "README.md").write_text("---\nlicense: cc-by-4.0\n---\n# A model\n")
    import_model(tmp_path / "theirs", tmp_path / "ours", console)
    loaded = load_artifact(tmp_path / "ours")
    assert loaded.facts["parity"]["largest_logit_difference"] < 1e-4
    assert loaded.facts["license"] == "cc-by-4.0"
    card = (tmp_path / "ours" / "README.md").read_text()
    assert "Imported by undivided from `theirs`" in card
    assert "cc-by-4.0" in card


def test_the_target_language_of_a_multilingual_model_is_chosen(tmp_path, capsys):
    make_marian(tmp_path / "theirs", languages=("deu", "fra"))
    chosen = import_model(tmp_path / "theirs", tmp_path / "fra", Console(), target_lang="fra")
    free = import_model(tmp_path / "theirs", tmp_path / "any", Console())
    assert "it translates into several languages (deu, fra): import it with --target-lang CODE" in capsys.readouterr().err
    texts = ["The dog.", ">>deu<< The dog."]
    assert load_artifact(tmp_path / "fra").tokenizer.source.encode(texts) == free.tokenizer.source.encode(
        [">>fra<< The dog.", texts[1]]
    )
    assert chosen.recipe.data.target_lang == "fra"
    assert main(["import", str(tmp_path / "theirs"), str(tmp_path / "no"), "--target-lang", "ita"]) == 2
    assert "'ita': the model has no such target language; known: deu, fra" in capsys.readouterr().err
    assert not (tmp_path / "no").exists()
