"""One word, two meanings: how its vector moves through the layers. [paper 3.2.3, 4]"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from undivided.config import ModelConfig
from undivided.paper.faq.picture import BLUE, ORANGE
from undivided.paper.faq.question import Answer, Question, format_spread
from undivided.paper.faq.trial import Tagger, optimizer_step

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LESSONS: dict[str, list[tuple[str, str]]] = {
    "apple": [
        ("i eat an apple", "FRUIT"), ("she peels an apple", "FRUIT"), ("the apple tastes sweet", "FRUIT"),
        ("an apple on the tree", "FRUIT"),
        ("apple sells a phone", "COMPANY"), ("the phone from apple", "COMPANY"), ("apple opens a store", "COMPANY"),
        ("a store of apple", "COMPANY"),
    ],
    "쓰다": [
        ("편지 를 쓰다", "WRITE"), ("시 를 쓰다", "WRITE"), ("이름 을 쓰다", "WRITE"),
        ("모자 를 쓰다", "WEAR"), ("안경 을 쓰다", "WEAR"), ("우산 을 쓰다", "WEAR"),
        ("약 이 쓰다", "BITTER"), ("커피 가 쓰다", "BITTER"), ("나물 이 쓰다", "BITTER"),
    ],
}  # fmt: skip
"""Sentences, and what the word means in each. Every other word means itself."""

LAYERS = 3


class Moved(NamedTuple):
    """Of each word, for each seed: cosines of its vectors behind the embedding and behind each layer."""

    same: dict[str, list[list[float]]]
    """In two sentences of one meaning."""
    other: dict[str, list[list[float]]]
    """In two sentences of different meanings."""
    right: dict[str, list[float]]
    """The share of its meanings that are told right."""


class Lesson(NamedTuple):
    """Sentences as ids with the tags of their words, by length; and where the word stands in each."""

    rows: list[tuple[Tensor, Tensor]]
    places: list[int]
    meanings: list[str]
    words: int


def make_lesson(word: str) -> Lesson:
    """Ids for words and meanings."""
    sentences = LESSONS[word]
    names = sorted({each for text, _ in sentences for each in text.split()} | {meaning for _, meaning in sentences})
    ids = {name: place for place, name in enumerate(names)}
    rows = []
    for text, meaning in sentences:
        words = text.split()
        tags = [ids[meaning if each == word else each] for each in words]
        rows.append((torch.tensor([[ids[each] for each in words]]), torch.tensor([tags])))
    places = [text.split().index(word) for text, _ in sentences]
    return Lesson(rows, places, [meaning for _, meaning in sentences], len(names))


def teach(lesson: Lesson, steps: int, seed: int) -> Tagger:
    """A tagger that learns what every word means."""
    torch.manual_seed(seed)
    # Positions are left out, so that the vector of a word differs by its company alone.
    config = ModelConfig(d_model=32, d_ff=64, n_heads=4, encoder_layers=LAYERS, dropout=0.0, positions="none")
    model = Tagger(config, lesson.words)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003, betas=(0.9, 0.98))
    for step in range(steps):
        losses = [F.cross_entropy(model(words)[0], tags[0]) for words, tags in lesson.rows]
        optimizer_step(model, optimizer, torch.stack(losses).mean(), 0.003 * min(1, (step + 1) / 20))
    return model.eval()


def vectors(model: Tagger, words: Tensor, place: int) -> list[Tensor]:
    """The vector of one word behind the embedding and behind each layer."""
    with torch.inference_mode():
        x = model.embedding(words)
        found = [x[0, place]]
        for layer in model.layers:
            x = layer(x, None)
            found.append(x[0, place])
    return found


def measure(word: str, steps: int, seed: int) -> tuple[list[float], list[float], float]:
    """Cosines between sentences of one meaning, of different meanings, and the share that is told right."""
    lesson = make_lesson(word)
    model = teach(lesson, steps, seed)
    seen = [vectors(model, words, place) for (words, _), place in zip(lesson.rows, lesson.places, strict=True)]
    pairs: dict[bool, list[list[float]]] = {True: [], False: []}
    for one in range(len(seen)):
        for two in range(one):
            cosines = [float(F.cosine_similarity(a, b, dim=0)) for a, b in zip(seen[one], seen[two], strict=True)]
            pairs[lesson.meanings[one] == lesson.meanings[two]].append(cosines)
    same, other = ([sum(column) / len(column) for column in zip(*pairs[key], strict=True)] for key in (True, False))
    with torch.inference_mode():
        told = [
            int(model(words)[0, place].argmax()) == int(tags[0, place])
            for (words, tags), place in zip(lesson.rows, lesson.places, strict=True)
        ]
    return same, other, sum(told) / len(told)


def compute(quick: bool) -> Moved:
    """Both words with several seeds."""
    runs = {word: [measure(word, 20 if quick else 60, seed) for seed in range(1, 2 if quick else 4)] for word in LESSONS}
    return Moved(*({word: [run[part] for run in each] for word, each in runs.items()} for part in range(3)))  # type: ignore[arg-type]


def summarise(found: Moved) -> Answer:
    """Each word and layer a row."""
    rows, fields = [], {"seeds": str(len(found.right["apple"]))}
    for word, name in zip(LESSONS, ("apple", "ko"), strict=True):
        for layer in range(LAYERS + 1):
            cells = [format_spread([run[layer] for run in part[word]]) for part in (found.same, found.other)]
            rows.append([f"`{word}` `{layer}`", *cells])
        last = [sum(run[-1] for run in part[word]) / len(part[word]) for part in (found.same, found.other)]
        fields |= {f"{name}_same": f"{last[0]:.2f}", f"{name}_other": f"{last[1]:.2f}"}
        fields[f"{name}_right"] = f"{100 * sum(found.right[word]) / len(found.right[word]):.0f}"
    return Answer(fields | {"layers": str(LAYERS)}, rows)


def draw(found: Moved, figure: Figure) -> None:
    """A panel for each word."""
    for axes, word, title in zip(
        figure.subplots(1, 2, sharey=True), LESSONS, ("apple", "sseuda (write, wear, bitter)"), strict=True
    ):
        for part, label, colour in ((found.same, "one meaning", BLUE), (found.other, "different meanings", ORANGE)):
            for run in part[word]:
                axes.plot(range(LAYERS + 1), run, "o-", color=colour, ms=4, lw=1.3, label=label if run is part[word][0] else None)
        axes.set_xticks(range(LAYERS + 1), ["embedding", *(f"layer {layer}" for layer in range(1, LAYERS + 1))], fontsize=8)
        axes.set(title=title, ylim=(-0.6, 1.1))
    figure.axes[0].set_ylabel("cosine of its vectors\nin two sentences")
    figure.axes[0].legend(loc="lower left")


CONTEXTS = Question("contexts", compute, summarise, draw)
