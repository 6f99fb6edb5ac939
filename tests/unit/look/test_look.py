"""What `look` sees is what the model did: weights, candidates, beam tree, lens, saliency."""

import dataclasses
import json
import math
import threading

import numpy as np
import pytest
import torch
from torch import nn

from samples import sentences
from undivided import InputError, Translator
from undivided.artifact import Artifact
from undivided.config import ModelConfig, build_recipe
from undivided.core.ids import BOS, EOS
from undivided.data.batches import make_batch
from undivided.data.subwords import Subwords, Tokenizer, learn_subwords
from undivided.inference.hypothesis import length_penalty
from undivided.look import Look, look
from undivided.look.capture import capture, record_pass
from undivided.look.result import FATES, readable_piece, to_plain_values
from undivided.models import make_model
from undivided.nn.attention import MultiHeadAttention, attend, attention, attention_hook
from undivided.nn.backend import choice

LINES = [source for source, _ in sentences(6, seed=9)]
ODD = ["a", "</script><b>&amp;", "🏳️‍🌈 東京 \u2028 x", "שלום עולם, مرحبا", "▁ \x01", " ".join(LINES), LINES[0]]


@pytest.fixture(scope="module")
def deep(translator):
    """Untrained, with everything that a model can have twice: layers, heads, a window, other positions."""

    def make(**changes):
        torch.manual_seed(3)
        settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 2} | changes
        recipe = build_recipe({"model": settings, "search": {"max_extra": 6}})
        tokenizer = translator.artifact.tokenizer
        return Artifact(recipe, tokenizer, make_model(recipe.model, len(tokenizer.source), len(tokenizer.target)).eval())

    return make


@pytest.fixture(scope="module")
def one(translator):
    return look(translator, LINES[0])


# Watching.


def test_a_watcher_sees_the_weights_of_eq_1_and_changes_no_bit():
    query, key, value = torch.randn(3, 2, 4, 5, 8)
    mask = torch.ones(5, 5, dtype=torch.bool).tril()
    owner, shown = nn.Identity(), []
    with attention_hook(lambda module, weights: (shown.append((module, weights)), weights)[1]):
        watched = attend(query, key, value, mask, owner=owner)
    assert torch.equal(watched, attend(query, key, value, mask, owner=owner))
    [(module, weights)] = shown
    assert module is owner
    torch.testing.assert_close(weights, attention(query, key, value, mask)[1])


def test_long_sequences_are_shown_too():
    query, key, value = torch.randn(3, 1, 1, 200, 4)
    shown = []
    with attention_hook(lambda module, weights: (shown.append(weights), weights)[1]):
        watched = attend(query, key, value, owner=nn.Identity())
    assert shown[0].shape == (1, 1, 200, 200)
    torch.testing.assert_close(watched, attend(query, key, value, owner=nn.Identity()))


def test_a_watcher_may_change_the_weights_and_leaves_nothing_behind():
    query, key, value = torch.randn(3, 2, 4, 5, 8)
    with attention_hook(lambda module, weights: weights * 0):
        assert attend(query, key, value, owner=nn.Identity()).abs().max() == 0
    with pytest.raises(RuntimeError, match="stop"), attention_hook(lambda module, weights: weights * 0):
        raise RuntimeError("stop")
    assert attend(query, key, value, owner=nn.Identity()).abs().max() > 0


def test_other_threads_are_not_watched():
    query, key, value = torch.randn(3, 2, 4, 5, 8)
    shown, other = [], []
    with attention_hook(lambda module, weights: (shown.append(weights), weights)[1]):
        worker = threading.Thread(target=lambda: other.append(attend(query, key, value, owner=nn.Identity())))
        worker.start()
        worker.join()
    assert len(other) == 1
    assert shown == []


