"""The aligner, what heads are named, and the alignments they give."""

import itertools
import random

import numpy as np
import pytest
import torch

from samples import sentences, write_lines
from undivided import InputError
from undivided.config import CorpusFiles
from undivided.core.console import Console
from undivided.look.capture import to_tokens
from undivided.look.heads import report_heads
from undivided.look.heads.aligner import (
    Links,
    _prior,
    agreement,
    align_words,
    diagonal_links,
    normalize_word,
    split_words,
    to_pharaoh,
)
from undivided.look.heads.report import format_table, name_head
from undivided.look.heads.statistics import HeadStatistics, Tally, is_punctuation, strongest_links, word_attention
from undivided.look.result import Token
from undivided.nn.attention import attend

QUIET = Console(quiet=True)


# The aligner.


def made_up(count, chance):
    """Sentences of made-up words, each translated by its own word, in an order that is known."""
    result, orders = [], []
    for _ in range(count):
        source = [f"w{chance.randrange(30)}" for _ in range(chance.randrange(2, 8))]
        order = list(range(len(source)))
        if chance.random() < 0.4:
            place = chance.randrange(len(order) - 1)
            order[place], order[place + 1] = order[place + 1], order[place]
        result.append((source, [f"{source[place]}x" for place in order]))
        orders.append({(place, target) for target, place in enumerate(order)})
    return result, orders


def test_sure_links_are_found_in_both_directions():
    """One word for two: both mean it, but it has one likeliest source."""
    for links in align_words([(["a", "b"], ["x"]), (["c"], ["y"])] * 5)[::2]:
        assert links.possible == {(0, 0), (1, 0)}
        assert len(links.sure) == 1


def test_the_aligner_finds_a_dictionary():
    pairs, orders = made_up(300, random.Random(5))
    found = align_words(pairs)
    # A word that comes twice in a sentence can be either.
    clear = [number for number, (source, _) in enumerate(pairs) if len(set(source)) == len(source)]
    assert len(clear) > 100
    right = [found[number].sure == orders[number] for number in clear]
    assert sum(right) >= 0.98 * len(right)
    assert all(links.sure <= links.possible for links in found)


def test_one_round_equals_naive_loops():
    pairs = [(["a", "b"], ["x"]), (["a"], ["x", "y"]), (["b", "c", "a"], ["y", "x"])]
    chance = {}
    for _ in range(2):
        counts = {}
        for source, target in pairs:
            prior = _prior(len(source), len(target))
            for at, word in enumerate(target):
                weights = [prior[at, place] * chance.get((left, word), 1.0) for place, left in enumerate(["", *source])]
                for left, weight in zip(["", *source], weights):
                    counts[left, word] = counts.get((left, word), 0.0) + weight / sum(weights)
        totals = {}
        for (left, _), value in counts.items():
            totals[left] = totals.get(left, 0.0) + value
        chance = {key: value / totals[key[0]] for key, value in counts.items()}
    wanted = []
    for source, target in pairs:
        prior = _prior(len(source), len(target))
        best = [
            int(np.argmax([prior[at, place] * chance[left, word] for place, left in enumerate(["", *source])]))
            for at, word in enumerate(target)
        ]
        wanted.append({(place - 1, at) for at, place in enumerate(best) if place})
    from undivided.look.heads.aligner import _align_one_way

    assert _align_one_way(pairs, 2) == wanted


def test_the_prior_sums_to_one_and_likes_the_diagonal():
    prior = _prior(5, 4)
    np.testing.assert_allclose(prior.sum(axis=1), 1.0)
    assert all(near > far for near, far in itertools.pairwise(prior[0, 1:]))
    assert all(far < near for far, near in itertools.pairwise(prior[3, 1:]))


def test_words():
    assert split_words(" A  dog runs. ") == ["A", "dog", "runs."]
    assert [normalize_word(word) for word in ("Dog.", "(ÉCOLE)", "--", "don't")] == ["dog", "école", "--", "don't"]


def test_agreement():
    wanted = [Links(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))]
    assert agreement([frozenset({(0, 0)})], wanted) == (0.0, 1.0, 1.0)
    assert agreement([frozenset({(0, 0), (1, 1)})], wanted).aer == 0.0
    assert agreement([frozenset({(0, 0), (2, 2)})], wanted) == (pytest.approx(1 / 3), 0.5, 1.0)
    assert agreement([frozenset()], [Links(frozenset(), frozenset())]).aer == 1.0
    assert to_pharaoh({(2, 1), (0, 0)}) == "0-0 2-1"


