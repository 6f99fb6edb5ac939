"""Word alignment from attention heads."""

import sys

import numpy as np
import pytest
import sentencepiece

from samples import sentences
from undivided.artifact import load_artifact
from undivided.config import TokensConfig
from undivided.core.ids import RESERVED
from undivided.data.subwords import Tokenizer
from undivided.formats.markup import Span, find_words
from undivided.inference.alignment import AligningHead, AttentionAligner, Side, aligning_heads, encode_sides, find_links, join_heads
from undivided.training.alignment import link_texts, measure_alignment

FROZEN = __file__.replace("unit/inference/test_alignment.py", "contract/frozen-1")


def test_only_good_heads_are_used():
    good = {"alignment": {"heads": [[0, 1, "reads"], [1, 0, "writes"]], "error": 0.3}}
    assert aligning_heads(good) == (AligningHead(0, 1, "reads"), AligningHead(1, 0, "writes"))
    for bad in (
        {},
        {"alignment": 3},
        {"alignment": {"heads": [[0, 1, "reads"]], "error": 0.9}},
        {"alignment": {"heads": 7, "error": 0.1}},
        {"alignment": {"heads": [[-1, 0, "reads"], ["0", 1, "reads"], [0, 1, "sings"], [0]], "error": 0.1}},
    ):
        assert aligning_heads(bad) == ()


def test_places_of_subwords_need_no_other_package(monkeypatch):
    """sentencepiece's own protocol buffers need protobuf, which is no dependency."""
    monkeypatch.setitem(sys.modules, "sentencepiece.sentencepiece_pb2", None)
    monkeypatch.setattr(sentencepiece, "_protobuf_loaded", False)
    tokenizer = load_artifact(FROZEN).tokenizer
    assert tokenizer.source.encode_places("a dog")[1][-1][1] == 5


def test_subwords_know_their_characters():
    tokenizer = Tokenizer.learn(lambda: sentences(60), TokensConfig(vocab_size=1000), 60, 1, protect=True)
    text = f"The dog, 日本 {RESERVED[3]} ß."
    ids, places = tokenizer.source.encode_places(text)
    assert [*ids, 3] == tokenizer.source.encode([text])[0]
    assert places[0][0] == 0
    assert places[-1][1] == len(text)
    spelled = [text[start:end].strip() for start, end in places]
    assert RESERVED[3] in spelled
    assert spelled.count("日") == 3
    ours, theirs = encode_sides(tokenizer, "See https://a.org/x now %s.", "%s: https://a.org/x ansehen.")
    symbols = set(tokenizer.source.symbols.values())
    for side, source in ((ours, "See https://a.org/x now %s."), (theirs, "%s: https://a.org/x ansehen.")):
        shown = [source[start:end] for token, (start, end) in zip(side.ids, side.places) if token in symbols]
        assert sorted(shown) == ["%s", "https://a.org/x"]


def test_links_follow_the_attention():
    source = Side([1, 2, 3], [(0, 2), (2, 3), (3, 7)], find_words("abc def"))
    target = Side([1, 2], [(0, 3), (3, 7)], find_words("xyz uvw"))
    links = find_links(np.array([[0.0, 0.1, 0.9], [0.4, 0.4, 0.2]]), source, target)
    assert [(each.source, each.target, round(each.weight, 3)) for each in links] == [
        (Span(0, 3), Span(0, 3), 0.1),
        (Span(4, 7), Span(0, 3), 0.9),
        (Span(0, 3), Span(4, 7), 0.8),
        (Span(4, 7), Span(4, 7), 0.2),
    ]
    assert find_links(np.array([[0.005, 0.005, 0.01], [0.0, 0.0, 0.015]]), source, target) == []


def test_heads_read_and_write():
    layers = np.arange(1 * 2 * 3 * 2, dtype=float).reshape(1, 2, 3, 2)
    assert join_heads(layers, [AligningHead(0, 1, "writes")]).tolist() == [[6, 7], [8, 9]]
    assert join_heads(layers, [AligningHead(0, 1, "reads")]).tolist() == [[8, 9], [10, 11]]
    assert join_heads(layers, [AligningHead(0, 1, "reads"), AligningHead(0, 1, "writes")]).tolist() == [[7, 8], [9, 10]]
    assert join_heads(layers, [AligningHead(5, 0, "reads")]).tolist() == [[0, 0], [0, 0]]


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_heads_are_measured_and_batches_change_nothing():
    artifact = load_artifact(FROZEN)
    pairs = sentences(40)
    facts = measure_alignment(artifact, link_texts(pairs))["alignment"]
    assert 0 < facts["error"] < 1
    heads = [AligningHead(*head) for head in facts["heads"]]
    model = artifact.recipe.model
    assert all(head.layer < model.decoder_layers and head.head < model.n_heads for head in heads)
    aligner = AttentionAligner(artifact, heads)
    together = aligner([*pairs, ("", "x"), ("A dog. " * 300, "x")])
    assert together[-2:] == [None, None]
    assert together[:3] == [aligner([pair])[0] for pair in pairs[:3]]