@pytest.fixture
def watched_and_not(translator):
    """Translations that somebody watches, and those that nobody does."""

    def both():
        shown = []
        with attention_hook(lambda module, weights: (shown.append(1), weights)[1]):
            seen = list(translator.stream(LINES, n_best=3))
        assert shown
        return seen, list(translator.stream(LINES, n_best=3))

    return both


def test_watching_changes_no_bit_of_a_translation(watched_and_not, monkeypatch):
    """Where PyTorch computes both; the kernels, which show no weights, sum in another order."""
    monkeypatch.setattr(choice, "supports_kernels", lambda *tensors: False)
    seen, unseen = watched_and_not()
    assert seen == unseen


def test_what_is_watched_is_what_the_kernels_find(watched_and_not):
    for seen, unseen in zip(*watched_and_not(), strict=True):
        assert [text for text, _ in seen.alternatives] == [text for text, _ in unseen.alternatives]
        assert [score for _, score in seen.alternatives] == pytest.approx([score for _, score in unseen.alternatives], abs=1e-5)


def test_looking_changes_no_word_of_a_translation(translator, one):
    """Its score may have other last bits: what is watched is computed by plain products."""
    result = next(translator.stream([LINES[0]]))
    assert (one.translation, one.own, one.finished) == (result.text, result.text, result.finished)
    assert one.score == pytest.approx(result.score, abs=1e-5)
    assert next(translator.stream([LINES[0]])) == result


# Attention.


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_rows_sum_to_one_and_masked_cells_are_zero(translator, text):
    result = look(translator, text, beam_size=2)
    for use in ("encoder", "decoder", "cross"):
        weights = result.attention(use)
        assert weights.shape[:2] == (1, 2)
        np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
        assert (weights[..., ~result.mask(use)] == 0).all()
        rows, columns = result.labels(use)
        assert weights.shape[2:] == (len(rows), len(columns))
    assert result.source[-1].piece == "</s>"
    assert translator.artifact.tokenizer.source.decode([[token.id for token in result.source]]) == [text]
    json.dumps(to_plain_values(result), allow_nan=False)


def test_source_and_target_lengths_differ(translator):
    result = look(translator, "a", " ".join(["der Hund"] * 9) + ".")
    assert result.cross.shape[2:] == (len(result.steps), len(result.source))
    assert len(result.steps) > 2 * len(result.source)
    shorter = look(translator, LINES[0], "H")
    assert len(shorter.steps) < len(shorter.source)


def test_a_window_masks_what_is_far(deep):
    result = look(deep(window=4), LINES[0])
    allowed = result.mask("encoder")
    assert allowed[0].tolist()[:4] == [True, True, True, False]
    assert (result.encoder[..., ~allowed] == 0).all()
    assert (result.encoder[..., allowed] > 0).all()
    assert (result.decoder[..., ~result.mask("decoder")] == 0).all()
    assert not result.mask("decoder")[0, 1]
    assert result.mask("cross").all()


def test_every_layer_is_where_it_belongs(deep):
    """The weights of a layer, computed anew from what goes into it."""
    artifact = deep()
    result = look(artifact, LINES[0], "ein Hund")
    assert (result.encoder.shape[:2], result.decoder.shape[:2], result.cross.shape[:2]) == ((3, 4), (2, 4), (2, 4))
    model, inputs = artifact.model, {}
    for name, module in model.named_modules():
        if isinstance(module, MultiHeadAttention) and hasattr(module, "qkv"):
            module.register_forward_hook(lambda module, given, output, name=name: inputs.__setitem__(name, given))
    batch = make_batch([[token.id for token in result.source]], [[token.id for token in result.tgt_out]])
    with torch.no_grad():
        model.decode(model.encode(batch.src, None), batch.tgt_in)
        for use, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
            for number, layer in enumerate(stack):
                x, mask = inputs[f"{use}.{number}.self_attention"]
                module = layer.self_attention
                query, key, value = (module.heads(part) for part in module.qkv(x).split(module.widths, dim=-1))
                wanted = attention(query, key, value, mask)[1][0]
                np.testing.assert_allclose(result.attention(use)[number], wanted, atol=1e-6)