def test_the_diagonal():
    assert diagonal_links(3, 3) == {(0, 0), (1, 1), (2, 2)}
    assert diagonal_links(4, 2) == {(1, 0), (3, 1)}
    assert diagonal_links(1, 3) == {(0, 0), (0, 1), (0, 2)}
    assert diagonal_links(0, 3) == diagonal_links(3, 0) == frozenset()


# What heads do.


def test_words_are_what_spaces_part(translator):
    chance = random.Random(1)
    for _ in range(200):
        text = "".join(
            chance.choice([" ", "  ", "a", "Hund", ".", "東京", "the dog", "\t", "▁", "é"]) for _ in range(chance.randrange(1, 9))
        )
        subwords = translator.artifact.tokenizer.source
        row = to_tokens(subwords, subwords.encode([text])[0])
        assert max(token.word for token in row) + 1 == len(split_words(text)), repr(text)


def test_signs():
    signs = [("▁.", 0), (",", 1), ("</s>", -1)]
    words = [("▁a", 0), ("<0xE2>", 3), ("▁", 2), ("9", 2)]
    assert all(is_punctuation(Token(9, *each)) for each in signs)
    assert not any(is_punctuation(Token(9, *each)) for each in words)


def test_word_matrix_and_links():
    rows = [Token(5, "▁a", 0), Token(6, "b", 0), Token(7, "▁c", 1), Token(3, "</s>", -1)]
    columns = [Token(5, "▁x", 0), Token(6, "▁y", 1), Token(7, "z", 1), Token(3, "</s>", -1)]
    weights = np.array([[[[0.6, 0.2, 0.2, 0.0], [0.2, 0.3, 0.1, 0.4], [0.1, 0.4, 0.4, 0.1], [0, 0, 0, 1]]]], dtype=np.float32)
    matrix = word_attention(weights, rows, columns)
    np.testing.assert_allclose(matrix[0, 0], [[0.4, 0.4], [0.1, 0.8]], atol=1e-6)
    assert strongest_links(matrix[0, 0]) == {(0, 0), (1, 1)}
    assert strongest_links(np.zeros((0, 3))) == frozenset()


def statistics_of(translator, monkeypatch, weights_of):
    """A statistics over attention that a function of the shape makes up."""

    def made(query, key, value, mask=None, dropout=None, owner=None):
        from undivided.nn.attention import apply_hook

        weights = torch.tensor(weights_of(query.shape[-2], key.shape[-2]), dtype=torch.float32)
        if mask is not None:
            weights = weights.masked_fill(~mask, 0.0)
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-9)
        apply_hook(owner, weights.expand(*query.shape[:-2], *weights.shape[-2:]))
        return attend(query, key, value, mask, dropout)

    monkeypatch.setattr("undivided.nn.attention.attend", made)
    statistics = HeadStatistics(translator.artifact)
    source, target = sentences(1, seed=8)[0]
    statistics.add_pair(source, target, Links(frozenset({(0, 0), (1, 1)}), frozenset()))
    return statistics


@pytest.mark.parametrize(("name", "shift"), [("previous", -1), ("next", 1)])
def test_heads_that_look_at_neighbours(translator, monkeypatch, name, shift):
    statistics = statistics_of(translator, monkeypatch, lambda rows, columns: np.eye(rows, columns, k=shift) + 1e-6)
    assert statistics.tallies["encoder"].mean(name, 0, 0) == pytest.approx(1.0, abs=1e-3)
    assert statistics.tallies["encoder"].mean("previous" if name == "next" else "next", 0, 1) == pytest.approx(0.0, abs=0.01)
    assert statistics.tallies["encoder"].mean("entropy", 0, 0) < 0.5
    assert statistics.tallies["decoder"].mean("next", 0, 0) is None
    assert statistics.tallies["cross"].mean("previous", 0, 0) is None


def test_heads_that_look_everywhere_or_at_themselves(translator, monkeypatch):
    statistics = statistics_of(translator, monkeypatch, lambda rows, columns: np.ones((rows, columns)))
    for use in ("encoder", "decoder", "cross"):
        assert statistics.tallies[use].mean("spread", 0, 0) == pytest.approx(1.0, abs=1e-4)
    statistics = statistics_of(translator, monkeypatch, lambda rows, columns: np.eye(rows, columns) + 1e-9)
    assert statistics.tallies["encoder"].mean("same_word", 0, 0) == pytest.approx(1.0, abs=1e-3)
    assert statistics.tallies["encoder"].mean("punctuation", 0, 0) < 0.5


