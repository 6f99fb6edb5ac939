"""What holds for every model: the recurrent and the convolutional ones in all their options, the Transformer beside them."""

import itertools
import math

import pytest
import torch

from undivided.config import ModelConfig, SearchConfig, build_recipe
from undivided.core.errors import InputError
from undivided.core.ids import BOS, EOS, PAD
from undivided.data.batches import make_batch
from undivided.inference.search import forced_scores, search
from undivided.models import Memory, make_model
from undivided.models.alignment import Alignment, additive_weights, multiplicative_weights
from undivided.models.recurrent import reverse_tokens
from undivided.nn.dropout import seeded_dropout
from undivided.nn.loss import smoothed_loss

CPU = torch.device("cpu")
VOCAB = 24
RECURRENT = [
    {"kind": "recurrent", "cell": cell, "attention": attention, "input_feeding": feeding, "bidirectional": both, "d_hidden": width}
    for cell, (attention, feeding, both, width) in itertools.product(
        ("rnn", "lstm", "gru"),
        [
            ("none", False, False, 0),
            ("none", False, True, 10),
            ("additive", False, True, 0),
            ("additive", True, False, 10),
            ("multiplicative", False, False, 10),
            ("multiplicative", True, True, 0),
        ],
    )
]
RECURRENT += [{"kind": "recurrent", "encoder_layers": 1, "decoder_layers": 3, "tie": "none"}]
CONVOLUTIONAL = [
    {"kind": "convolutional", "kernel_width": 3},
    {"kind": "convolutional", "kernel_width": 4, "d_hidden": 10, "tie": "target"},
    {"kind": "convolutional", "kernel_width": 1, "positions": "learned"},
    {"kind": "convolutional", "kernel_width": 5, "positions": "none", "encoder_layers": 3, "decoder_layers": 1},
    {"kind": "convolutional", "join_positions": "concatenate"},
]
SSRU = [{"decoder_self": "ssru"}, {"decoder_self": "ssru", "norm": "pre", "decoder_layers": 3}]
MODELS = [{"kind": "transformer"}, *SSRU, *RECURRENT, *CONVOLUTIONAL]


def named(changes):
    return "-".join(str(value) for value in changes.values())


EVERY = pytest.mark.parametrize("changes", MODELS, ids=named)
SOURCES = [[5, 6, EOS], [7, 8, 9, 10, 11, 12, EOS], [EOS], [13, 14, 15, EOS]]
TARGETS = [[5, 6, 7, 8, 9, EOS], [7, EOS], [8, 9, EOS], [EOS]]


def tiny(**changes):
    torch.manual_seed(0)
    settings = {"d_model": 16, "d_ff": 32, "n_heads": 4, "encoder_layers": 2, "decoder_layers": 2} | changes
    return make_model(ModelConfig(**settings), VOCAB, VOCAB).eval()


@torch.no_grad()
def states_of(model, sources, targets):
    batch = make_batch(sources, targets)
    memory = model.encode(batch.src, batch.src_mask)
    return memory.states, model.decode(memory, batch.tgt_in)


def softmax(scores):
    return [math.exp(score) / sum(map(math.exp, scores)) for score in scores]


REAL = torch.tensor([[True] * 5, [True, True, False, False, False]])


def naive(score):
    """Weights `B T S` by loops over sentences, queries and real source tokens."""
    weights = torch.zeros(2, 3, 5)
    for b, t in itertools.product(range(2), range(3)):
        real = [s for s in range(5) if REAL[b, s]]
        weights[b, t, real] = torch.tensor(softmax([score(b, t, s) for s in real]))
    return weights


def test_additive_attention_equals_naive_loops():
    torch.manual_seed(0)
    query, key, energy = torch.randn(2, 3, 4), torch.randn(2, 5, 4), torch.randn(4)

    def score(b, t, s):
        return sum(float(energy[d]) * math.tanh(float(query[b, t, d] + key[b, s, d])) for d in range(4))

    torch.testing.assert_close(additive_weights(query, key, energy, REAL), naive(score))


