"""Terms that are trained in: words of the source with their translation beside them, and models that obey it."""

import random
import re

import pytest
import torch

from samples import sentences, tiny_recipe, write_pairs
from undivided import Translator
from undivided.config import CorpusFiles, DataConfig, SearchConfig, TokensConfig, build_recipe
from undivided.core.console import Console
from undivided.core.errors import InputError
from undivided.core.ids import EOS, RESERVED, TERM_MARKS
from undivided.data.batches import make_batch
from undivided.data.corpus import Pair
from undivided.data.subwords import LEAST_PROTECTED, Tokenizer
from undivided.formats.terms import Glossary, Term, annotate, share_stem
from undivided.inference.search import search
from undivided.models import make_model
from undivided.nn.loss import smoothed_loss
from undivided.training.loop import train
from undivided.training.protection import ANNOTATED, ONE_IN, annotate_pair, make_masker
from undivided.training.schedule import learning_rate, make_optimizer

BEGIN, END = TERM_MARKS


def test_a_source_is_annotated_with_the_base_of_its_translation():
    words = {"house": {"haus", "hauses", "häuser"}}
    found = annotate_pair("The roof of the house.", "Das Dach des Hauses.", words, 0)
    assert found == f"The roof of the house {BEGIN} Haus {END}."
    assert annotate_pair("Nothing here.", "Hier ist nichts.", words, 0) == "Nothing here."


def test_a_part_of_the_pairs_is_annotated_and_none_without_the_option(tmp_path):
    names = [(f"thing{first}{second}", f"ding{first}{second}") for first in "abcdef" for second in "ghijk"]
    pairs = [
        (f"The dog sees {ours} {number}.", f"Der Hund sieht {theirs} {number}.") for number in range(20) for ours, theirs in names
    ]
    files = CorpusFiles(*write_pairs(tmp_path, "train", pairs))
    given = [Pair(number, *pair) for number, pair in enumerate(pairs, 1)]
    rewrite, plain = (make_masker([files], DataConfig(), (), RESERVED, terms) for terms in (True, False))
    marked = [rewrite(pair) for pair in given]
    assert not any(BEGIN in source for source, _ in map(plain, given))
    with_terms = [(source, target) for source, target in marked if BEGIN in source]
    assert 0.5 < len(with_terms) / len(pairs) * ONE_IN / len(ANNOTATED) < 1.5
    for source, target in with_terms:
        for ours, theirs in re.findall(rf"(\w+) {BEGIN} (\w+) {END}", source):
            assert theirs == ours.replace("thing", "ding")
            assert theirs in target
        assert BEGIN not in target


def test_what_counts_as_a_form():
    glossary = Glossary([Term("house", "Haus"), Term("fast train", "schneller Zug")])
    assert glossary.find_missed("The house", "des Hauses", may_inflect=True) == []
    assert glossary.find_missed("a fast train", "mit schnellem Zug", may_inflect=True) == []
    assert [term.source for term in glossary.find_missed("a fast train", "mit schnellem Zug")] == ["fast train"]
    assert glossary.find_missed("a fast train", "mit Zug", may_inflect=True) != []
    assert not share_stem("haus", "haustürschlüssel")
    assert glossary.annotate("My House!") == f"My House {BEGIN} Haus {END}!"


WORDS = 12
OTHER = WORDS
"""Words of the source are 0 … 11, those of the target 12 … 23; word n is usually translated into n + 12."""


def spoken(chance, annotated, unseen):
    """A row of words, and its translation. A pair of word and term that is `unseen` occurs in no training."""
    source, target = list[str](), list[str]()
    for word in chance.sample(range(WORDS), chance.randint(2, 4)):
        usual = term = word + OTHER
        if annotated and chance.random() < 0.5:
            while True:
                term = OTHER + chance.randrange(WORDS)
                if ((word + term) % 5 == 0) == unseen and term != usual:
                    break
            source.append(f"{word} {BEGIN} {term} {END}")
        else:
            source.append(str(word))
        target.append(str(term))
    return " ".join(source), " ".join(target)


IDS = {name: EOS + 1 + number for number, name in enumerate([BEGIN, END, *map(str, range(2 * WORDS))])}


def encode(text):
    return [*(IDS[word] for word in text.split()), EOS]


