"""Reserved symbols for what must not be translated: learned, masked, decoded again where one is lost, put back."""

import dataclasses
import json

import pytest

from samples import sentences, tiny_recipe, write_pairs
from undivided import Translator
from undivided.cli import main
from undivided.config import CorpusFiles, DataConfig, TokensConfig
from undivided.core.console import Console
from undivided.core.ids import EOS, RESERVED
from undivided.data.corpus import Pair
from undivided.data.subwords import LEAST_PROTECTED, Tokenizer
from undivided.formats.markup import Link, Span
from undivided.formats.memory import Memory
from undivided.formats.protection import Masked, check_protected, find_agreed, mask, mask_pair
from undivided.formats.terms import Glossary, Term
from undivided.inference.forcing import first_lost, prefix_with
from undivided.inference.report import open_account
from undivided.inference.restoration import each_once, has_each_once, is_nested, restore
from undivided.inference.translation import Translation
from undivided.training.loop import train
from undivided.training.protection import ONE_IN, make_masker

NASTY = [
    "The %s sees {name} at https://example.org/a?b=1 today.",
    "The dog likes <b>the house</b> again, 12.5 cm.",
    "My bird \\n finds %1$s and %1$s in 2026-01-02.",
    " ".join(f"the {{item{number}}} dog" for number in range(11)) + ".",
    "A cat " + " ".join(f"%{number}" for number in range(1, 21)) + " hears a tree.",
    "%s: {name} 😀",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model with symbols that has learned next to nothing: it copies nothing by itself."""
    home = tmp_path_factory.mktemp("protected")
    recipe = tiny_recipe(home / "model", write_pairs(home, "train", sentences(300)))
    recipe["tokens"]["vocab_size"] = LEAST_PROTECTED
    recipe["train"]["max_steps"] = 3
    train(recipe, Console(quiet=True))
    return home / "model"


def test_new_models_reserve_symbols_and_small_vocabularies_do_not():
    pairs = sentences(50)
    protected = Tokenizer.learn(lambda: pairs, TokensConfig(vocab_size=LEAST_PROTECTED), 50, 1, protect=True)
    assert protected.symbols == RESERVED
    row = protected.source.encode([f"The ({RESERVED[3]}), {RESERVED[11]}dog."])[0]
    assert [token for token in row if token in protected.source.symbols.values()] == [
        protected.source.symbols[RESERVED[3]],
        protected.source.symbols[RESERVED[11]],
    ]
    assert protected.source.decode([row]) == [f"The ({RESERVED[3]}), {RESERVED[11]}dog."]
    for config, protect in ((TokensConfig(vocab_size=LEAST_PROTECTED), False), (TokensConfig(vocab_size=300), True)):
        assert Tokenizer.learn(lambda: pairs, config, 50, 1, protect=protect).symbols == ()


@pytest.mark.parametrize("engine", ["torch", "ctranslate2"])
def test_everything_protected_comes_out_once_even_of_a_model_that_copies_nothing(folder, engine):
    translator = Translator(folder, engine=engine, threads=1)
    results = list(translator.stream(NASTY))
    assert [check_protected(each.source, each.text) for each in results] == [[] for _ in NASTY]
    assert not any(symbol in each.text for each in results for symbol in RESERVED)
    assert [each.source for each in results] == NASTY
    assert results[-1].text == NASTY[-1]
    assert not any(translator.judge(each).name == "placeholder-lost" for each in results)


def test_n_best_prefixes_and_scores_know_the_symbols(folder):
    translator = Translator(folder, engine="torch", threads=1)
    best = translator.translate(NASTY[0], n_best=3, beam_size=3)
    assert len(best) == 3
    assert check_protected(NASTY[0], best[0]) == []
    (found,) = translator.stream([NASTY[0]], prefixes=["der %s"])
    assert found.text.startswith("der %s")
    assert found.text.count("%s") == 1
    masked, plain = (translator.score([source], [f"{source} x"])[0] for source in ("a %s", "a cat"))
    assert len(masked) == len(plain) + 1  # the space before a symbol is a subword of its own
    assert translator.split("The %s. The {x}.") != []


def test_a_lost_symbol_is_flagged_where_it_cannot_be_found(folder, monkeypatch):
    translator = Translator(folder, engine="torch", threads=1)
    monkeypatch.setattr(Translator, "_find_lost", lambda *_: {})
    verdicts = [translator.judge(each).name for each in translator.stream(NASTY[:4])]
    assert set(verdicts) <= {"placeholder-lost", "looped", "truncated", "length-ratio"}
    assert "placeholder-lost" in verdicts or "looped" in verdicts


def test_a_pair_is_masked_where_both_sides_agree():
    source, target = "Open %s and %s in {x}, 5 km.", "In {x} 3 Meilen %s öffnen, und %s."
    links = find_agreed(source, target)
    assert [(ours.text, theirs.text) for ours, theirs in links] == [("%s", "%s"), ("%s", "%s"), ("{x}", "{x}")]
    masked = mask_pair(source, target, links, RESERVED)
    symbols = [[symbol for symbol in RESERVED if symbol in side] for side in masked]
    assert symbols[0] == symbols[1]
    assert len(symbols[0]) == 3
    assert "5 km" in masked[0]
    assert "3 Meilen" in masked[1]
    assert masked[0].index(masked[1].split()[1]) > masked[0].index("and")
    assert mask_pair(f"{RESERVED[0]} %s", "%s", find_agreed("%s", "%s"), RESERVED) == (f"{RESERVED[0]} %s", "%s")


def test_words_become_symbols_in_a_part_of_the_pairs(tmp_path):
    names = [(f"thing{first}{second}", f"ding{first}{second}") for first in "abcdef" for second in "ghijk"]
    pairs = [
        (f"The dog sees {ours} {number}.", f"Der Hund sieht {theirs} {number}.") for number in range(20) for ours, theirs in names
    ]
    files = CorpusFiles(*write_pairs(tmp_path, "train", pairs))
    rewrite, again = (make_masker([files], DataConfig(), (), RESERVED) for _ in range(2))
    given = [Pair(number, *pair) for number, pair in enumerate(pairs, 1)]
    found = [rewrite(pair) for pair in given]
    assert found == [again(pair) for pair in given]
    masked = [both for both, pair in zip(found, pairs) if both != pair]
    assert 0.5 < len(masked) / len(pairs) * ONE_IN < 1.5
    for source, target in masked:
        assert [source.count(symbol) for symbol in RESERVED] == [target.count(symbol) for symbol in RESERVED]
        # Names become symbols; words that most pairs have do not.
        assert source.startswith("The dog sees \uff5f")
        assert target.startswith("Der Hund sieht \uff5f")
    assert len({symbol for source, _ in masked for symbol in RESERVED if symbol in source}) == len(RESERVED)


def test_the_constraint_lets_each_symbol_come_once_before_the_end():
    import torch

    allowed = each_once([{5, 6}, set()], frozenset({5, 6, 7}), [6, 6], 10)
    tokens = torch.tensor([[[8, 5], [8, 9]], [[8, 9], [9, 9]]])
    found = allowed(torch.tensor([0, 1]), tokens)
    assert found[0, 0].nonzero().flatten().tolist() == [0, 1, 2, 4, 6, 8, 9]
    assert found[0, 1].nonzero().flatten().tolist() == [0, 1, 2, 4, 5, 6, 8, 9]
    assert found[1, 0].nonzero().flatten().tolist() == [0, 1, 2, 3, 4, 8, 9]
    late = allowed(torch.tensor([0]), torch.tensor([[[8, 9, 9]]]))
    assert late[0, 0].nonzero().flatten().tolist() == [5, 6]
    last = allowed(torch.tensor([0]), torch.tensor([[[8, 9, 6, 5, 9]]]))
    assert last[0, 0].nonzero().flatten().tolist() == [EOS]


def test_no_symbol_is_made_up(folder, monkeypatch):
    translator = Translator(folder, engine="torch", threads=1)
    symbols = sorted(translator.artifact.tokenizer.target.symbols.values())
    # A model that writes symbols wherever it may.
    monkeypatch.setattr(type(translator.artifact.model), "step", _love_symbols(translator, symbols))
    results = list(translator.stream(["The dog sees a tree.", f"The {RESERVED[2]} dog."], beam_size=1))
    assert RESERVED[2] in results[1].text
    assert not any(symbol in results[0].text for symbol in RESERVED)


def _love_symbols(translator, symbols):
    step = type(translator.artifact.model).step

    def loving(self, state, tokens):
        logits = step(self, state, tokens).clone()
        logits[..., symbols] += 100.0
        return logits

    return loving


def test_tags_are_well_nested_again():
    masked = Masked("Open ｟0｠the file｟1｠ now ｟2｠.", (("｟0｠", "<b>"), ("｟1｠", "</b>"), ("｟2｠", "%s")))
    found = Translation("", "Die ｟1｠ ｟2｠ Datei ｟0｠ öffnen.", 0.0, True)
    assert not has_each_once("｟1｠ ｟2｠", masked)
    assert has_each_once(found.text, masked)
    assert restore(found, masked).text == "Die <b> %s Datei </b> öffnen."
    moved = dataclasses.replace(found, text="｟2｠ ｟0｠ Datei ｟1｠")
    assert restore(moved, masked).text == "%s <b> Datei </b>"
    assert restore(dataclasses.replace(found, text="a ｟7｠b"), masked).text == "a b"
    assert restore(dataclasses.replace(found, text="a ｟7｠b"), Masked("a ｟7｠", ())).text == "a ｟7｠b"
    assert restore(dataclasses.replace(found, text="a ｟7｠b"), Masked("a", ())).text == "a b"
    assert is_nested(["<b>", "<br>", "<i>", "</i>", "</b>"])
    assert not is_nested(["<b>", "<i>", "</b>", "</i>"])


def test_more_items_than_symbols_share_one_where_no_word_is_between_them():
    text = "A " + " ".join(f"%{number}" for number in range(1, 21)) + " b {x}"
    masked = mask(text, RESERVED)
    assert len(masked.items) == 2
    assert "%" not in masked.text


def test_terms_are_obeyed_and_said_where_they_are_not(folder):
    glossary = Glossary([Term("old horse", "Schimmel"), Term("river", "Rhein")])
    text = "The old horse finds the river at {place} again."
    translator = Translator(folder, engine="torch", threads=1, glossary=glossary)
    (found,) = translator.stream([text])
    assert ("Schimmel" in found.text, "Rhein" in found.text, found.text.count("{place}")) == (True, True, 1)
    assert found.missed == ()
    translator.symbols = ()
    (found,) = translator.stream([text])
    assert found.missed == ("old horse → Schimmel", "river → Rhein")
    whole = dataclasses.replace(found, text=f"{text} x", looped=False, finished=True, short=False)
    assert translator.judge(whole) == ("term-missed", "old horse → Schimmel, river → Rhein")


def test_a_memory_is_reused_and_similar_sources_are_shown(folder, tmp_path):
    memory = Memory([("The dog sees the house today.", "GENAU."), ("My bird likes the tree.", "ÄHNLICH.")])
    translator = Translator(folder, engine="torch", threads=1, memory=memory)
    equal, similar, other = translator.stream(["The dog sees  the house today.", "My bird hears the tree.", "Again."])
    assert (equal.text, equal.reused, translator.judge(equal).name) == ("GENAU.", True, "reused")
    assert not similar.reused
    with open_account(str(tmp_path / "account.jsonl")) as account:
        for number, each in enumerate((equal, similar, other), 1):
            account.add(number, each.source, each.text, translator.judge(each), each, memory)
    rows = [json.loads(line) for line in (tmp_path / "account.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["memory"] for row in rows] == ["", "80%: My bird likes the tree. → ÄHNLICH.", ""]


def test_glossary_and_memory_on_the_command_line(folder, tmp_path):
    (tmp_path / "terms.tsv").write_text("horse\tSchimmel\n", encoding="utf-8")
    (tmp_path / "memory.tsv").write_text("source\ttarget\nThe dog.\tBELLO\n", encoding="utf-8")
    (tmp_path / "in.po").write_text('msgid "The dog."\nmsgstr ""\n\nmsgid "My horse"\nmsgstr ""\n', encoding="utf-8")
    aids = ["--glossary", str(tmp_path / "terms.tsv"), "--memory", str(tmp_path / "memory.tsv"), "--engine", "torch", "--quiet"]
    out = tmp_path / "out.po"
    assert main(["translate", str(folder), str(tmp_path / "in.po"), "-o", str(out), *aids]) == 0
    written = out.read_text(encoding="utf-8")
    assert 'msgstr "BELLO"' in written
    assert "Schimmel" in written
    assert main(["translate", str(folder), str(tmp_path / "in.po"), "--glossary", str(tmp_path / "no.tsv")]) == 2


def test_a_model_without_symbols_gets_a_second_try_and_the_verdict(folder):
    translator = Translator(folder, engine="torch", threads=1)
    translator.symbols = ()
    lines = ["The %s sees a tree at https://example.org/a?b=1 today.", "The dog likes {name} again."]
    found = list(translator.stream(lines))
    lost = [check_protected(each.source, each.text) for each in found]
    plain = [check_protected(line, text) for line, text in zip(lines, ["a b", "c d"])]
    assert sum(map(len, lost)) < sum(map(len, plain))
    for each, faults in zip(found, lost):
        assert (translator.judge(each).name == "placeholder-lost") <= bool(faults)


def test_what_was_lost_is_forced_where_attention_has_it():
    found = Translation("Open %s in the window now.", "Öffnen Sie das im Fenster jetzt.", 0.0, True)
    item = first_lost(found.source, found.text)
    assert item is not None
    links = [Link(Span(0, 4), Span(0, 6)), Link(Span(5, 7), Span(11, 14)), Link(Span(15, 21), Span(18, 25))]
    assert prefix_with(item, found, links) == "Öffnen Sie %s"
    assert prefix_with(item, found, links[:1]) == "Öffnen %s"
    assert prefix_with(item, found, []) == "%s"
    assert first_lost(found.source, "a %s") is None
