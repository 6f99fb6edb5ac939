"""Laws of search: exhaustive search, a naive greedy loop, no cache, no batch: all give the same."""

import dataclasses
import itertools
import math

import pytest
import torch

from undivided.config import ModelConfig, SearchConfig
from undivided.core.ids import BOS, EOS, PAD, UNK
from undivided.data.batches import make_batch
from undivided.inference.hypothesis import length_penalty
from undivided.inference.search import draw_tokens, forced_scores, search
from undivided.models import make_model

CPU = torch.device("cpu")
SOURCES = [[5, 6, 7, 8, 9, 10, EOS], [11, 12, EOS], [13, 14, 15, 16, EOS], [EOS], [9, 9, 9, 9, EOS], [20, 21, 22, EOS], [23, EOS]]


def tiny(vocab=24, **changes):
    torch.manual_seed(0)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2} | changes
    return make_model(ModelConfig(**settings), vocab, vocab).eval()


KINDS = [
    {},
    {"decoder_self": "ssru"},
    {"kind": "recurrent", "cell": "gru", "attention": "additive", "input_feeding": True},
    {"kind": "convolutional"},
]


@pytest.fixture(scope="module", params=KINDS, ids=lambda changes: changes.get("kind") or changes.get("decoder_self", "transformer"))
def model(request, half_learned):
    return half_learned(**request.param)


def rows(results):
    return [[hypothesis.tokens for hypothesis in each] for each in results]


def scores(results):
    return [hypothesis.score for each in results for hypothesis in each]


@torch.no_grad()
def log_probabilities(model, source, written):
    """`V`: of the token after some target tokens, computed anew from the start, without cache or batch."""
    memory = model.encode(torch.tensor([source]), None)
    states = model.decode(memory, torch.tensor([[BOS, *written]]))
    return model.logits(states[0, -1]).log_softmax(dim=-1)


@torch.no_grad()
def log_probability(model, source, target):
    states = model.decode(model.encode(torch.tensor([source]), None), torch.tensor([[BOS, *target[:-1]]]))
    ahead = model.logits(states[0]).log_softmax(dim=-1).tolist()
    return sum(row[token] for row, token in zip(ahead, target, strict=True))


def naive_greedy(model, source, limit):
    """The likeliest writable token, again and again; tokens, sum of log-probabilities, and whether it ended."""
    written, total = [], 0.0
    for _ in range(limit):
        ahead = log_probabilities(model, source, written)
        ahead[[PAD, UNK, BOS]] = -math.inf
        token = int(ahead.argmax())
        total += float(ahead[token])
        if token == EOS:
            return written, total, True
        written.append(token)
    return written, total, False


def all_targets(limit):
    """Every sequence over the tokens 4, 5, 6 that ends within the limit, </s> included."""
    return [[*words, EOS] for size in range(limit) for words in itertools.product((4, 5, 6), repeat=size)]


@pytest.mark.parametrize("alpha", [0.0, 0.6, 2.0])
@pytest.mark.parametrize("sharpness", [1.0, 3.0])
@pytest.mark.parametrize("changes", KINDS, ids=lambda changes: changes.get("kind") or changes.get("decoder_self", "transformer"))
def test_beam_search_equals_exhaustive_search(changes, alpha, sharpness):
    """A vocabulary of three tokens and a limit of four: a wide beam must find the best of all 40 targets, in order."""
    model = tiny(vocab=7, **changes)
    with torch.no_grad():
        model.output_weight.mul_(sharpness)
    sources = [[4, EOS], [6, EOS], [5, EOS]]
    config = SearchConfig(beam_size=100, n_best=12, max_extra=3, length_penalty=alpha)
    for source, found in zip(sources, search(model, sources, config, CPU)):
        known = {tuple(target[:-1]): log_probability(model, source, target) for target in all_targets(4)}
        ranked = sorted(((value / length_penalty(len(words) + 1, alpha), words) for words, value in known.items()), reverse=True)
        assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in ranked[:12]], abs=1e-4)
        assert tuple(found[0].tokens) == ranked[0][1]
        for hypothesis in found:
            assert hypothesis.log_probability == pytest.approx(known[tuple(hypothesis.tokens)], abs=1e-4)


def test_a_wide_beam_lists_every_target_once():
    config = SearchConfig(beam_size=100, n_best=40, max_extra=3)
    (found,) = search(tiny(vocab=7), [[4, EOS]], config, CPU)
    assert sorted(hypothesis.tokens for hypothesis in found) == sorted(target[:-1] for target in all_targets(4))


