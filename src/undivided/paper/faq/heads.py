"""Why several heads, and why queries, keys and values have projections of their own. [paper 3.2.2]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from undivided.config import ModelConfig
from undivided.nn.attention import attention
from undivided.nn.layers import initialise_linear, sinusoids
from undivided.paper.faq.picture import BLUE, GREEN, ORANGE, PINK, plot_band
from undivided.paper.faq.question import Answer, Question, format_spread
from undivided.paper.faq.trial import WORDS, Tagger, accuracy, previous, train_tagger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH, TAUGHT = 32, 12
HEADS = (1, 2, 8)


def neighbours(words: Tensor) -> Tensor:
    """Three relations at once: is the word before in the upper half of the vocabulary, the one before that, the one behind?"""
    before = previous(words)
    behind = torch.cat([words[:, 1:], words[:, -1:]], dim=1)
    upper = [(each >= WORDS // 2).long() for each in (before, previous(before), behind)]
    return 4 * upper[0] + 2 * upper[1] + upper[2]


class Split(NamedTuple):
    """Of each number of heads: losses and accuracy of each seed, and the number of parameters."""

    losses: dict[int, list[list[float]]]
    accuracy: dict[int, list[float]]
    parameters: dict[int, int]


def train_heads(n_heads: int, steps: int, seed: int) -> tuple[Tagger, list[float]]:
    """One layer of so many heads that learns what stands before and behind."""
    torch.manual_seed(seed)
    config = ModelConfig(d_model=WIDTH, d_ff=128, n_heads=n_heads, encoder_layers=1, dropout=0.0)
    model = Tagger(config)
    return model, train_tagger(model, neighbours, steps, seed, TAUGHT).losses


def steps_of(quick: bool) -> int:
    """Steps of each training."""
    return 40 if quick else 500


def compute_heads(quick: bool) -> Split:
    """The same width, cut into one, two and eight heads."""
    losses: dict[int, list[list[float]]] = {}
    right: dict[int, list[float]] = {}
    parameters = {}
    for n_heads in HEADS:
        runs = [train_heads(n_heads, steps_of(quick), seed) for seed in range(1, 2 if quick else 4)]
        losses[n_heads] = [smooth(run) for _, run in runs]
        right[n_heads] = [accuracy(model, neighbours, TAUGHT) for model, _ in runs]
        parameters[n_heads] = sum(part.numel() for part in runs[0][0].parameters())
    return Split(losses, right, parameters)


def smooth(losses: list[float], width: int = 20) -> list[float]:
    """Means of some steps each."""
    return [sum(losses[at : at + width]) / width for at in range(0, len(losses) - width + 1, width)]


def summarise_heads(found: Split) -> Answer:
    """Each number of heads a row."""
    rows = [[f"`{n}`", str(WIDTH // n), f"{found.parameters[n]:,}", format_spread(found.accuracy[n])] for n in found.accuracy]
    means = {n: sum(runs) / len(runs) for n, runs in found.accuracy.items()}
    fields = {f"right_{n}": f"{100 * mean:.0f}" for n, mean in means.items()}
    return Answer(fields | {"width": str(WIDTH), "words": str(WORDS), "seeds": str(len(found.accuracy[1]))}, rows)


def draw_heads(found: Split, figure: Figure) -> None:
    """Losses over steps."""
    axes = figure.subplots()
    for (n_heads, runs), colour in zip(found.losses.items(), (ORANGE, GREEN, BLUE), strict=True):
        label = "one head" if n_heads == 1 else f"{n_heads} heads"
        plot_band(axes, [20 * (step + 1) for step in range(len(runs[0]))], runs, colour, label)
    axes.set(xlabel="steps", ylabel="loss in training", ylim=(0, None))
    axes.legend()


PROJECTIONS = ("none", "one shared", "Q and K shared", "three")
"""How queries, keys and values are made from the words."""


def place_of_next(words: Tensor) -> Tensor:
    """For every word of a sentence that has each word once: where the next word of the alphabet stands, `a` after the last."""
    return words.argsort(dim=1).gather(1, (words + 1) % WORDS)


def shuffled_alphabets(chance: torch.Generator) -> Tensor:
    """Sentences that have each word once."""
    return torch.rand(64, WORDS, generator=chance).argsort(dim=1)


class OneAttention(nn.Module):
    """Words and places through one attention whose projections are as told, and an answer for every word."""

    def __init__(self, projections: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        count = {"none": 0, "one shared": 1, "Q and K shared": 2, "three": 3}[projections]
        self.matrices = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(count))
        self.output = nn.Linear(WIDTH, WORDS)
        self.chosen = {0: (), 1: (0, 0, 0), 2: (0, 0, 1), 3: (0, 1, 2)}[count]
        for matrix in self.matrices:
            initialise_linear(matrix)  # type: ignore[arg-type]

    def forward(self, words: Tensor) -> Tensor:
        return self.output(self.attend(words)[0])

    def attend(self, words: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted sums, and the weights."""
        x = self.embedding(words) + sinusoids(words.shape[1], WIDTH)
        query, key, value = [self.matrices[each](x) for each in self.chosen] or [x, x, x]
        return attention(query, key, value)