def test_multiplicative_attention_equals_naive_loops():
    """As the convolutional decoder uses it; `dot` of Luong."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 3, 4), torch.randn(2, 5, 4)
    wanted = naive(lambda b, t, s: sum(float(query[b, t, d] * key[b, s, d]) for d in range(4)))
    torch.testing.assert_close(multiplicative_weights(query, key, REAL), wanted)


@pytest.mark.parametrize("kind", ["additive", "multiplicative"])
def test_projected_attention_equals_naive_loops(kind):
    """`general` of Luong and the whole of Bahdanau's, projections and context included."""
    torch.manual_seed(0)
    module = Alignment(kind, 4)
    query, states = torch.randn(2, 3, 4), torch.randn(2, 5, 4)

    def product(matrix, vector):
        return [sum(float(matrix[row, column]) * float(vector[column]) for column in range(4)) for row in range(4)]

    def score(b, t, s):
        key = product(module.key.weight, states[b, s])
        if kind == "multiplicative":
            return sum(float(q) * k for q, k in zip(query[b, t], key))
        asked = [a + float(bias) for a, bias in zip(product(module.query.weight, query[b, t]), module.query.bias)]
        return sum(float(v) * math.tanh(q + k) for v, q, k in zip(module.energy.weight[0], asked, key))

    with torch.no_grad():
        context, weights = module(query, module.key(states), states, REAL)
        wanted = naive(score)
    torch.testing.assert_close(weights, wanted)
    for b, t in itertools.product(range(2), range(3)):
        torch.testing.assert_close(context[b, t], sum(wanted[b, t, s] * states[b, s] for s in range(5)))


@pytest.mark.parametrize(("changes", "kind"), [(RECURRENT[2], "Alignment"), (CONVOLUTIONAL[0], "Attention")], ids=str)
def test_weights_are_seen_by_a_hook(changes, kind):
    """Also in decoding, where the beams of a sentence are its queries."""
    model, seen = tiny(**changes), []
    for module in model.modules():
        if type(module).__name__ == kind:
            module.register_forward_hook(lambda _, __, output: seen.append(output[1]))
    states_of(model, SOURCES, TARGETS)
    search(model, SOURCES[:2], SearchConfig(beam_size=3, max_extra=2), CPU)
    shapes = [tuple(weights.shape) for weights in seen]
    assert shapes[0] == (4, 6, 7)
    assert (2, 3, 7) in shapes
    for weights in seen:
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:2]))


@EVERY
def test_every_layer_of_the_decoder_can_be_read_as_the_last(changes):
    model, batch = tiny(**changes), make_batch(SOURCES, TARGETS)
    with torch.no_grad():
        memory = model.encode(batch.src, batch.src_mask)
        layers = model.decode_layers(memory, batch.tgt_in)
        torch.testing.assert_close(layers[-1], model.decode(memory, batch.tgt_in))
    assert len(layers) == model.config.decoder_layers
    assert all((layer - layers[-1]).abs().max() > 1e-3 for layer in layers[:-1])


@EVERY
def test_no_future_token_changes_an_earlier_output(changes):
    model, tgt_in = tiny(**changes), torch.tensor([[BOS, 5, 6, 7, 8, 9]])
    with torch.no_grad():
        memory = model.encode(torch.tensor([[5, 6, 7, EOS]]), None)
        before = model.decode(memory, tgt_in)
        for place in range(1, 6):
            changed = tgt_in.clone()
            changed[0, place] = 15
            after = model.decode(memory, changed)
            torch.testing.assert_close(after[:, :place], before[:, :place], atol=1e-6, rtol=0)
            assert (after[:, place] - before[:, place]).abs().max() > 1e-4


@EVERY
def test_neither_padding_nor_the_order_of_a_batch_changes_an_output(changes):
    """A pair gives the same states alone as beside longer pairs, whichever side is padded, in any row."""
    model = tiny(**changes)
    for order in ([0, 1, 2, 3], [2, 3, 0, 1]):
        sources, targets = [SOURCES[at] for at in order], [TARGETS[at] for at in order]
        memory, states = states_of(model, sources, targets)
        for row, (source, target) in enumerate(zip(sources, targets)):
            batch = make_batch([source], [target])
            with torch.no_grad():
                alone = model.encode(batch.src, None)
                torch.testing.assert_close(memory[row, : len(source)], alone.states[0], atol=5e-6, rtol=0)
                torch.testing.assert_close(states[row, : len(target)], model.decode(alone, batch.tgt_in)[0], atol=5e-6, rtol=0)


@EVERY
def test_padded_ids_have_no_influence(changes):
    """Whatever stands where the mask says padding, nothing real changes."""
    model = tiny(**changes)
    src, tgt_in = torch.tensor([[5, 6, EOS, PAD, PAD]]), torch.tensor([[BOS, 5, 6]])
    with torch.no_grad():
        before = model.decode(model.encode(src, src != PAD), tgt_in)
        after = model.decode(model.encode(src.masked_fill(src == PAD, 9), src != PAD), tgt_in)
    torch.testing.assert_close(after, before, atol=1e-6, rtol=0)


