"""`undivided paper table3 --generated`: a language with one right answer, in which every part of the model has work to do."""

import itertools
import re
from pathlib import Path

from undivided.config import build_recipe
from undivided.data.subwords import Tokenizer
from undivided.paper.table3.generated import CLOSE, OPEN, Language, draw_pairs, language_settings, translate, write_corpus

SMALL = Language(words=6, forms=2, depth=2, shortest=3, longest=8, pairs=40, held_out=5)


def read(text):
    """A source as nested lists, by a parser of its own."""
    stack = [[]]
    for token in text.split():
        if token == OPEN:
            stack.append([])
        elif token == CLOSE:
            inner = stack.pop()
            stack[-1].append(inner)
        else:
            stack[-1].append(token)
    assert len(stack) == 1
    return stack[0]


def said_backwards(group):
    """Word and head in the order of the target: every pair of brackets turns what is in it, once more within another."""
    flat = []
    for each in group:
        flat += said_backwards(each)[::-1] if isinstance(each, list) else [(each, group[0])]
    return flat


def test_brackets_turn_and_words_agree():
    pairs = list(itertools.islice(draw_pairs(Language(words=20, forms=3)), 300))
    forms = {}
    for source, target in pairs:
        order, said = said_backwards(read(source)), target.split()
        assert len(order) == len(said)
        for key, word in zip(order, said, strict=True):
            assert forms.setdefault(key, word) == word, "one right answer"
    assert len({word for _, target in pairs for word in target.split()}) == 20 * 3
    by_word = {}
    for (word, _), form in forms.items():
        by_word.setdefault(word, set()).add(form)
    assert {len(each) for each in by_word.values()} == {3}
    assert max(len(re.findall(re.escape(OPEN), source)) for source, _ in pairs) > 2
    assert len({source for source, _ in pairs}) == 300


def test_an_example_by_hand():
    numbers = {"a": 0, "b": 1, "c": 2, "d": 3}
    plain = [chr(0x6000 + number) for number in range(4)]
    assert translate(["a", ["b", "c"], "d"], numbers, 1) == [plain[at] for at in (0, 2, 1, 3)]
    assert translate(["a", ["b", ["c", "d"], "a"]], numbers, 1) == [plain[at] for at in (0, 0, 2, 3, 1)]
    two = translate(["b", ["a", "c"]], numbers, 2)
    assert two == [chr(0x6000 + each) for each in (1 * 2 + 1, 2 * 2, 0)]


def test_a_word_is_one_subword(tmp_path):
    files = write_corpus(SMALL, tmp_path)
    recipe = build_recipe(language_settings(SMALL, files))
    pairs = list(itertools.islice(draw_pairs(SMALL), 200))
    tokenizer = Tokenizer.learn(lambda: pairs, recipe.tokens, len(pairs), 1)
    for side, subwords in ((0, tokenizer.source), (1, tokenizer.target)):
        texts = [pair[side] for pair in pairs]
        assert [len(row) for row in subwords.encode(texts)] == [len(text.split()) + 1 for text in texts]


def test_the_files_are_always_the_same_and_share_no_sentence(tmp_path):
    files, again = (write_corpus(SMALL, tmp_path / name) for name in ("one", "two"))
    texts = {part: [Path(path).read_text() for path in paths] for part, paths in files.items()}
    assert texts == {part: [Path(path).read_text() for path in paths] for part, paths in again.items()}
    sources = [text[0].splitlines() for text in texts.values()]
    assert sorted(map(len, sources)) == [5, 5, 40]
    assert len(set().union(*sources)) == 50


def test_the_table_on_it(run, tmp_path):
    size = {"words": 6, "pairs": 60, "longest": 8, "forms": 2, "held-out": 4}
    model = {"d_model": 16, "d_ff": 16, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1}
    flags = [
        *(f"--generated-{name}={value}" for name, value in size.items()),
        *(f"--model.{name}={value}" for name, value in model.items()),
    ]
    command = [
        "paper",
        "table3",
        "--generated",
        *flags,
        "--beam-size",
        "1",
        "--threads",
        "1",
        "--max-steps",
        "3",
        "--out",
        tmp_path / "o",
    ]
    result = run(*command, "--rows", "E0", "--seeds", "2")
    assert result.code == 0, result.err
    assert "4 of 4 trainings to do: about " in result.err
    rows = {line.split("|")[1].strip(): line.split("|") for line in result.out.splitlines()[2:]}
    assert rows.keys() == {"base", "E0"}
    assert rows["E0"][2].strip() == "positions sinusoidal → none"
    assert rows["E0"][7].strip() == "–"
    report = (tmp_path / "o" / "report.md").read_text()
    assert "(1 degrees of freedom) without what a seed does to all rows alike" in report
    assert "| exact |" in report
    assert "- **E0** (no positions): BLEU " in report
    other = run(*command, "--generated-words", "7", "--rows", "E0")
    assert other.code == 2
    assert "words was 6, now 7" in other.err


def test_its_faults(run, tmp_path):
    assert "only with --generated" in run("paper", "table3", "--generated-words", "9", "--out", tmp_path / "o").err
    files = [tmp_path / "a", tmp_path / "b"]
    assert "files of its own" in run("paper", "table3", "--generated", "--train", *files, "--out", tmp_path / "o").err
    said = run("paper", "table3", "--generated", "--generated-words", "9999", "--generated-longest", "3", "--out", tmp_path / "o")
    assert said.code == 2
    assert "--generated-words: 9999" in said.err
    assert "--generated-longest: 3 is not between 6 and 200" in said.err
    assert not (tmp_path / "o").exists()