# Words.


def test_tokens_know_their_words(translator):
    result = look(translator, "the dog sees unbekanntes")
    words = {}
    for token in result.source[:-1]:
        words.setdefault(token.word, []).append(token.piece)
    assert ["".join(word).replace("▁", "") for word in words.values()] == ["the", "dog", "sees", "unbekanntes"]
    assert result.source[-1].word == -1
    assert result.tgt_in[0].piece == "<s>"
    assert [token.id for token in result.tgt_in[1:]] == [token.id for token in result.tgt_out[:-1]]
    assert [token.word for token in result.tgt_in[1:]] == [token.word for token in result.tgt_out[:-1]]


def test_pieces_for_people():
    assert [readable_piece(piece) for piece in ("▁dog", "gs", "</s>", "▁", "<0xF0>")] == ["dog", "·gs", "</s>", "␣", "<0xF0>"]


# Predictions.


def test_candidates_are_the_models_distribution(translator, one):
    rows = translator.score([LINES[0]], [one.translation])[0]
    np.testing.assert_allclose([math.log(step.probability) for step in one.steps], rows, atol=1e-5)
    assert one.log_probability == pytest.approx(sum(rows), abs=1e-4)
    assert one.score == pytest.approx(one.log_probability / length_penalty(len(rows), one.facts.length_penalty), abs=1e-5)
    for step in one.steps:
        chances = [candidate.probability for candidate in step.candidates]
        assert chances == sorted(chances, reverse=True)
        assert sum(chances) <= 1 + 1e-5
        assert step.candidates[step.rank - 1].id == step.written.id or step.rank > len(chances)


def test_a_forced_target_is_scored_as_given(translator):
    target = "eine Katze mag den Fluss nachts."
    result = look(translator, LINES[0], target)
    assert result.forced
    assert result.translation == target
    assert result.own == translator.translate(LINES[0])
    ids = translator.artifact.tokenizer.target.encode([target])[0]
    assert [token.id for token in result.tgt_out] == ids
    assert [token.id for token in result.tgt_in] == [BOS, *ids[:-1]]
    rows = translator.score([LINES[0]], [target])[0]
    assert result.log_probability == pytest.approx(sum(rows), abs=1e-4)
    assert max(step.rank for step in result.steps) > 1


def test_the_last_layer_of_the_lens_is_the_prediction(deep):
    result = look(deep(norm="pre"), LINES[0], "ein Hund")
    for step in result.steps:
        assert len(step.lens) == 2
        assert step.lens[-1].probability == pytest.approx(step.probability, rel=1e-5)
        assert [each.id for each in step.lens[-1].candidates] == [each.id for each in step.candidates[:5]]
        assert step.lens[0].candidates != step.lens[1].candidates


# The beam tree.


def paths(result):
    """The tokens and fate of every branch."""
    for number, branch in enumerate(result.beam):
        tokens, at = [], number
        while at >= 0:
            tokens.append(result.beam[at].id)
            at = result.beam[at].parent
        yield tokens[::-1], branch


@pytest.mark.parametrize("beam_size", [1, 2, 4])
def test_the_tree_holds_the_search(translator, beam_size):
    result = look(translator, LINES[0], beam_size=beam_size)
    chosen = [tokens for tokens, branch in paths(result) if branch.fate == "chosen"]
    assert chosen == [[token.id for token in result.tgt_out]]
    on_the_way = [branch for branch in result.beam if branch.best]
    assert [branch.id for branch in on_the_way] == chosen[0]
    assert on_the_way[-1].score == pytest.approx(result.score)
    assert {branch.fate for branch in result.beam} <= set(FATES)
    for length in range(1, len(chosen[0])):
        kept = [
            branch for branch in result.beam if branch.step == length and branch.fate not in ("fell out", "ended too low", "ended")
        ]
        assert len(kept) == beam_size
    parents = {branch.parent for branch in result.beam}
    for number, branch in enumerate(result.beam):
        assert branch.fate in ("continued", "crowded out") or number not in parents
        assert branch.parent < 0 or branch.total <= result.beam[branch.parent].total
        assert len(next(tokens for at, (tokens, _) in enumerate(paths(result)) if at == number)) == branch.step


