import functools
import itertools
import math

import pytest

from made_trees import made_lines
from undivided.paper.parsing import cky
from undivided.paper.parsing.brackets import score_trees
from undivided.paper.parsing.cky import Parser, split_sentence
from undivided.paper.parsing.pcfg import Grammar, Lexicon, classes
from undivided.paper.parsing.trees import Leaf, leaves, parse_tree, simplify, to_brackets, words


def trees(*lines):
    return [simplify(parse_tree(line)) for line in lines]


@pytest.fixture(scope="module")
def parser():
    return Parser(Grammar(trees(*made_lines(250))))


def test_rules_are_binary_know_their_parent_and_remember_a_sibling():
    grammar = Grammar(trees("(S (NP (DT a) (JJ b) (NN c) (NN d)) (VP (VP (VB e))))"))
    assert set(grammar.binary) == {
        ("S^TOP", "NP^S", "VP+VP+^S"),
        ("NP^S", "DT^NP", "@NP^S|DT"),
        ("@NP^S|DT", "JJ^NP", "@NP^S|JJ"),
        ("@NP^S|JJ", "NN^NP", "NN^NP"),
    }
    assert set(grammar.unary) == {("VP+VP+^S", "VB^VP")}
    assert grammar.starts == {"S^TOP": 0.0}


def test_the_rules_of_a_symbol_share_its_probability():
    grammar = Grammar(trees(*made_lines(100)))
    for symbol in {rule[0] for rule in (*grammar.binary, *grammar.unary)}:
        scores = [score for rule, score in (*grammar.binary.items(), *grammar.unary.items()) if rule[0] == symbol]
        assert sum(map(math.exp, scores)) == pytest.approx(1.0)


def test_a_tree_is_found_again_in_its_own_grammar():
    lines = ["(S (NP (DT a) (NN b)) (VP (VB c) (NP (NP (NN d)) (PP (IN e) (NP (NN f) (NN g)))) (. h)))"]
    (tree,) = trees(*lines)
    assert Parser(Grammar([tree])).parse(words(tree)).tree == tree


def best_by_enumeration(grammar, sentence):
    """The score of the likeliest derivation, by trying all."""

    @functools.cache
    def derive(start, end):
        found = {}
        if end - start == 1:
            found = dict(grammar.lexicon.scores(sentence[start]))
        for divide in range(start + 1, end):
            lefts, rights = derive(start, divide), derive(divide, end)
            for (above, left, right), weight in grammar.binary.items():
                if left in lefts and right in rights:
                    found[above] = max(found.get(above, -math.inf), lefts[left] + rights[right] + weight)
        for (above, below), weight in grammar.unary.items():
            if below in found:
                found[above] = max(found.get(above, -math.inf), found[below] + weight)
        return found

    return max((score + grammar.starts[symbol] for symbol, score in derive(0, len(sentence)).items() if symbol in grammar.starts))


def score_of(grammar, tree):
    """The log-probability of a tree under its grammar."""
    alone = Grammar([tree])
    total = grammar.starts[next(iter(alone.starts))]
    for tag, word in _tagged(tree):
        total += grammar.lexicon.scores(word)[tag]
    return total + sum(_weight(grammar, rule) for rule in _rules(tree))


def _rules(tree):
    from undivided.paper.parsing.pcfg import _root, _rules

    return [rule for rule in _rules(*_root(tree)) if not rule[0].startswith("\0")]


def _tagged(tree):
    from undivided.paper.parsing.pcfg import _root, _rules

    return [(rule[0][1:], rule[1]) for rule in _rules(*_root(tree)) if rule[0].startswith("\0")]


def _weight(grammar, rule):
    return grammar.binary[rule] if len(rule) == 3 else grammar.unary[rule]


def test_cky_finds_the_likeliest_of_all_trees(monkeypatch):
    monkeypatch.setattr(cky, "WORTH", 1e9)
    monkeypatch.setattr(cky, "MOST_SYMBOLS", 10**6)
    bank = [tree for tree in trees(*made_lines(60)) if len(words(tree)) <= 7]
    grammar = Grammar(bank)
    parser = Parser(grammar)
    for tree in bank[:6]:
        found = parser.parse(words(tree))
        assert found.failed == 0
        assert score_of(grammar, found.tree) == pytest.approx(best_by_enumeration(grammar, words(tree)), abs=1e-3)


def test_it_parses_what_it_has_not_seen(parser):
    held_out = trees(*made_lines(15, seed=9))
    found = [parser.parse(words(tree)) for tree in held_out]
    assert [words(each.tree) for each in found] == [words(tree) for tree in held_out]
    assert score_trees(held_out, [each.tree for each in found]).f1 > 70


def test_every_sentence_gets_a_tree(parser, monkeypatch):
    for sentence in (["zzz"], ["."], [",", ",", ","], ["the"] * 5, ["(", ")"], ["Überall", "3.14", "-"]):
        found = parser.parse(sentence)
        assert words(found.tree) == sentence
        assert parse_tree(to_brackets(found.tree)) == found.tree
    assert parser.parse([",", ","]).failed == 1
    monkeypatch.setattr(cky, "LONGEST", 6)
    long = [word for tree in trees(*made_lines(6)) for word in words(tree)]
    found = parser.parse(long)
    assert found.pieces > 5
    assert words(found.tree) == long


def test_long_sentences_are_cut_after_punctuation_and_lose_nothing():
    assert split_sentence(list("abcd"), 4) == [list("abcd")]
    assert split_sentence(list("abcdef"), 4) == [list("abcd"), list("ef")]
    assert split_sentence(list("abc,def,gh"), 6) == [list("abc,"), list("def,gh")]
    assert list(itertools.chain(*split_sentence(list("ab,c" * 50), 9))) == list("ab,c" * 50)


def test_words_never_seen_are_known_by_shape_and_ending():
    tagged = [("NNS", f"{a}{b}ons") for a in "abcdef" for b in "xyzw"] + [("VBG", f"{a}{b}ing") for a in "abcdef" for b in "xyzw"]
    lexicon = Lexicon(tagged)
    for word, tag in (("neutrons", "NNS"), ("binding", "VBG")):
        scores = lexicon.scores(word)
        assert max(scores, key=scores.get) == tag
    assert set(lexicon.scores("???")) == {"NNS", "VBG"}
    assert classes("Mice")[0] != classes("mice")[0]


def test_a_frequent_word_is_known_by_itself():
    lexicon = Lexicon([("DT", "the")] * 1000 + [("NN", f"w{n}") for n in range(50)])
    scores = lexicon.scores("the")
    assert math.exp(scores["DT"]) * 1000 / 1050 > 0.99


def test_tags_come_without_their_parent(parser):
    assert {leaf.tag for leaf in leaves(parser.parse(["the", "dog", "sees", "mice", "."]).tree)} == {"DT", "NN", "VBZ", "NNS", "."}
    assert isinstance(parser.parse(["mice"]).tree.children[0], Leaf) or parser.parse(["mice"]).tree.children
