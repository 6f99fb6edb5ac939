import math

import pytest
import sacrebleu
import sacremoses
import torch

from samples import sentences, write_lines
from undivided.core.errors import InputError
from undivided.data.text_files import read_lines
from undivided.inference import score as scoring
from undivided.inference.score import bleu, moses_bleu, perplexity, score

HYPOTHESES = ["Der Hund läuft im Regen.", "Ein alter Mann sitzt auf der Bank.", "Das ist gut!"]
REFERENCES = ["Der Hund läuft durch den Regen.", "Ein alter Mann sitzt auf einer Bank.", "Das ist gut!"]
SECOND = ["Im Regen läuft der Hund.", "Ein Greis sitzt auf der Bank.", "Gut so!"]


@pytest.mark.parametrize("references", [[REFERENCES], [REFERENCES, SECOND]], ids=["one reference", "two"])
def test_scores_are_sacrebleus(references):
    ours = {result.name: result.score for result in score(HYPOTHESES, *references)}
    assert ours == {
        "BLEU": sacrebleu.corpus_bleu(HYPOTHESES, references).score,
        "chrF2": sacrebleu.corpus_chrf(HYPOTHESES, references).score,
        "TER": sacrebleu.corpus_ter(HYPOTHESES, references).score,
    }


def test_signatures_let_others_reproduce_them():
    results = {result.name: result for result in score(HYPOTHESES, REFERENCES)}
    assert "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:" in results["BLEU"].signature
    assert results["chrF2"].signature.startswith("nrefs:1|")
    assert str(results["BLEU"]) == f"BLEU {results['BLEU'].score:.2f} {results['BLEU'].signature}"
    assert bleu(HYPOTHESES, REFERENCES) == results["BLEU"]


@pytest.mark.parametrize("lang", ["", "de", "zh", "ja", "ko"])
def test_every_language_can_be_scored(lang):
    """sacreBLEU would ask for a Japanese or Korean tokeniser that is not installed."""
    assert bleu(["안녕 세계"] * 4, ["안녕 세계"] * 4, lang).signature


def test_unequal_counts_are_refused():
    with pytest.raises(InputError, match="3 translations but 2 references"):
        score(HYPOTHESES, REFERENCES[:2])
    with pytest.raises(InputError, match="nothing to score"):
        score([], [])


def test_moses_bleu():
    tokenise = sacremoses.MosesTokenizer("de").tokenize
    prepare = lambda lines: [tokenise(line, escape=False, return_str=True).lower() for line in lines]  # noqa: E731
    expected = sacrebleu.corpus_bleu(prepare(HYPOTHESES), [prepare(REFERENCES)], tokenize="none", force=True)
    result = moses_bleu(HYPOTHESES, REFERENCES, "de")
    assert result.score == expected.score
    assert "tok:none" in result.signature
    assert "lowercased" in result.signature


def test_perplexity_is_forced_decoding(translator):
    pairs = sentences(7, seed=5)
    sources, targets = [source for source, _ in pairs], [target for _, target in pairs]
    model, tokenizer = translator.artifact.model, translator.artifact.tokenizer
    total = tokens = 0.0
    for source, target in pairs:
        src, tgt = torch.tensor(tokenizer.source.encode([source])), tokenizer.target.encode([target])[0]
        with torch.no_grad():
            states = model.decode(model.encode(src, None), torch.tensor([[2, *tgt[:-1]]]))
            rows = model.logits(states)[0].log_softmax(dim=-1)
        total, tokens = total + sum(float(rows[at, token]) for at, token in enumerate(tgt)), tokens + len(tgt)
    assert perplexity(translator, sources, targets) == pytest.approx(math.exp(-total / tokens), rel=1e-4)
    assert [len(row) for row in translator.score(sources, targets)] == [len(row) for row in tokenizer.target.encode(targets)]


def test_read_lines_names_the_bad_line(tmp_path):
    path = write_lines(tmp_path / "a", ["one", "two\u2028still two"])
    assert read_lines(path) == ["one", "two\u2028still two"]
    path.write_bytes(b"fine\n\xff\n")
    with pytest.raises(InputError, match="line 2: not valid UTF-8"):
        read_lines(path)


def test_bleu_over_characters_is_said_once(monkeypatch, caplog):
    """Where the tokeniser of a language is not installed."""

    def missing(*arguments, trg_lang="", **more):
        if trg_lang:
            raise RuntimeError("MeCab is not installed")
        return sacrebleu.BLEU(*arguments, **more)

    monkeypatch.setattr(scoring, "BLEU", missing)
    scoring._warn_of_characters.cache_clear()
    assert "tok:char" in bleu(["東京"], ["東京"], "ja").signature
    assert "tok:char" in bleu(["東京"], ["東京"], "ja").signature
    assert [record.getMessage().partition(",")[0] for record in caplog.records] == ["BLEU of 'ja' is measured over characters"]