def test_a_model_learns_to_put_the_term_that_it_is_given():
    """Also one that it has never seen given for that word; words without a term get their usual translation."""
    torch.manual_seed(1)
    recipe = build_recipe({
        "model": {"d_model": 48, "d_ff": 96, "n_heads": 4, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.0},
        "train": {"schedule": "cosine", "rate": 0.005, "warmup_steps": 30, "max_steps": 250, "clip": 1.0},
    })  # fmt: skip
    size = EOS + 1 + len(IDS)
    model, chance = make_model(recipe.model, size, size).train(), random.Random(1)
    optimizer = make_optimizer(model, recipe.train)
    for step in range(1, recipe.train.max_steps + 1):
        rows = [spoken(chance, number % 2 == 0, unseen=False) for number in range(48)]
        batch = make_batch([encode(source) for source, _ in rows], [encode(target) for _, target in rows])
        states = model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)
        loss, _ = smoothed_loss(states, model.output_weight, batch.tgt_out, 0.0)
        optimizer.zero_grad()
        (loss / 200).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(step, recipe.train, recipe.model.d_model)
        optimizer.step()
    model.eval()
    tests = [spoken(random.Random(1000 + number), True, unseen=True) for number in range(200)]
    assert sum(BEGIN in source for source, _ in tests) > 100
    found = search(model, [encode(source) for source, _ in tests], SearchConfig(beam_size=1), torch.device("cpu"))
    obeyed, given, usual, plain = 0, 0, 0, 0
    for hypotheses, (source, target) in zip(found, tests):
        tokens = hypotheses[0].tokens
        for place, word in enumerate(re.findall(rf"\b\d+\b(?: {BEGIN})?(?! {END})", source)):
            is_right = tokens[place : place + 1] == encode(target)[place : place + 1]
            given, obeyed = given + (BEGIN in word), obeyed + (BEGIN in word and is_right)
            plain, usual = plain + (BEGIN not in word), usual + (BEGIN not in word and is_right)
    # A model that does not look at what it is given obeys none of these; one that only copies gets no other word right.
    assert obeyed >= 0.75 * given
    assert usual >= 0.7 * plain


def test_a_translator_gives_the_terms_of_its_glossary_to_such_a_model(tmp_path, monkeypatch):
    recipe = tiny_recipe(tmp_path / "model", write_pairs(tmp_path, "train", sentences(200)))
    recipe["tokens"] = {"vocab_size": LEAST_PROTECTED, "terms": True}
    recipe["train"]["max_steps"] = 2
    train(recipe, Console(quiet=True))
    glossary = Glossary([Term("dog", "Köter")])
    translator = Translator(tmp_path / "model", engine="torch", threads=1, glossary=glossary)
    given = []
    monkeypatch.setattr(
        translator.engine,
        "search",
        lambda sources, *rest, search=translator.engine.search: given.extend(sources) or search(sources, *rest),
    )
    (result,) = translator.stream(["The dog sees %s."])
    assert result.source == "The dog sees %s."
    assert "Köter" in result.text, "by the second try at the latest"
    assert result.text.count("%s") == 1
    assert not any(mark in result.text for mark in TERM_MARKS)
    read = translator.artifact.tokenizer.source.decode(given[:1])[0]
    assert f"dog {BEGIN} Köter {END} sees" in " ".join(read.split())
    with pytest.raises(InputError, match=r"tokens\.terms"):
        train({**recipe, "tokens": {"vocab_size": 320, "terms": True}, "train": {**recipe["train"], "out": str(tmp_path / "b")}})


def test_marks_are_subwords_only_where_they_are_asked_for():
    pairs = sentences(50)
    marked, plain = (
        Tokenizer.learn(lambda: pairs, TokensConfig(vocab_size=LEAST_PROTECTED, terms=terms), 50, 1, protect=True)
        for terms in (True, False)
    )
    text = annotate("The dog", Glossary([Term("dog", "Hund")]).find("The dog")[0][:1])
    assert len(set(marked.source.encode([text])[0])) <= len(plain.source.encode([text])[0])
    assert marked.source.has_term_marks
    assert not plain.source.has_term_marks
    assert marked.symbols == plain.symbols == RESERVED