@pytest.mark.parametrize("max_extra", [1, 20])
def test_beam_of_one_equals_a_naive_greedy_loop(model, max_extra):
    found = search(model, SOURCES, SearchConfig(beam_size=1, max_extra=max_extra), CPU)
    for source, (hypothesis,) in zip(SOURCES, found):
        tokens, total, finished = naive_greedy(model, source, len(source) - 1 + max_extra)
        assert (hypothesis.tokens, hypothesis.finished) == (tokens, finished)
        assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)


def test_greedy_search_that_is_cut_equals_the_naive_loop():
    """A fresh model never ends: an output has at most input + `max_extra` tokens, and all of them when it is cut."""
    model = tiny()
    (hypothesis,) = search(model, [[5, 6, EOS]], SearchConfig(beam_size=1, max_extra=4), CPU)[0]
    tokens, total, finished = naive_greedy(model, [5, 6, EOS], 6)
    assert (len(tokens), finished) == (6, False)
    assert (hypothesis.tokens, hypothesis.finished) == (tokens, finished)
    assert hypothesis.log_probability == pytest.approx(total, abs=1e-4)
    assert hypothesis.score == pytest.approx(total / length_penalty(6, 0.6), abs=1e-4)


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_hypotheses_that_are_cut_are_all_different(model, limit):
    """What ends with the last step is not there a second time, cut before its </s>."""
    for source in SOURCES:
        config = SearchConfig(beam_size=6, n_best=6, max_extra=limit - (len(source) - 1))
        (found,) = search(model, [source], config, CPU)
        assert len({tuple(hypothesis.tokens) for hypothesis in found}) == len(found)


MODELS = [
    {"positions": positions, "norm": norm}
    for positions in ("sinusoidal", "halves", "learned", "index", "none")
    for norm in ("post", "pre")
] + [{"window": 1}, {"window": 3}, {"window": 4, "norm": "pre"}, {"join_positions": "concatenate"}, {"d_k": 3, "d_v": 7}]
MODELS += [{"decoder_self": "ssru", "norm": norm} for norm in ("post", "pre")]
MODELS += [{"decoder_self": "ssru", "start": "zero", "output_bias": True, "positions": "marian"}]
MODELS += [{"activation": "swiglu", "attention_bias": True, "tie": "none"}]