def test_totals_of_the_tree_are_log_probabilities(translator):
    result = look(translator, LINES[1], beam_size=3)
    target = translator.artifact.tokenizer.target
    ended = [(tokens, branch) for tokens, branch in paths(result) if branch.fate in ("chosen", "ended")]
    assert len(ended) > 1
    for tokens, branch in ended:
        if target.encode(target.decode([tokens[:-1]]))[0] == tokens:
            scores = translator.score([LINES[1]], target.decode([tokens[:-1]]))[0]
            assert branch.total == pytest.approx(sum(scores), abs=1e-4)
    best = max(branch.score for _, branch in ended)
    assert next(branch for _, branch in ended if branch.fate == "chosen").score == best


def test_what_does_not_end_reaches_the_length_limit(deep):
    artifact = deep()
    with torch.no_grad():
        artifact.model.output_weight[EOS] = 0.0
        artifact.model.output_weight[EOS + 1 :, :] += 1.0
        artifact.model.output_weight[EOS] -= artifact.model.output_weight[EOS + 1 :].mean(0) * 50
    config = dataclasses.replace(artifact.recipe.search, max_extra=3)
    result = capture(artifact, "a", config=config)
    assert not result.finished
    assert [branch.fate for branch in result.beam if branch.best][-1] == "chosen"
    assert {"length limit"} <= {branch.fate for branch in result.beam}
    assert len(result.steps) == len(result.source) - 1 + 3
    assert result.tgt_out[-1].id != EOS


# Saliency.


@pytest.mark.parametrize("changes", [{}, {"join_positions": "concatenate"}, {"positions": "none", "norm": "pre"}])
def test_saliency_is_the_slope_as_a_word_fades(deep, changes):
    artifact = deep(**changes)
    result = look(artifact, LINES[0], "ein Hund")
    batch = make_batch([[token.id for token in result.source]], [[token.id for token in result.tgt_out]])
    model = artifact.model.double()

    def log_probabilities(module, place, factor):
        def hook(positions, given):
            return (given[0].index_copy(1, torch.tensor([place]), given[0][:, place, None] * factor), *given[1:])

        handle = None
        with torch.no_grad():
            if module == "source":
                handle = model.source_embedding.positions.register_forward_pre_hook(hook)
            memory = model.encode(batch.src, None)
            if handle is not None:
                handle.remove()
            if module == "target":
                handle = model.target_embedding.positions.register_forward_pre_hook(hook)
            states = model.decode(memory, batch.tgt_in)
            handle.remove()
            return model.logits(states)[0].log_softmax(-1).gather(1, batch.tgt_out[0, :, None])[:, 0]

    for module, values in (("source", result.saliency_source), ("target", result.saliency_target)):
        for place in range(values.shape[1]):
            slope = (log_probabilities(module, place, 1 + 1e-4) - log_probabilities(module, place, 1 - 1e-4)) / 2e-4
            np.testing.assert_allclose(values[:, place], slope, atol=2e-4, rtol=2e-3)


def test_no_saliency_of_the_future(one):
    assert (one.saliency_target[~one.mask("decoder")] == 0).all()
    assert np.abs(one.saliency_source).max() > 0


# Embeddings and positions.