@EVERY
def test_cached_steps_equal_teacher_forced_decoding(changes):
    """Two beams for each sentence, that change places and sentences on the way."""
    model, length = tiny(**changes), 9
    src = torch.tensor([[5, 6, 7, EOS], [8, 9, EOS, PAD], [10, 11, EOS, PAD]])
    targets = torch.randint(4, VOCAB, (3, 2, length), generator=torch.Generator().manual_seed(1))
    targets[:, :, 0] = BOS
    turns = {3: ([0, 1, 2], [[1, 0], [1, 1], [0, 1]]), 6: ([2, 0], [[0, 1], [1, 1]])}
    with torch.no_grad():
        state = model.start(model.encode(src, src != PAD))
        state, alive = state.select(torch.arange(3), torch.zeros(3, 2, dtype=torch.long)), torch.arange(3)
        for place in range(length):
            if place in turns:
                sentences, parents = map(torch.tensor, turns[place])
                state, alive = state.select(sentences, parents), alive[sentences]
                past = targets[sentences[:, None], parents]
                targets = torch.cat([past[:, :, :place], targets[sentences][:, :, place:]], dim=2)
            logits = model.step(state, targets[:, :, place])
            for row, sentence in enumerate(alive.tolist()):
                memory = model.encode(src[sentence : sentence + 1], (src != PAD)[sentence : sentence + 1])
                for beam in range(2):
                    wanted = model.logits(model.decode(memory, targets[row, beam : beam + 1, : place + 1]))[0, -1]
                    torch.testing.assert_close(logits[row, beam], wanted, atol=1e-5, rtol=1e-4)


@EVERY
def test_every_parameter_takes_part_in_the_loss(changes):
    model, batch = tiny(**changes).train(), make_batch(SOURCES, TARGETS)
    states = model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)
    loss, _ = smoothed_loss(states, model.output_weight, batch.tgt_out, 0.1)
    grads = torch.autograd.grad(loss, list(model.parameters()))
    assert all(bool((grad != 0).any()) for grad in grads)


@EVERY
def test_dropout_is_a_function_of_the_seed(changes):
    model, batch = tiny(**changes, dropout=0.3).train(), make_batch(SOURCES, TARGETS)

    def drawn(seed):
        with seeded_dropout(seed), torch.no_grad():
            return model.decode(model.encode(batch.src, batch.src_mask), batch.tgt_in)

    first = drawn(1)
    torch.manual_seed(5)
    assert torch.equal(drawn(1), first)
    assert not torch.equal(drawn(2), first)


def rows(results):
    return [[hypothesis.tokens for hypothesis in each] for each in results]


@EVERY
@pytest.mark.parametrize("beam", [1, 3])
def test_search_is_that_of_each_sentence_alone_and_its_scores_are_those_of_decoding(changes, beam):
    """Sharpened, so that the sentences of a fresh model differ; in double precision, because that sharpens rounding too."""
    model = tiny(**changes).double()
    with torch.no_grad():
        model.output_weight.mul_(3)
    config = SearchConfig(beam_size=beam, n_best=beam, max_extra=6)
    found = search(model, SOURCES, config, CPU)
    assert rows(found) == [rows(search(model, [source], config, CPU))[0] for source in SOURCES]
    for source, each in zip(SOURCES, found):
        for hypothesis in each:
            ids = [*hypothesis.tokens, EOS] if hypothesis.finished else hypothesis.tokens
            (forced,) = forced_scores(model, [source], [ids], CPU)
            assert hypothesis.log_probability == pytest.approx(sum(forced), abs=1e-4)


def test_turned_twice_is_as_before():
    x = torch.arange(10.0).view(2, 5, 1)
    assert reverse_tokens(x, REAL)[:, :, 0].tolist() == [[4, 3, 2, 1, 0], [6, 5, 7, 8, 9]]
    assert torch.equal(reverse_tokens(reverse_tokens(x, REAL), REAL), x)
    assert torch.equal(reverse_tokens(x, None), reverse_tokens(x, torch.ones(2, 5, dtype=torch.bool)))


@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_fixed_context_is_all_that_the_decoder_sees(bidirectional):
    """The way ahead counts at the last real token, the way back at the first; all other states of the source do not."""
    model = tiny(kind="recurrent", attention="none", bidirectional=bidirectional)
    states, mask = torch.randn(1, 6, 16), torch.tensor([[True] * 4 + [False] * 2])
    tgt_in = torch.tensor([[BOS, 5, 6]])
    counts = torch.zeros(6, 16, dtype=torch.bool)
    counts[3, : 8 if bidirectional else 16] = True
    counts[0, 8:] |= torch.tensor(bidirectional)
    with torch.no_grad():
        before = model.decode(Memory(states, mask), tgt_in)
        for place, half in itertools.product(range(6), (slice(0, 8), slice(8, 16))):
            other = states.clone()
            other[0, place, half] += 1
            moved = (model.decode(Memory(other, mask), tgt_in) - before).abs().amax(dim=-1)
            assert bool((moved > 1e-4).all() if counts[place, half].all() else (moved == 0).all())


