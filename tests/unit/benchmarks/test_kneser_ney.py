"""The n-gram baseline is what it says: distributions, by its formulas, that get better with order."""

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))
from kneser_ney import BEGIN, KneserNey, discounts_of


def stream(length, seed=1):
    """Ids in which each depends on the two before it."""
    chance, ids = random.Random(seed), [4, 5]
    while len(ids) < length:
        ids.append(4 + (ids[-1] * 3 + ids[-2] + (chance.random() < 0.2) * chance.randrange(8)) % 8)
    return ids


@pytest.mark.parametrize("context", [(), (4,), (5, 6), (7, 7, 7, 7), (4, 99, 5, 6), (99, 99, 99, 99)])
def test_every_context_has_a_distribution(context):
    model = KneserNey([stream(500)], vocabulary=16)
    total = sum(model.probability(context, word) for word in range(16))
    assert total == pytest.approx(1.0)
    assert min(model.probability(context, word) for word in range(16)) > 0


def test_bigrams_by_hand():
    """a b a c a b d: highest order counts pairs, the lower one how many words stand before a word."""
    a, b, c, d = 0, 1, 2, 3
    model = KneserNey([[a, b, a, c, a, b, d]], vocabulary=4, order=2)
    assert model.counts[1] == {(BEGIN, a): 1, (a, b): 2, (b, a): 1, (a, c): 1, (c, a): 1, (b, d): 1}
    assert model.counts[0] == {(a,): 3, (b,): 1, (c,): 1, (d,): 1}
    # Too few pairs to estimate discounts from: each is a half.
    below = [(count - 0.5) / 6 + 4 * 0.5 / 6 / 4 for count in (3, 1, 1, 1)]
    assert [model.probability((), word) for word in (a, b, c, d)] == pytest.approx(below)
    assert model.probability((a,), b) == pytest.approx((2 - 0.5) / 3 + 2 * 0.5 / 3 * below[b])
    assert model.probability((a,), d) == pytest.approx(2 * 0.5 / 3 * below[d])
    assert model.probability((d,), a) == pytest.approx(below[a])


def test_a_text_knows_nothing_of_the_one_before_it():
    texts = [[4, 5, 6, 9], [7, 5, 8, 9], [4, 5, 9]] * 5
    model = KneserNey(texts, vocabulary=16, order=3)
    assert model.perplexity(texts[:3]) == pytest.approx(model.perplexity(texts[2::-1]))
    # At the beginning of a text occurrences are counted, of which two in three are 4.
    assert model.counts[1][(BEGIN, 4)] == 10
    assert model.probability((BEGIN,), 4) > 1.5 * model.probability((BEGIN,), 7) > 5 * model.probability((BEGIN,), 5)
    assert sum(model.probability((BEGIN,), word) for word in range(16)) == pytest.approx(1.0)


def test_discounts_by_their_formula():
    counts = {(number,): 1 for number in range(10)} | {(20 + n,): 2 for n in range(6)} | {(40 + n,): 3 for n in range(3)}
    from collections import Counter

    _, one, two, more = discounts_of(Counter(counts | {(99,): 4}))
    share = 10 / 22
    assert (one, two, more) == pytest.approx((1 - 2 * share * 6 / 10, 2 - 3 * share * 3 / 6, 3 - 4 * share * 1 / 3))


def test_longer_contexts_predict_better_where_they_matter():
    train, test = stream(4000), stream(1000, seed=2)
    found = [KneserNey([train], 16, order).perplexity([test]) for order in (1, 2, 3)]
    assert found[2] < 0.6 * min(found[:2])
    assert KneserNey([train], 16, 5).perplexity([test]) < 1.2 * found[2]