def test_space(translator, one):
    model = translator.artifact.model
    length = len(one.space.positions)
    np.testing.assert_array_equal(one.space.positions, model.source_embedding.positions.rows(length))
    weight = model.source_embedding.weight.detach()
    ids = [token.id for token in one.source]
    for left, right in ((0, 1), (2, 2)):
        wanted = torch.cosine_similarity(weight[ids[left]], weight[ids[right]], dim=0)
        assert one.space.source[left, right] == pytest.approx(float(wanted), abs=1e-5)
    for token, neighbours in zip(one.source, one.space.source_neighbours):
        near = torch.cosine_similarity(weight[token.id], weight, dim=1)
        near[[0, 1, 2, 3, token.id]] = -1
        assert [n.cosine for n in neighbours] == pytest.approx(near.topk(6).values.tolist(), abs=1e-5)
        assert token.piece not in [n.piece for n in neighbours]


@pytest.mark.parametrize("positions", ["learned", "none", "index", "halves"])
def test_other_positions(deep, positions):
    result = look(deep(positions=positions, tie="none", max_positions=30), "the dog", "ein Hund")
    assert (result.space.positions is None) == (positions == "none")
    assert result.space.across is None
    if positions == "learned":
        assert len(result.space.positions) == 30


def test_two_vocabularies(translator):
    sides = [Subwords(learn_subwords(lines, build_recipe({}).tokens, 300, 1)) for lines in zip(*sentences(60))]
    recipe = build_recipe(
        {"model": {"d_model": 8, "d_ff": 8, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "tie": "target"}}
    )
    artifact = Artifact(recipe, Tokenizer(*sides), make_model(recipe.model, *map(len, sides)).eval())
    result = look(artifact, LINES[0], "das Haus")
    assert [token.id for token in result.source] == sides[0].encode([LINES[0]])[0]
    assert [token.id for token in result.tgt_out] == sides[1].encode(["das Haus"])[0]
    assert result.space.across is None


# The result and bad input.


def test_the_result_cannot_be_changed(one):
    assert isinstance(one, Look)
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.text = "other"
    with pytest.raises(ValueError, match="read-only"):
        one.cross[0, 0, 0, 0] = 1.0


def test_plain_values(one):
    values = json.loads(json.dumps(to_plain_values(one), allow_nan=False))
    np.testing.assert_allclose(values["cross"], one.cross, atol=1e-6)
    assert values["steps"][0]["read"]["piece"] == "<s>"
    assert values["beam"][0]["fate"] in FATES


@pytest.mark.parametrize(
    ("text", "target", "options", "said"),
    [
        ("", None, {}, "the text is empty"),
        (" \t", "", {}, "the text is empty.*the target is empty"),
        ("a\nb", None, {}, "several lines"),
        ("x " * 400, None, {}, r"the text has \d+ subwords, but training had at most 256"),
        ("a", None, {"sample": True}, "sampling"),
        ("half \ud83d", None, {}, "surrogate"),
    ],
)
def test_bad_input(translator, text, target, options, said):
    with pytest.raises(InputError, match=said):
        look(translator, text, target, **options)


def test_gradients_and_hooks_leave_no_trace(translator):
    model = translator.artifact.model
    look(translator, LINES[0])
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(module._forward_hooks for module in model.modules())


def test_looking_inside_no_grad_works(translator):
    with torch.no_grad():
        assert np.abs(look(translator, LINES[0]).saliency_source).max() > 0
    with torch.inference_mode():
        assert np.abs(look(translator, LINES[0]).saliency_source).max() > 0


def test_a_pass_is_watched_in_the_order_of_the_layers(deep):
    artifact = deep()
    found = record_pass(artifact.model, make_batch([[5, 6, EOS]], [[7, EOS]]))
    layers = [*artifact.model.encoder, *artifact.model.decoder]
    assert found.owners("encoder") == [layer.self_attention for layer in layers[:3]]
    assert found.owners("decoder") == [layer.self_attention for layer in layers[3:]]
    assert found.owners("cross") == [layer.cross_attention for layer in layers[3:]]


def test_the_default_search_is_the_models_own(translator):
    artifact = translator.artifact
    assert capture(artifact, LINES[2]).score == look(Translator(artifact), LINES[2]).score
    assert ModelConfig().window == 0