class Projected(NamedTuple):
    """Of each way to project, of each seed."""

    itself: dict[str, list[float]]
    """The weight that a word gives to itself, before training."""
    ahead: dict[str, list[float]]
    """The weight on the next word after training, for each that is on the next or the one before."""
    accuracy: dict[str, list[float]]


def measure_projections(projections: str, steps: int, seed: int) -> tuple[float, float, float]:
    """The weight on oneself before training, how one-sided the weights became, and accuracy."""
    torch.manual_seed(seed)
    model = OneAttention(projections)
    words = shuffled_alphabets(torch.Generator().manual_seed(1000))
    with torch.inference_mode():
        itself = float(model.attend(words)[1].diagonal(dim1=1, dim2=2).mean())
    train_tagger(model, place_of_next, steps, seed, draw=shuffled_alphabets)
    with torch.inference_mode():
        weights, places = model.attend(words)[1], words.argsort(dim=1)
        ahead, back = (weights.gather(2, places.gather(1, (words + by) % WORDS)[..., None]).mean() for by in (1, -1))
        right = (model(words).argmax(dim=-1) == place_of_next(words)).float().mean()
    return itself, float(ahead / (ahead + back)), float(right)


def compute_projections(quick: bool) -> Projected:
    """All four ways over the same seeds."""
    found: dict[str, list[tuple[float, float, float]]] = {
        way: [measure_projections(way, steps_of(quick), seed) for seed in range(1, 2 if quick else 4)] for way in PROJECTIONS
    }
    parts = [{way: [run[part] for run in runs] for way, runs in found.items()} for part in range(3)]
    return Projected(*parts)


def summarise_projections(found: Projected) -> Answer:
    """Each way a row."""
    rows = [[f"`{way}`", *(format_spread(part[way]) for part in found)] for way in PROJECTIONS]
    fields = {"seeds": str(len(found.accuracy["three"])), "words": str(WORDS)}
    for way, name in zip(PROJECTIONS, ("none", "one", "two", "three"), strict=True):
        itself, ahead, right = (sum(part[way]) / len(part[way]) for part in found)
        fields |= {f"itself_{name}": f"{itself:.2f}", f"ahead_{name}": f"{ahead:.2f}", f"right_{name}": f"{100 * right:.0f}"}
    return Answer(fields, rows)


def draw_projections(found: Projected, figure: Figure) -> None:
    """Accuracy, and the weight on oneself, as bars."""
    panels: list[tuple[str, dict[str, list[float]]]] = [
        ("weight on oneself, before training", found.itself), ("right: where the next word stands", found.accuracy),
    ]  # fmt: skip
    for axes, (title, part) in zip(figure.subplots(1, 2), panels, strict=True):
        places: Any = range(len(PROJECTIONS))
        means = [sum(part[way]) / len(part[way]) for way in PROJECTIONS]
        axes.bar(places, means, color=[ORANGE, PINK, GREEN, BLUE], width=0.65)
        for place, value in zip(places, means, strict=True):
            axes.text(place, value, f"{value:.2f}", ha="center", va="bottom", fontsize=8)
        axes.set_xticks(places, ["none", "one\nshared", "Q and K\nshared", "three"])
        axes.set(title=title, ylim=(0, 1.15))


HEADS_QUESTION = Question("heads", compute_heads, summarise_heads, draw_heads, (5.8, 2.8))
PROJECTIONS_QUESTION = Question("projections", compute_projections, summarise_projections, draw_projections)
