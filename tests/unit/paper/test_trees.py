import pytest

from made_trees import made_lines
from undivided import InputError
from undivided.paper.parsing.trees import (
    Leaf,
    Node,
    NotATree,
    escape_brackets,
    leaves,
    parse_tree,
    read_training_trees,
    read_trees,
    retag,
    simplify,
    to_brackets,
    unescape_brackets,
    words,
    write_trees,
)

RAW = "( (S (NP-SBJ-1 (DT The) (NN dog)) (VP (VBD was) (VP (VBN seen) (NP-1 (-NONE- *)))) (. .)) )"
PLAIN = "(TOP (S (NP (DT The) (NN dog)) (VP (VBD was) (VP (VBN seen))) (. .)))"


def test_plain_has_no_traces_no_functions_and_top():
    assert to_brackets(simplify(parse_tree(RAW))) == PLAIN


@pytest.mark.parametrize("root", ["(S (X y))", "(TOP (S (X y)))", "(ROOT (S (X y)))", "((S (X y)))", "(S1 (S (X y)))"])
def test_every_root_becomes_top(root):
    assert to_brackets(simplify(parse_tree(root))) == "(TOP (S (X y)))"


def test_a_bare_word_is_a_tree():
    assert to_brackets(simplify(parse_tree("(NN Abstract)"))) == "(TOP (NN Abstract))"


def test_labels_that_begin_with_a_dash_stay_and_ambiguous_ones_are_cut():
    tree = simplify(parse_tree("(S=2 (-LRB- -LRB-) (JJ|NN red) (ADVP|PRT (RB up)) (-RRB- -RRB-))"))
    assert [leaf.tag for leaf in leaves(tree)] == ["-LRB-", "JJ", "RB", "-RRB-"]
    assert to_brackets(tree).startswith("(TOP (S (-LRB-")
    assert "(ADVP (RB up))" in to_brackets(tree)


def test_words_come_as_they_were_in_the_text():
    assert words(parse_tree("(X (-LRB- -LRB-) (NN f-LRB-x-RRB-) ([ [) (-RRB- -RRB-))")) == ["(", "f(x)", "[", ")"]
    assert [escape_brackets(word) for word in ("(", "f(x)", "[", "dog")] == ["-LRB-", "f-LRB-x-RRB-", "[", "dog"]
    assert all(escape_brackets(unescape_brackets(word)) == word for word in ("-LRB-", "-RRB-", "dog", "-LSB-", "f-LRB-x-RRB-"))


def test_only_ascii_space_parts_words():
    assert words(parse_tree("(X (NN a\u00a0b) (NN c\u2028d))")) == ["a\u00a0b", "c\u2028d"]


def test_read_again_what_was_written(tmp_path):
    trees = [simplify(parse_tree(line)) for line in made_lines(50)]
    write_trees(tmp_path / "t.mrg", trees)
    assert read_trees(tmp_path / "t.mrg") == [trees]


def test_a_tree_may_go_on_in_indented_lines(tmp_path):
    (tmp_path / "t.mrg").write_text("( (S (NP (NN It))\n     (VP (VBZ rains))\n  ) )\n\n(NP (NN dog))\n")
    assert [to_brackets(tree) for tree in read_trees(tmp_path / "t.mrg")[0]] == [
        "(TOP (S (NP (NN It)) (VP (VBZ rains))))",
        "(TOP (NP (NN dog)))",
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(S (NP (NN dog))", "1 of its brackets are not closed"),
        ("(S (NN dog)))", "was not opened"),
        ("(S (NN big dog))", "beside something else"),
        ("(S dog (NN cat))", "beside something else"),
        ("(S (NN))", "is empty"),
        ("()", "is empty"),
        ("( (dog) )", "is empty"),
        ("dog", "outside of brackets"),
        ("(NN dog) (NN cat)", "2 trees in one line"),
        ("((-NONE- *))", "no words, only traces"),
        ("(" * 1000 + "NN dog" + ")" * 1000, "open at once"),
    ],
)
def test_what_is_not_a_tree(text, said):
    with pytest.raises(NotATree, match=said):
        simplify(parse_tree(text))


def test_all_faults_of_all_files_with_their_lines(tmp_path):
    (tmp_path / "a.mrg").write_text("(S (NN dog))\n(S (NN dog)\n(S (NN dog))\nnot a tree\n")
    (tmp_path / "b.mrg").write_bytes(b"(S (NN caf\xe9))\n(S (NN dog)))\n")
    (tmp_path / "c.mrg").write_text("\n\n")
    with pytest.raises(InputError) as error:
        read_trees(tmp_path / "a.mrg", tmp_path / "b.mrg", tmp_path / "c.mrg")
    for expected in ("a.mrg, line 2", "a.mrg, line 4", "b.mrg, line 1: not valid UTF-8", "b.mrg, line 2", "c.mrg: contains no"):
        assert expected in str(error.value)
    assert "line 1: not a tree" not in str(error.value)


def test_training_does_without_bad_lines_but_not_without_any_tree(tmp_path):
    (tmp_path / "a.mrg").write_text("(S (NN dog))\n(S (NN dog)\n(S (NN cat))\n")
    trees, faults = read_training_trees(tmp_path / "a.mrg")
    assert [words(tree) for tree in trees] == [["dog"], ["cat"]]
    assert [fault.split(":")[0].rpartition("/")[2] for fault in faults] == ["a.mrg, line 2"]
    (tmp_path / "b.mrg").write_text("This is text.\n" * 30)
    with pytest.raises(InputError, match="and 20 more"):
        read_training_trees(tmp_path / "b.mrg")


def test_a_missing_file(tmp_path):
    with pytest.raises(InputError, match=r"none\.mrg"):
        read_trees(tmp_path / "none.mrg")


def test_other_tags():
    tree = Node("TOP", (Node("NP", (Leaf("DT", "a"), Leaf("NN", "dog"))),))
    assert to_brackets(retag(tree, ["X", "Y"])) == "(TOP (NP (X a) (Y dog)))"
