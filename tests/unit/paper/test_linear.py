import random

import pytest

from made_trees import made_lines
from undivided.paper.parsing.linear import (
    FORMS,
    MOST_OPEN,
    TAGS,
    align_to_subwords,
    guess_tag,
    linearise,
    repair,
    repair_with_faults,
)
from undivided.paper.parsing.trees import Leaf, Node, leaves, parse_tree, simplify, to_brackets, words

TREES = [simplify(parse_tree(line)) for line in made_lines(100)]
TREE = simplify(parse_tree("(S (NP (PRP It)) (VP (VBZ rains)) (. .))"))


def test_both_forms():
    assert linearise(TREE, "vinyals", "xx") == ["(S", "(NP", "XX", ")NP", "(VP", "XX", ")VP", "XX", ")S"]
    assert linearise(TREE, "compact", "xx") == ["(S(NP|XX)", "(VP|XX)", "XX)"]
    assert linearise(TREE, "compact", "keep") == ["(S(NP|PRP)", "(VP|VBZ)", ".)"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("tags", TAGS)
def test_what_was_written_is_read_again(form, tags):
    for tree in TREES:
        again, faults = repair_with_faults(" ".join(linearise(tree, form, tags)), words(tree))
        assert not faults
        if tags == "keep":
            assert again == tree
        else:
            assert _bare(again) == _bare(tree)


def _bare(tree):
    return tree.word if isinstance(tree, Leaf) else (tree.label, [_bare(child) for child in tree.children])


def test_compact_has_one_token_for_each_word():
    assert all(len(linearise(tree)) == len(words(tree)) for tree in TREES)


def test_further_subwords_of_a_word_have_a_token_that_says_nothing():
    assert align_to_subwords(["a", "b"], [1, 3]) == ["a", "b", "~", "~"]
    tokens = linearise(TREE)
    assert repair(" ".join(align_to_subwords(tokens, [2, 1, 3])), words(TREE)) == TREE


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("", "(TOP (XX a) (XX b) (. .))"),
        ("(S (NP XX )NP", "(TOP (S (NP (XX a)) (XX b) (. .)))"),
        ("(S (NP XX XX XX )NP )S", "(TOP (S (NP (XX a) (XX b) (. .))))"),
        ("(S XX XX XX XX XX )S", "(TOP (S (XX a) (XX b) (. .)))"),
        (")S )S (S XX )VP XX XX )NP )S )S", "(TOP (S (XX a) (XX b) (. .)))"),
        ("(S (NP )NP XX (VP XX XX )S", "(TOP (S (XX a) (VP (XX b) (. .))))"),
        ("(S(NP(PP)) DT) NN) X", "(TOP (S (DT a)) (NN b) (X .))"),
        ("(NP|XX) (VP|XX)", "(TOP (NP (XX a)) (VP (XX b) (. .)))"),
        ("XX", "(TOP (XX a) (XX b) (. .))"),
        ("((((  ))) () ||| ~ ~", "(TOP (XX a) (XX b) (. .))"),
    ],
)
def test_repair(text, tree):
    assert to_brackets(repair(text, ["a", "b", "."])) == tree


@pytest.mark.parametrize(
    ("text", "faults"),
    [
        ("(S (NP XX )NP XX XX )S", set()),
        ("(S(NP|XX) XX ~ XX)", set()),
        ("(NP|XX) (VP|XX) XX", set()),
        ("", {"too few words"}),
        ("XX XX XX XX", {"too many words"}),
        ("(S (NP XX XX XX )NP", {"brackets left open"}),
        ("(S (NP XX XX XX )S", {"brackets left open"}),
        ("(S XX XX XX )S )S", {"brackets that close nothing"}),
        ("XX) XX XX", {"brackets that close nothing"}),
        ("(S (NP )NP XX XX XX )S", {"empty brackets"}),
        ("XX XX XX (", {"other"}),
        ("(X" * (MOST_OPEN + 1) + "|XX XX XX" + ")" * MOST_OPEN, {"other"}),
        ("(S XX )NP", {"too few words", "brackets left open", "brackets that close nothing"}),
    ],
)
def test_what_was_wrong_is_told(text, faults):
    assert repair_with_faults(text, ["a", "b", "."])[1] == faults


def test_a_closing_label_closes_what_is_open_inside():
    assert to_brackets(repair("(S (VP XX (NP XX )S XX", ["a", "b", "c"])) == "(TOP (S (VP (XX a) (NP (XX b)))) (XX c))"


def well_formed(tree, sentence):
    """A tree over exactly the words: it reads again as itself, and has no empty constituent."""
    again = parse_tree(to_brackets(tree))
    assert again == tree
    assert tree.label == "TOP"
    assert words(tree) == list(sentence)
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, Node):
            assert node.children
            assert node.label
            stack += node.children
    return True


SYMBOLS = ["(S", "(NP", ")NP", ")VP", ")", "))", "XX", "NN", "(NP|XX)", "~", "|", "(", "()", ")S", "▁", "\u00a0", "é", "<unk>",
           "(-LRB-", "(S(VP|-RRB-))))"]  # fmt: skip
WORDS = ["dog", "(", ")", ".", ",", "f(x)", "-LRB-", "~", "|", "XX", "\u2028", "日本", "a\u00a0b", "()", "''"]


def test_whatever_a_model_writes_becomes_a_tree_over_exactly_the_words():
    chance = random.Random(7)
    for _ in range(3000):
        glue = chance.choice([" ", "", "  "])
        text = glue.join(chance.choice(SYMBOLS) for _ in range(chance.randrange(40)))
        sentence = [word for word in (chance.choice(WORDS) for _ in range(chance.randrange(1, 15))) if word != "-LRB-"]
        if sentence:
            assert well_formed(repair(text, sentence), sentence)


def test_whatever_characters_a_model_writes():
    chance = random.Random(8)
    for _ in range(1000):
        text = "".join(chance.choice("()|~ \t\nXNPSé\u2028日\x00▁") for _ in range(chance.randrange(120)))
        assert well_formed(repair(text, ["a", "b", "c"]), ["a", "b", "c"])


def test_good_trees_that_were_damaged_stay_trees_over_the_words():
    chance = random.Random(9)
    for tree in TREES:
        for form in FORMS:
            tokens = linearise(tree, form)
            for _ in range(5):
                place = chance.randrange(len(tokens))
                damaged = chance.choice([tokens[:place], tokens[:place] + tokens[place + 1 :], tokens[:place] + tokens[place:] * 2])
                again, faults = repair_with_faults(" ".join(damaged), words(tree))
                assert well_formed(again, words(tree))
                assert bool(faults) == (linearise(again, form) != damaged)


def test_brackets_without_end_are_cut():
    tree = repair("(NP" * 5000 + "|XX" + ")" * 5000, ["dog", "cat"])
    assert well_formed(tree, ["dog", "cat"])
    assert to_brackets(tree).count("(NP") == MOST_OPEN


def test_tags_of_words_that_got_none():
    assert [guess_tag(word) for word in (",", ".", ";", "(", "dog")] == [",", ".", ":", "-LRB-", "XX"]
    assert [leaf.tag for leaf in leaves(repair("XX XX", ["dog", "."], lambda word: word.upper()))] == ["DOG", "."]
