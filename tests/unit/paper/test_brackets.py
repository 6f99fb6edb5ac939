import pytest

from undivided.paper.parsing.brackets import Bracket, Counts, compute_agreement, score_trees, sentence_counts
from undivided.paper.parsing.trees import parse_tree

GOLD = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ runs) (PRT (RP up)) (, ,) (NP (DT the) (NN hill))) (. .)))"


def counts(gold, ours):
    return sentence_counts(parse_tree(gold), parse_tree(ours))


def test_a_tree_agrees_with_itself_and_punctuation_and_top_do_not_count():
    assert counts(GOLD, GOLD) == Counts(gold=5, ours=5, matched=5, crossing=0, words=6, tagged=6)


def test_where_punctuation_stands_makes_no_difference():
    moved = "(TOP (S (NP (DT The) (NN dog)) (VP (VBZ runs) (PRT (RP up) (, ,)) (NP (DT the) (NN hill)) (. .))))"
    assert counts(GOLD, moved).matched == 5


def test_prt_is_advp():
    assert counts(GOLD, GOLD.replace("PRT", "ADVP")).matched == 5
    assert counts(GOLD, GOLD.replace("PRT", "NP")).matched == 4


def test_labels_count_up_to_their_function():
    assert counts(GOLD.replace("(NP (DT The", "(NP-SBJ=2 (DT The"), GOLD).matched == 5


def test_a_bracket_matches_once():
    twice, once = "(NP (NP (NN dog) (NN cat)))", "(NP (NN dog) (NN cat))"
    assert counts(twice, once) == Counts(2, 1, 1, 0, 2, 2)
    assert counts(once, twice) == Counts(1, 2, 1, 0, 2, 2)


def test_crossing():
    ours = "(S (X (NP (DT The)) (Y (NN dog) (VBZ runs))) (VP (RP up) (NP (DT the) (NN hill))) (. .))"
    assert counts(GOLD, ours).crossing == 2
    assert Bracket("", 0, 2).crosses(Bracket("", 1, 3))
    assert not Bracket("", 0, 2).crosses(Bracket("", 0, 3))
    assert not Bracket("", 0, 2).crosses(Bracket("", 2, 3))


@pytest.mark.parametrize("ours", [GOLD.replace("(, ,)", "(NN ,)"), GOLD.replace("hill", "till"), "(TOP (. .))"])
def test_other_words_are_not_comparable(ours):
    assert counts(GOLD, ours) is None


def test_a_corpus_is_the_sum_of_its_sentences():
    found = compute_agreement([Counts(4, 5, 4, 0, 9, 9), Counts(6, 3, 3, 2, 9, 8), None, Counts(1, 1, 1, 0, 2, 2)])
    assert (found.sentences, found.invalid) == (4, 1)
    assert found.recall == pytest.approx(100 * 8 / 11)
    assert found.precision == pytest.approx(100 * 8 / 9)
    assert found.f1 == pytest.approx(200 * 8 / 20)
    assert (found.exact, found.no_crossing) == (pytest.approx(100 / 3), pytest.approx(200 / 3))
    assert found.crossing == pytest.approx(2 / 3)
    assert found.tagging == pytest.approx(1900 / 20)


def test_nothing_to_score_is_zero():
    assert compute_agreement([]).f1 == compute_agreement([None]).f1 == 0.0
    assert score_trees([parse_tree("(TOP (NN a))")], [parse_tree("(TOP (NN a))")]).f1 == 0.0
