from collections import Counter

import pytest

from made_trees import made_lines, write_treebank
from undivided.paper.parsing.grafts import graft_trees
from undivided.paper.parsing.linear import linearise
from undivided.paper.parsing.trees import Node, leaves, parse_tree, simplify, words


@pytest.fixture(scope="module")
def trees():
    return [simplify(parse_tree(line)) for line in made_lines(300)]


def constituents(tree):
    yield tree
    for child in tree.children:
        if isinstance(child, Node):
            yield from constituents(child)


def test_grafts_are_new_trees_of_known_parts(trees):
    made = list(graft_trees(trees, 2, seed=1))
    assert len(trees) < len(made) <= 2 * len(trees)
    known = {" ".join(words(tree)) for tree in trees}
    assert sum(" ".join(words(tree)) not in known for tree in made) > len(made) / 2
    tokens = {token for tree in trees for token in linearise(tree)}
    assert {token for tree in made for token in linearise(tree)} <= tokens
    rules = {(node.label, tuple(child[0] for child in node.children)) for tree in trees for node in constituents(tree)}
    assert {(node.label, tuple(child[0] for child in node.children)) for tree in made for node in constituents(tree)} <= rules


def test_what_is_put_in_is_about_as_long(trees):
    """Replacing never doubles a constituent, so neither does it double a sentence."""
    (tree,) = [tree for tree in trees if len(words(tree)) == max(len(words(each)) for each in trees)][:1]
    lengths = [sum(1 for _ in leaves(made)) for made in graft_trees([tree, *trees], 20, seed=3)]
    before = Counter(len(words(each)) for each in [tree, *trees])
    assert max(lengths) <= 2 * max(before)
    mean = sum(length * count for length, count in before.items()) / before.total()
    assert sum(lengths) / len(lengths) == pytest.approx(mean, rel=0.25)


def test_the_seed_says_which(trees):
    assert list(graft_trees(trees, 1, seed=5)) == list(graft_trees(trees, 1, seed=5))
    assert list(graft_trees(trees, 1, seed=5)) != list(graft_trees(trees, 1, seed=6))
    assert list(graft_trees(trees, 0, seed=5)) == []


def test_a_parser_learns_from_grafts_too(tmp_path, run):
    from test_table4 import RECIPE, command, read_tables

    write_treebank(tmp_path / "trees", 60, 2)
    (tmp_path / "tiny.yaml").write_text(RECIPE)
    arguments = [*command(tmp_path, ["tiny"]), "--max-steps", "3", "--no-grammar", "-q"]
    assert run(*arguments, "--grafts", "2").code == 0
    learned = (tmp_path / "out" / "tiny" / "data" / "train.words").read_text().splitlines()
    assert 120 < len(learned) <= 180
    report = tmp_path / "out" / "report.md"
    assert read_tables(report)[1]["tiny"]["training trees"] == str(len(learned))
    assert f"{len(learned) - 60} of its training trees are augmented" in report.read_text()
    result = run(*arguments)
    assert result.code == 2
    assert "grafts was 2, now not set" in result.err
    for flag in ("--grafts", "--first"):
        assert run(*arguments, flag, "-1").code == 2
