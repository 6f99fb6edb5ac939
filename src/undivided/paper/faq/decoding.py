"""What "shifted right" means, how m ≠ n works, and why training is parallel and inference is not. [paper 3.1, 3.2.3]"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig, SearchConfig
from undivided.core.ids import EOS
from undivided.inference.search import search
from undivided.models import Transformer, make_model
from undivided.nn.attention import attention_hook
from undivided.paper.faq.picture import BLUE, GREEN, ORANGE, draw_heat_map
from undivided.paper.faq.question import Answer, Question, format_tiny
from undivided.paper.faq.trial import FIRST_WORD, repeat_words, sentences, train_repeater
from undivided.paper.table1.layers import KINDS, Shape
from undivided.paper.table1.measure import chain_length, time_call

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CPU = torch.device("cpu")
WORD_NAMES = "abcdefgh"


def names(ids: Tensor) -> list[str]:
    """Made-up words as letters."""
    return [{2: "<s>", EOS: "</s>"}.get(word) or WORD_NAMES[word - FIRST_WORD] for word in ids.tolist()]


class Shifted(NamedTuple):
    """One target sentence as the decoder gets it, and what it learns from it: (shifted, not shifted)."""

    tgt_in: list[str]
    tgt_out: list[str]
    influence: list[list[float]]
    """Of input j on output i: the norm of the gradient."""
    losses: tuple[float, float]
    right: tuple[float, float]
    """Share of sentences that are right when the model must write by itself."""


def influence(model: Transformer, sources: list[list[int]]) -> list[list[float]]:
    """How much every output of the decoder depends on every one of its inputs, in shares of the row."""
    batch, seen = repeat_words(sources), []
    handle = model.target_embedding.register_forward_hook(lambda module, inputs, output: seen.append(output))
    states = model.decode(model.encode(batch.src, None), batch.tgt_in)[0]
    handle.remove()
    direction = torch.randn(states.shape[-1], generator=torch.Generator().manual_seed(1))
    rows = []
    for state in states:
        (gradient,) = torch.autograd.grad(state @ direction, seen[0], retain_graph=True)
        sizes = gradient[0].norm(dim=-1)
        rows.append((sizes / sizes.sum()).tolist())
    return rows


def greedy_accuracy(model: Transformer, count: int) -> float:
    """Share of fresh sentences of 4 words that greedy search says twice without a fault."""
    sources = sentences(count, 4, torch.Generator().manual_seed(5))
    found = search(model, [[*source, EOS] for source in sources], SearchConfig(beam_size=1), CPU)
    wanted = [[word for word in source for _ in range(2)] for source in sources]
    return sum(best[0].tokens == target for best, target in zip(found, wanted, strict=True)) / count


def compute_shifted(quick: bool) -> Shifted:
    """Teach both ways."""
    steps = 60 if quick else 400
    (model, loss), (peeking, its_loss) = (train_repeater(shifted, steps) for shifted in (True, False))
    source = [[FIRST_WORD, FIRST_WORD + 1, FIRST_WORD + 2]]
    batch = repeat_words(source)
    return Shifted(
        names(batch.tgt_in[0]),
        names(batch.tgt_out[0]),
        influence(model, source),
        (loss, its_loss),
        (greedy_accuracy(model, 50), greedy_accuracy(peeking, 50)),
    )


def summarise_shifted(found: Shifted) -> Answer:
    """Input above output, position by position."""
    rows = [
        ["`tgt_in`", *(f"`{word}`" for word in found.tgt_in)],
        ["`tgt_out`", *(f"`{word}`" for word in found.tgt_out)],
    ]
    fields = {
        "loss": f"{found.losses[0]:.5f}",
        "loss_peeking": f"{found.losses[1]:.5f}",
        "right": f"{100 * found.right[0]:.0f}",
        "right_peeking": f"{100 * found.right[1]:.0f}",
    }
    return Answer(fields, rows)


def draw_shifted(found: Shifted, figure: Figure) -> None:
    """Who depends on whom."""
    axes = figure.subplots()
    draw_heat_map(axes, found.influence, found.tgt_in, found.tgt_out)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.set(xlabel="decoder input: the target, shifted right", ylabel="to be predicted")


class Crossed(NamedTuple):
    """Encoder-decoder attention over sentences of some lengths, in a model that learned to say every word twice."""

    source: list[str]
    target: list[str]
    weights: list[list[float]]
    shapes: list[tuple[int, int, tuple[int, ...], tuple[int, ...], float]]
    """(n, m, shape of the weights, shape of the states, largest distance of a row's sum from 1)."""


def cross_attention(model: Transformer, source: list[int]) -> tuple[Tensor, Tensor]:
    """The weights `m n` of the last decoder layer, and its states `m D`."""
    caught: list[Tensor] = []

    def watcher(owner: nn.Module, weights: Tensor) -> Tensor:
        if owner is model.decoder[-1].cross_attention:
            caught.append(weights[0].mean(dim=0))
        return weights

    batch = repeat_words([source])
    with torch.inference_mode(), attention_hook(watcher):
        states = model.decode(model.encode(batch.src, None), batch.tgt_in)
    return caught[0], states[0]


def compute_crossed(quick: bool) -> Crossed:
    """Lengths that it was taught, and one that it was not."""
    model, _ = train_repeater(True, 60 if quick else 400)
    shapes = []
    for length in (2, 3, 5, 8):
        weights, states = cross_attention(model, list(range(FIRST_WORD, FIRST_WORD + length)))
        off = float((weights.sum(-1) - 1).abs().max())
        shapes.append((weights.shape[1], weights.shape[0], tuple(weights.shape), tuple(states.shape), off))
    source = [FIRST_WORD + 3, FIRST_WORD, FIRST_WORD + 6, FIRST_WORD + 1]
    batch = repeat_words([source])
    return Crossed(names(batch.src[0]), names(batch.tgt_out[0]), cross_attention(model, source)[0].tolist(), shapes)


def summarise_crossed(found: Crossed) -> Answer:
    """Each pair of lengths a row."""
    rows = [
        [str(n), str(m), *(" × ".join(map(str, shape)) for shape in (weights, states)), format_tiny(off)]
        for n, m, weights, states, off in found.shapes
    ]
    return Answer({"n": str(len(found.source)), "m": str(len(found.target))}, rows)


def draw_crossed(found: Crossed, figure: Figure) -> None:
    """The weights as a matrix that is not square."""
    axes = figure.subplots()
    cells = [[value if value >= 0.005 else 0.0 for value in row] for row in found.weights]
    draw_heat_map(axes, cells, found.source, found.target)
    axes.set(xlabel=f"source: n = {len(found.source)} keys and values", ylabel=f"target: m = {len(found.target)} queries")


class Speed(NamedTuple):
    """Of targets of one length."""

    length: int
    ratio: float
    """Time a token one after the other ÷ time a token all at once."""
    calls: tuple[int, int]
    """Calls of the decoder that wait for each other: (training, inference)."""
    chains: tuple[int, int]
    """Longest chain of operations in a layer in training: (self-attention, recurrent)."""
    difference: float
    """Between the logits of both ways."""


def measure_speed(model: Transformer, length: int) -> Speed:
    """Decode the same tokens in one call, and by one cached step after another."""
    chance = torch.Generator().manual_seed(length)
    src, tgt = (torch.randint(4, 100, (1, length), generator=chance) for _ in range(2))

    def at_once(tokens: Tensor) -> Tensor:
        return model.logits(model.decode(memory, tokens))

    def one_by_one(tokens: Tensor) -> Tensor:
        state = model.start(memory)
        return torch.cat([model.step(state, token) for token in tokens.split(1, dim=1)], dim=1)

    with torch.inference_mode():
        memory = model.encode(src, None)
        difference = float((at_once(tgt) - one_by_one(tgt)).abs().max())
        ratio = time_call(one_by_one, tgt) / time_call(at_once, tgt)
    shape = Shape(length, 4, 3, 8)
    attending, recurring = (chain_length(kind.make(shape, chance), shape) for kind in KINDS[:2])
    return Speed(length, ratio, (1, length), (attending, recurring), difference)


def compute_speed(quick: bool) -> list[Speed]:
    """From short to long targets."""
    torch.manual_seed(1)
    config = ModelConfig(d_model=64, d_ff=256, n_heads=4, encoder_layers=1, decoder_layers=2, dropout=0.0)
    model = make_model(config, 100, 100).eval()
    assert isinstance(model, Transformer)
    return [measure_speed(model, length) for length in ((4, 8, 16) if quick else (4, 16, 64, 256))]


def summarise_speed(found: list[Speed]) -> Answer:
    """Each length a row."""
    rows = [
        [str(each.length), *map(str, each.calls), f"{each.ratio:.1f}", *map(str, each.chains), format_tiny(each.difference)]
        for each in found
    ]
    last = found[-1]
    fields = {
        "length": str(last.length),
        "ratio": f"{last.ratio:.0f}",
        "chain": str(last.chains[0]),
        "recurrent": str(last.chains[1]),
    }
    return Answer(fields, rows)


def draw_speed(found: list[Speed], figure: Figure) -> None:
    """Time a token, and chains."""
    left, right = figure.subplots(1, 2)
    lengths = [each.length for each in found]
    left.plot(lengths, [each.ratio for each in found], "o-", color=ORANGE, label="inference, one by one", ms=4)
    left.axhline(1, color=BLUE, label="training, all at once")
    left.set(title="time a token, training = 1", ylim=(0, None))
    left.legend(loc="upper left")
    chains = (("recurrent layer", 1, ORANGE, "o-"), ("self-attention", 0, GREEN, "s-"))
    for label, side, colour, style in chains:
        right.plot(lengths, [each.chains[side] for each in found], style, color=colour, label=label, ms=4)
    right.set_yscale("log", base=2)
    right.set_title("operations that wait for each other, training")
    right.legend(loc="upper left")
    for axes in (left, right):
        axes.set_xscale("log", base=2)
        axes.set_xticks(lengths, [str(length) for length in lengths])
        axes.set_xlabel("target tokens")


SHIFTED_RIGHT = Question("shifted-right", compute_shifted, summarise_shifted, draw_shifted, (5.0, 3.4))
LENGTHS = Question("lengths", compute_crossed, summarise_crossed, draw_crossed, (4.6, 4.0))
PARALLEL = Question("parallel", compute_speed, summarise_speed, draw_speed, timed=True)