@pytest.mark.parametrize("changes", MODELS, ids=str)
def test_cached_steps_equal_uncached_decoding(changes):
    """Two beams for each sentence, that change places and sentences on the way."""
    model, length = tiny(**changes), 9
    src = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD], [10, 11, EOS, PAD]])
    targets = torch.randint(4, 24, (3, 2, length), generator=torch.Generator().manual_seed(1))
    targets[:, :, 0] = BOS
    turns = {3: ([0, 1, 2], [[1, 0], [1, 1], [0, 1]]), 6: ([2, 0], [[0, 1], [1, 1]])}
    with torch.no_grad():
        memory = model.encode(src, src != PAD)
        state = model.start(memory)
        state = state.select(torch.arange(3), torch.zeros(3, 2, dtype=torch.long))
        alive = torch.arange(3)
        for place in range(length):
            if place in turns:
                sentences, parents = map(torch.tensor, turns[place])
                state, alive = state.select(sentences, parents), alive[sentences]
                past = targets[sentences[:, None], parents]
                targets = torch.cat([past[:, :, :place], targets[sentences][:, :, place:]], dim=2)
            logits = model.step(state, targets[:, :, place])
            for row, sentence in enumerate(alive.tolist()):
                for beam in range(2):
                    alone = model.encode(src[sentence : sentence + 1], (src != PAD)[sentence : sentence + 1])
                    wanted = model.logits(model.decode(alone, targets[row, beam : beam + 1, : place + 1]))[0, -1]
                    torch.testing.assert_close(logits[row, beam], wanted, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("config", [SearchConfig(beam_size=1), SearchConfig(), SearchConfig(beam_size=5, n_best=5)], ids=str)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_batch_size_changes_nothing(model, config, size):
    together = search(model, SOURCES, config, CPU)
    parts = [each for start in range(0, len(SOURCES), size) for each in search(model, SOURCES[start : start + size], config, CPU)]
    assert rows(parts) == rows(together)
    assert scores(parts) == pytest.approx(scores(together), abs=1e-4)


def test_order_of_sentences_changes_nothing(model):
    config, order = SearchConfig(n_best=3), [4, 0, 6, 2, 5, 1, 3]
    straight, mixed = (search(model, sources, config, CPU) for sources in (SOURCES, [SOURCES[i] for i in order]))
    assert rows(mixed) == rows([straight[i] for i in order])
    assert scores(mixed) == pytest.approx(scores([straight[i] for i in order]), abs=1e-4)


def test_finished_sentences_leave_the_batch(model, monkeypatch):
    """Steps are taken with fewer and fewer sentences, and no more than the longest needs."""
    widths, step = [], model.step

    def counted(state, tokens):
        widths.append(len(tokens))
        return step(state, tokens)

    monkeypatch.setattr(model, "step", counted)
    found = search(model, SOURCES, SearchConfig(beam_size=1), CPU)
    lengths = [len(each[0].tokens) + 1 for each in found]
    assert widths == [sum(length > place for length in lengths) for place in range(max(lengths))]
    assert len(set(widths)) > 2


def test_n_best_is_sorted_and_scores_are_those_of_its_tokens(model):
    config = SearchConfig(beam_size=6, n_best=6)
    for source, found in zip(SOURCES, search(model, SOURCES, config, CPU)):
        order = [(-hypothesis.finished, -hypothesis.score) for hypothesis in found]
        assert order == sorted(order)
        assert len({tuple(hypothesis.tokens) for hypothesis in found}) == 6
        for hypothesis in found:
            wanted = log_probability(model, source, [*hypothesis.tokens, EOS])
            assert hypothesis.log_probability == pytest.approx(wanted, abs=1e-4)
            assert hypothesis.score == pytest.approx(wanted / length_penalty(len(hypothesis.tokens) + 1, 0.6), abs=1e-4)


def test_length_penalty_favours_longer_translations(model):
    short, long = (search(model, SOURCES, SearchConfig(beam_size=6, length_penalty=alpha), CPU) for alpha in (0.0, 10.0))
    assert sum(len(each[0].tokens) for each in long) > sum(len(each[0].tokens) for each in short)


@pytest.mark.parametrize("beam", [1, 4])
def test_translations_begin_with_their_prefix(model, beam):
    """Some rows have a prefix, some have none; a prefix counts in the score; the greedy rest is the naive loop's."""
    prefixes = [[9, 8], [], [14], [5, 6, 7], [], [], [23, 4, 4, 4]]
    config = SearchConfig(beam_size=beam)
    found = search(model, SOURCES, config, CPU, prefixes=prefixes)
    free = search(model, SOURCES, config, CPU)
    for source, prefix, (hypothesis,), (unforced,) in zip(SOURCES, prefixes, found, free):
        assert hypothesis.tokens[: len(prefix)] == prefix
        if hypothesis.finished:
            wanted = log_probability(model, source, [*hypothesis.tokens, EOS])
            assert hypothesis.log_probability == pytest.approx(wanted, abs=1e-4)
        if not prefix:
            assert hypothesis.tokens == unforced.tokens
        if beam == 1:
            rest = list(prefix)
            while (token := next_writable(model, source, rest)) != EOS and len(rest) < len(source) + 49:
                rest.append(token)
            assert hypothesis.tokens == rest


def next_writable(model, source, written):
    ahead = log_probabilities(model, source, written)
    ahead[[PAD, UNK, BOS]] = -math.inf
    return int(ahead.argmax())


def test_the_translation_as_its_own_prefix_is_the_translation(model):
    config = SearchConfig(beam_size=1)
    found = search(model, SOURCES, config, CPU)
    again = search(model, SOURCES, config, CPU, prefixes=[each[0].tokens[: len(each[0].tokens) // 2 + 1] for each in found])
    assert rows(again) == rows(found)


def test_a_prefix_longer_than_the_limit_is_not_cut(model):
    prefix = [4, 5] * 10
    (hypothesis,) = search(model, [[5, EOS]], SearchConfig(max_extra=2), CPU, prefixes=[prefix])[0]
    assert hypothesis.tokens[:20] == prefix


def test_forced_scores_equal_decoding(model):
    targets = [[9, 8, EOS], [12, 11, EOS], [EOS], [4, EOS], [9, 9, 9, 9, 9, EOS], [22, EOS], [23, EOS]]
    forced = forced_scores(model, SOURCES, targets, CPU)
    for source, target, row in zip(SOURCES, targets, forced):
        assert len(row) == len(target)
        assert sum(row) == pytest.approx(log_probability(model, source, target), abs=1e-4)
        assert row[0] == pytest.approx(float(log_probabilities(model, source, [])[target[0]]), abs=1e-5)


def test_forced_scores_equal_the_search_that_found_them(model):
    found = search(model, SOURCES, SearchConfig(), CPU)
    assert all(each[0].finished for each in found)
    forced = forced_scores(model, SOURCES, [[*each[0].tokens, EOS] for each in found], CPU)
    assert [sum(row) for row in forced] == pytest.approx([each[0].log_probability for each in found], abs=1e-4)


SAMPLING = SearchConfig(sample=True, temperature=1.5, max_extra=10)


@pytest.mark.parametrize("draws", [1, 3])
def test_samples_depend_on_seed_and_key_and_not_on_the_batch(model, draws):
    config = dataclasses.replace(SAMPLING, n_best=draws)
    together = search(model, SOURCES, config, CPU, keys=range(7))
    for key, source in enumerate(SOURCES):
        (alone,) = search(model, [source], config, CPU, keys=[key])
        assert [hypothesis.tokens for hypothesis in alone] == [hypothesis.tokens for hypothesis in together[key]]
        assert scores([alone]) == pytest.approx(scores([together[key]]), abs=1e-4)


def test_other_keys_and_seeds_give_other_samples(model):
    base = rows(search(model, SOURCES, SAMPLING, CPU, keys=range(7)))
    assert rows(search(model, SOURCES, SAMPLING, CPU, keys=range(7))) == base
    assert rows(search(model, SOURCES, SAMPLING, CPU, keys=range(7, 14))) != base
    assert rows(search(model, SOURCES, dataclasses.replace(SAMPLING, seed=2), CPU, keys=range(7))) != base
    same = rows(search(model, [SOURCES[0]] * 5, SAMPLING, CPU))
    assert len({tuple(each[0]) for each in same}) > 1


@pytest.mark.parametrize("changes", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}], ids=str)
@pytest.mark.parametrize("max_extra", [10, 1])
def test_the_safest_sampling_equals_greedy_search(model, changes, max_extra):
    """Also where sentences are cut: both then have the same number of tokens."""
    sampled = search(model, SOURCES, dataclasses.replace(SAMPLING, max_extra=max_extra, **changes), CPU)
    greedy = search(model, SOURCES, SearchConfig(beam_size=1, max_extra=max_extra), CPU)
    assert rows(sampled) == rows(greedy)
    assert scores(sampled) == pytest.approx(scores(greedy), abs=1e-4)


def test_sampling_that_is_cut_equals_greedy_search():
    model, source = tiny(), [[5, 6, EOS]]
    sampled = search(model, source, SearchConfig(sample=True, top_k=1, max_extra=4), CPU)
    greedy = search(model, source, SearchConfig(beam_size=1, max_extra=4), CPU)
    assert not sampled[0][0].finished
    assert rows(sampled) == rows(greedy)


@pytest.mark.parametrize(
    ("changes", "allowed"),
    [
        ({}, 6),
        ({"top_k": 2}, 2),
        ({"top_p": 0.75}, 3),
        ({"top_k": 4, "top_p": 0.5}, 2),
        ({"temperature": 0.5}, 6),
        ({"temperature": 0.5, "top_p": 0.75}, 2),
        ({"temperature": 2.0, "top_k": 3}, 3),
    ],
    ids=str,
)
def test_draws_follow_the_sharpened_and_truncated_distribution(changes, allowed):
    """Evenly spread quantiles draw each token as often as its share says: 0.4, 0.25, 0.15, 0.1, 0.06, 0.04 before changes."""
    probability = torch.tensor([0.1, 0.4, 0.06, 0.25, 0.04, 0.15])
    config = SearchConfig(sample=True, **changes)
    chance = (torch.arange(20_000, dtype=torch.float64) + 0.5) / 20_000
    drawn = draw_tokens(probability.log().expand(1, 20_000, 6), chance[None], config)[0]
    kept = probability.pow(1 / config.temperature).topk(allowed)
    wanted = torch.zeros(6).scatter(0, kept.indices, kept.values / kept.values.sum())
    torch.testing.assert_close(drawn.bincount(minlength=6) / 20_000, wanted, atol=1e-3, rtol=0)


def test_special_tokens_are_never_written():
    """Even where the model holds them likeliest."""
    model = tiny(tie="none")
    with torch.no_grad():
        model.output_weight[[PAD, UNK, BOS]] = 5 * model.output_weight[4]
    for config in (SearchConfig(max_extra=8), SearchConfig(max_extra=8, sample=True, n_best=4)):
        for each in search(model, SOURCES, config, CPU):
            assert all(token > EOS for hypothesis in each for token in hypothesis.tokens)


def test_make_batch_and_search_see_the_same_source(model):
    """The mask that search makes of ids is that of training."""
    batch = make_batch(SOURCES, [[EOS]] * 7)
    with torch.no_grad():
        states = model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)
        first = model.logits(states[:, 0]).log_softmax(dim=-1)[:, EOS].tolist()
    assert [row[0] for row in forced_scores(model, SOURCES, [[EOS]] * 7, CPU)] == pytest.approx(first, abs=1e-5)