def test_attention_sees_every_real_source_state():
    for changes in ({"kind": "recurrent"}, {"kind": "convolutional"}):
        model, tgt_in = tiny(**changes), torch.tensor([[BOS, 5, 6]])
        with torch.no_grad():
            memory = model.encode(torch.tensor([[5, 6, 7, EOS, PAD]]), torch.tensor([[True] * 4 + [False]]))
            before = model.decode(memory, tgt_in)
            for place in range(5):
                other = memory.states.clone()
                other[0, place] += 1
                moved = (model.decode(Memory(other, memory.mask), tgt_in) - before).abs().amax(dim=-1)
                assert bool((moved > 1e-5).all() if place < 4 else (moved == 0).all())


def test_input_feeding_tells_the_next_step_what_was_attended_to():
    """Changed in the first place alone, what the decoder attended to reaches the later states only where it is fed."""
    for feeding in (False, True):
        model = tiny(kind="recurrent", input_feeding=feeding)
        calls = itertools.count()

        def changed(_, __, output, calls=calls, feeding=feeding):
            context = output[0].clone()
            if not feeding or next(calls) == 0:
                context[:, 0] += 1
            return context, output[1]

        src, tgt_in = torch.tensor([[5, 6, EOS]]), torch.tensor([[BOS, 5, 6, 7]])
        with torch.no_grad():
            before = model.decode(model.encode(src, None), tgt_in)
            model.alignment.register_forward_hook(changed)
            moved = (model.decode(model.encode(src, None), tgt_in) - before).abs().amax(dim=-1)[0]
        assert (moved > 1e-5).tolist() == [True, feeding, feeding, feeding]


def test_a_convolutional_encoder_sees_its_neighbourhood():
    model, src = tiny(kind="convolutional", kernel_width=3, encoder_layers=2), torch.tensor([[5, 6, 7, 8, 9, 10, 11, 12, EOS]])
    with torch.no_grad():
        before = model.encode(src, None).states
        src[0, 4] = 20
        moved = (model.encode(src, None).states - before).abs().amax(dim=-1)[0] > 1e-6
    assert moved.tolist() == [abs(place - 4) <= 2 for place in range(9)]


@pytest.mark.parametrize("kind", ["transformer", "recurrent", "convolutional"])
def test_one_matrix_for_two_vocabularies_is_refused(kind):
    config = build_recipe({"model": {"kind": kind, "d_model": 16}}).model
    with pytest.raises(ValueError, match="one matrix cannot serve"):
        make_model(config, 20, 21)


def test_more_tokens_than_learned_positions_are_refused():
    model = tiny(kind="convolutional", positions="learned", max_positions=4)
    with pytest.raises(InputError, match="longer than the 4 learned positions"):
        model.encode(torch.tensor([[5, 6, 7, 8, EOS]]), None)


@pytest.mark.parametrize("kind", ["transformer", "recurrent", "convolutional"])
def test_a_fresh_model_knows_no_more_and_no_less_than_chance(kind):
    torch.manual_seed(0)
    settings = {"kind": kind, "d_model": 128, "encoder_layers": 4, "decoder_layers": 4}
    model = make_model(build_recipe({"model": settings}).model, 1000, 1000).eval()
    src, tgt_in, wanted = (torch.randint(5, 1000, (8, length)) for length in (30, 25, 25))
    with torch.no_grad():
        logits = model.logits(model.decode(model.encode(src, None), tgt_in))
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
    assert math.log(1000) - 0.1 < float(loss) < math.log(1000) + 1.0


def test_a_bias_on_the_logits_is_in_the_loss_too():
    config = ModelConfig(d_model=8, d_ff=16, n_heads=2, encoder_layers=1, decoder_layers=1, dropout=0.0, output_bias=True)
    model = make_model(config, 30, 30)
    with torch.no_grad():
        model.output_bias.normal_()
    states, labels = torch.randn(2, 5, 8), torch.randint(4, 30, (2, 5))
    loss, _ = smoothed_loss(*model.loss_factors(states), labels, 0.1)
    wanted = torch.nn.functional.cross_entropy(
        model.logits(states).flatten(0, 1), labels.flatten(), label_smoothing=0.1, reduction="sum"
    )
    assert torch.allclose(loss, wanted, atol=1e-4)
    loss.backward()
    assert float(model.output_bias.grad.abs().sum()) > 0
