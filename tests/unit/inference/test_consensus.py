"""The output that agrees most with the others: its measure is sacreBLEU's, and a known consensus is found."""

import math
import random

import pytest
from sacrebleu.metrics import CHRF

from samples import sentences
from undivided.inference.consensus import agreement, count_ngrams, rank_by_consensus
from undivided.inference.hypothesis import Hypothesis

TEXTS = [target for _, target in sentences(12)] + ["", "a", "Zwei Kinder spielen.", "Zwei Hunde spielen im Schnee."]


def hypothesis(score=0.0):
    return Hypothesis([5], score, score, True)


def test_agreement_is_the_chrf_of_sacrebleu():
    metric = CHRF(eps_smoothing=False)
    for _ in range(60):
        one, other = random.Random(_).choices(TEXTS, k=2)
        ours = agreement(count_ngrams(one), count_ngrams(other))
        assert 100 * ours == pytest.approx(metric.sentence_score(one, [other]).score, abs=0.01), (one, other)


def test_a_known_consensus_is_found():
    texts = ["Der Hund schläft.", "Ein Hund läuft am Strand.", "Ein Hund rennt am Strand.", "Ein Hund läuft am Ufer."]
    found = [hypothesis() for _ in texts]
    ranked = rank_by_consensus(found, texts, weighted=False)
    assert texts[next(place for place, each in enumerate(found) if each is ranked[0])] == "Ein Hund läuft am Strand."
    assert ranked[-1] is found[0]


def test_probabilities_weigh_beams_and_not_samples():
    texts = ["ganz anders", "ein Haus", "ein Haus!"]
    found = [hypothesis(0.0), hypothesis(-20.0), hypothesis(-20.0)]
    assert rank_by_consensus(found, texts, weighted=True)[0] is found[0]
    assert rank_by_consensus(found, texts, weighted=False)[0] is not found[0]
    assert rank_by_consensus(found[:1], texts[:1], weighted=True) == found[:1]
    assert rank_by_consensus([], [], weighted=True) == []


def test_the_translator_writes_what_its_outputs_agree_on(translator):
    line = sentences(3, seed=5)[1][0]
    outputs = translator.translate(line, n_best=4, beam_size=4)
    found = translator.translate(line, consensus=4, beam_size=4)
    assert found in outputs
    counts = [count_ngrams(text) for text in outputs]
    (result,) = translator.stream([line], consensus=4, beam_size=4, n_best=4)
    assert sorted(text for text, _ in result.alternatives) == sorted(outputs)
    chances = {text: math.exp(score) for text, score in result.alternatives}
    expected = [sum(chances[other] * agreement(one, two) for other, two in zip(outputs, counts)) for one in counts]
    assert found == outputs[expected.index(max(expected))]


def test_a_beam_is_as_wide_as_the_consensus_needs(translator):
    line = sentences(3, seed=5)[0][0]
    assert translator.translate(line, consensus=6, beam_size=1)
    assert translator.translate(line, consensus=1) == translator.translate(line)
    samples = [translator.translate(line, consensus=8, sample=True, seed=seed) for seed in (1, 1)]
    assert samples[0] == samples[1]