def test_heads_that_look_at_the_end(translator, monkeypatch):
    def last(rows, columns):
        weights = np.full((rows, columns), 1e-9)
        weights[:, -1] = 1.0
        return weights

    statistics = statistics_of(translator, monkeypatch, last)
    assert statistics.tallies["encoder"].mean("punctuation", 0, 0) == pytest.approx(1.0, abs=1e-3)
    assert statistics.tallies["cross"].mean("punctuation", 0, 0) == pytest.approx(1.0, abs=1e-3)
    assert statistics.tallies["cross"].mean("alignment writes", 0, 0) == pytest.approx(0.0, abs=1e-3)


def test_names():
    assert name_head({"previous": 0.7, "next": None, "alignment": 0.5}, 0.3) == "previous token"
    assert name_head({"previous": 0.1, "same_word": 0.45}, 0.3) == "same word"
    assert name_head({"alignment": 0.6, "punctuation": 0.41}, 0.3) == "alignment"
    assert name_head({"alignment": 0.2, "punctuation": 0.41}, 0.3) == "punctuation/end"
    assert name_head({"next": 0.41, "previous": 0.4}, 0.3) == "next token"
    assert name_head({"previous": 0.1}, 0.9) == "broad"
    assert name_head({"previous": 0.1}, 0.5) == "mixed"
    assert Tally().mean("previous", 0, 0) is None


# The report.


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    home = tmp_path_factory.mktemp("corpus")
    pairs = [*sentences(40, seed=6)]
    pairs[2] = ("", "leer")
    return CorpusFiles(*(str(write_lines(home / f"c.{at}", [pair[at] for pair in pairs])) for at in (0, 1)))


@pytest.fixture(scope="module")
def result(translator, files):
    return report_heads(translator, files, 8, QUIET)


def test_the_report_has_every_head(result):
    assert result.lines == 8
    assert [(row.use, row.layer, row.head) for row in result.heads] == [
        (use, 0, head) for use in ("encoder", "decoder", "cross") for head in range(2)
    ]
    for row in result.heads:
        shares = [row.previous, row.next, row.same_word, row.punctuation, row.alignment, row.aer]
        assert all(share is None or -1e-6 <= share <= 1 + 1e-6 for share in shares)
        assert row.entropy > 0
        assert (row.alignment is None) == (row.use != "cross")
    assert max(row.bleu_lost for row in result.heads) > 1


def test_bleu_lost_is_bleu_with_and_without(translator, files, result):
    from undivided.inference.score import bleu
    from undivided.look.what_if import find_heads
    from undivided.nn.attention import attention_hook

    chosen = [pair for pair in sentences(9, seed=6) if pair != sentences(9, seed=6)[2]]
    sources, references = zip(*chosen)
    whole = bleu(translator.translate(list(sources), beam_size=1), references, "de").score
    assert result.bleu.score == pytest.approx(whole)
    artifact = translator.artifact
    head = find_heads(artifact.model, *(side.encode([sources[0]])[0] for side in (artifact.tokenizer.source,) * 2))[-1]
    with attention_hook(head.off_hook()):
        without = bleu(translator.translate(list(sources), beam_size=1), references, "de").score
    assert result.heads[-1].bleu_lost == pytest.approx(whole - without)


def test_alignments_keep_the_lines_of_the_corpus(result):
    assert len(result.alignments) == 9
    assert result.alignments[2] == ""
    assert all(line for place, line in enumerate(result.alignments) if place != 2)
    assert 1 <= len(result.aligners) <= 3
    assert result.agreement.aer <= min(row.aer for row in result.heads if row.aer is not None) + 1e-9


def test_a_trained_model_aligns_better_than_chance(translator, files):
    result = report_heads(translator, files, 30, QUIET)
    assert result.agreement.aer < 0.65  # aligning at random is right in one of six or seven


def test_the_table_is_straight(result):
    lines = format_table(result).splitlines()
    rows = [line for line in lines if line.startswith("    1")]
    assert len(rows) == 6
    assert len({len(row) for row in rows}) == 1
    assert "IBM model 1" in lines[-2]
    assert f"{result.diagonal.aer:.3f}" in lines[-1]


def test_nothing_to_look_at(translator, tmp_path):
    path = write_lines(tmp_path / "c.tsv", ["no tab"])
    with pytest.raises(InputError, match="no line can be used"):
        report_heads(translator, CorpusFiles(str(path)), 5, QUIET)
