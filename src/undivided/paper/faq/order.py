"""Order: a bag of words without positions; sinusoidal, learned, or the bare index; sum or concatenate. [paper 3.5]"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from undivided.config import ModelConfig
from undivided.models import make_model
from undivided.nn.layers import Positions
from undivided.paper.faq.picture import BLACK, BLUE, GREEN, ORANGE, PINK, plot_band
from undivided.paper.faq.question import Answer, Question, format_spread, format_tiny
from undivided.paper.faq.trial import Tagger, accuracy, previous, train_tagger

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SENTENCES = {
    "en": ("the dog chases the cat", "the cat chases the dog"),
    "ko": ("개 가 고양이 를 쫓는다", "고양이 가 개 를 쫓는다"),
}
"""Subject and object swapped; Korean with its particles as words of their own."""

LATIN = {"개": "gae (dog)", "가": "ga", "고양이": "goyangi (cat)", "를": "reul", "쫓는다": "jjonneunda"}
"""For pictures, which have no Korean font to rely on."""


class Bag(NamedTuple):
    """Of one language: how far apart a sentence and its swapped twin are, relative to the states: (no positions, sinusoidal)."""

    words: list[str]
    by_word: tuple[list[float], list[float]]
    pooled: tuple[float, float]


def word_states(positions: str, sentence: str, vocabulary: list[str]) -> tuple[list[str], Tensor]:
    """The words of a sentence in alphabetical order, and the state of each after two encoder layers."""
    torch.manual_seed(1)
    settings = ModelConfig(d_model=32, d_ff=64, n_heads=4, encoder_layers=2, decoder_layers=1, dropout=0.0, positions=positions)  # type: ignore[arg-type]
    model = make_model(settings, len(vocabulary), len(vocabulary)).eval()
    words = sentence.split()
    order = sorted(range(len(words)), key=lambda place: (words[place], place))
    with torch.inference_mode():
        states = model.encode(torch.tensor([[vocabulary.index(word) for word in words]]), None).states[0]
    return [words[place] for place in order], states[order]


def bag(first: str, second: str) -> Bag:
    """The same word in both sentences side by side."""
    vocabulary, by_word, pooled = sorted(set(first.split())), [], []
    words: list[str] = []
    for positions in ("none", "sinusoidal"):
        (words, one), (_, other) = (word_states(positions, sentence, vocabulary) for sentence in (first, second))
        by_word.append(((one - other).norm(dim=-1) / one.norm(dim=-1)).tolist())
        pooled.append(float((one.mean(0) - other.mean(0)).norm() / one.mean(0).norm()))
    return Bag(words, (by_word[0], by_word[1]), (pooled[0], pooled[1]))


def compute_bags(quick: bool) -> dict[str, Bag]:
    """An English and a Korean pair of sentences."""
    return {language: bag(*pair) for language, pair in SENTENCES.items()}


def summarise_bags(found: dict[str, Bag]) -> Answer:
    """Each language a row."""
    rows = []
    fields: dict[str, str] = {}
    for language, each in found.items():
        first, second = SENTENCES[language]
        rows.append([f"`{first}` / `{second}`", format_tiny(each.pooled[0]), format_tiny(each.pooled[1])])
        fields |= {f"{language}_one": first, f"{language}_other": second, f"{language}_apart": f"{each.pooled[1]:.2f}"}
    return Answer(fields, rows)


def draw_bags(found: dict[str, Bag], figure: Figure) -> None:
    """Bars for every word, with and without positions."""
    for axes, (language, each) in zip(figure.subplots(1, 2, sharey=True), found.items(), strict=True):
        for side, (colour, label) in enumerate(((ORANGE, "no positions"), (BLUE, "sinusoidal"))):
            places = [place + 0.38 * side - 0.19 for place in range(len(each.words))]
            axes.bar(places, each.by_word[side], width=0.36, color=colour, label=label)
            for place, value in zip(places, each.by_word[side], strict=True):
                if value < 1e-5:
                    axes.text(place, 0, "0", ha="center", va="bottom", fontsize=8, color=colour)
        labels = [LATIN.get(word, word).replace(" ", "\n") for word in each.words]
        axes.set_xticks(range(len(each.words)), labels, fontsize=8)
        axes.set_title({"en": "English", "ko": "Korean"}[language])
    figure.axes[0].set_ylabel("change of the word's state\nas subject and object swap")
    figure.axes[0].legend(loc="upper left", ncols=2)
    figure.axes[0].set_ylim(0, 1.25 * max(max(each.by_word[1]) for each in found.values()))


KINDS = {"sinusoidal": BLUE, "learned": GREEN, "index": ORANGE, "none": BLACK}
TAUGHT = 12
"""Words of the longest sentence of the small trainings."""

LENGTHS = (6, 9, TAUGHT, 15, 18, 24)


def config(positions: str = "sinusoidal", join: str = "add") -> ModelConfig:
    """One layer that must find the word before each word."""
    return ModelConfig(
        d_model=32, d_ff=64, n_heads=2, encoder_layers=1, dropout=0.0, max_positions=max(LENGTHS),
        positions=positions, join_positions=join,  # type: ignore[arg-type]
    )  # fmt: skip


class Reach(NamedTuple):
    """Of each kind of positions: accuracy for each seed at each length, and the size of what is added at the last place."""

    accuracy: dict[str, list[list[float]]]
    largest: dict[str, float]


def compute_reach(quick: bool) -> Reach:
    """Teach every kind with several seeds."""
    found, largest = {}, {}
    for kind in KINDS:
        runs = []
        for seed in range(1, 2 if quick else 4):
            torch.manual_seed(seed)
            model = Tagger(config(kind))
            train_tagger(model, previous, 30 if quick else 300, seed, TAUGHT)
            runs.append([accuracy(model, previous, length) for length in LENGTHS])
            positions = model.embedding.positions
            largest[kind] = 0.0 if kind == "none" or positions is None else float(positions.rows(TAUGHT)[-1].detach().norm())
        found[kind] = runs
    return Reach(found, largest)


def summarise_reach(found: Reach) -> Answer:
    """Each kind a row."""
    at = [LENGTHS.index(TAUGHT), len(LENGTHS) - 1]
    rows = [
        [f"`{kind}`", *(format_spread([run[place] for run in runs]) for place in at), f"{found.largest[kind]:.1f}"]
        for kind, runs in found.accuracy.items()
    ]
    means = {kind: [sum(run[place] for run in runs) / len(runs) for place in at] for kind, runs in found.accuracy.items()}
    fields = {
        f"{kind}_{name}": f"{100 * mean[side]:.0f}" for kind, mean in means.items() for side, name in enumerate(("in", "out"))
    }
    fields |= {"taught": str(TAUGHT), "longest": str(LENGTHS[-1]), "seeds": str(len(found.accuracy["none"]))}
    fields["norm"] = f"{found.largest['index']:.0f}"
    return Answer(fields, rows)


def draw_reach(found: Reach, figure: Figure) -> None:
    """Accuracy by length, with the longest length that was taught."""
    axes = figure.subplots()
    for (kind, runs), style in zip(found.accuracy.items(), ("o-", "s-", "^-", "d--"), strict=True):
        plot_band(axes, LENGTHS, runs, KINDS[kind], kind, style)
    axes.axvline(TAUGHT, color="#888", lw=1, ls=":")
    axes.text(TAUGHT + 0.2, 0.03, "longest taught", color="#555", fontsize=8)
    axes.set_xticks(LENGTHS)
    axes.set(xlabel="words in the sentence", ylabel="right: the word before", ylim=(0, 1.04))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))


class Joined(NamedTuple):
    """Of adding and concatenating: the losses of each seed, accuracies, parameters."""

    losses: dict[str, list[list[float]]]
    accuracy: dict[str, list[float]]
    parameters: dict[str, int]
    difference: float
    """Between the sum, and concatenation whose projection is two unit matrices side by side."""


def difference_from_sum() -> float:
    """Concatenate, project by (I I), and compare with the sum."""
    joined, added = Positions(config(join="concatenate")), Positions(config())
    x = torch.randn(2, TAUGHT, 32, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        joined.project.weight.copy_(torch.cat([torch.eye(32), torch.eye(32)], dim=1))
        return float((joined(x) - added(x)).abs().max())


def compute_joined(quick: bool) -> Joined:
    """Teach both with several seeds."""
    losses: dict[str, list[list[float]]] = {}
    right, parameters = {}, {}
    for join in ("add", "concatenate"):
        runs = []
        for seed in range(1, 2 if quick else 5):
            torch.manual_seed(seed)
            runs.append(train_tagger(Tagger(config(join=join)), previous, 30 if quick else 200, seed, TAUGHT))
        losses[join] = [smooth(run.losses) for run in runs]
        right[join] = [accuracy(run.model, previous, TAUGHT) for run in runs]
        parameters[join] = sum(part.numel() for part in runs[0].model.parameters())
    return Joined(losses, right, parameters, difference_from_sum())


def smooth(losses: list[float], width: int = 10) -> list[float]:
    """Means of ten steps each."""
    return [sum(losses[at : at + width]) / width for at in range(0, len(losses) - width + 1, width)]


def summarise_joined(found: Joined) -> Answer:
    """Both as rows."""
    rows = [
        [
            f"`{join}`",
            f"{found.parameters[join]:,}",
            format_spread(found.accuracy[join]),
            format_spread([run[-1] for run in found.losses[join]], 3),
        ]
        for join in found.losses
    ]
    more = found.parameters["concatenate"] - found.parameters["add"]
    fields = {"more": f"{more:,}", "difference": format_tiny(found.difference), "seeds": str(len(found.accuracy["add"]))}
    half = len(found.losses["add"][0]) // 2
    fields["half"] = str(10 * half)
    for join, runs in found.losses.items():
        fields[f"{join}_half"] = f"{sum(run[half - 1] for run in runs) / len(runs):.2f}"
        fields[f"{join}_right"] = f"{100 * sum(found.accuracy[join]) / len(runs):.0f}"
    return Answer(fields, rows)


def draw_joined(found: Joined, figure: Figure) -> None:
    """Both learn."""
    axes = figure.subplots()
    for (join, runs), colour in zip(found.losses.items(), (BLUE, PINK), strict=True):
        plot_band(axes, [10 * (step + 1) for step in range(len(runs[0]))], runs, colour, join)
    axes.set(xlabel="steps", ylabel="loss in training", ylim=(0, None))
    axes.legend()


BAG_OF_WORDS = Question("bag-of-words", compute_bags, summarise_bags, draw_bags)
POSITIONS = Question("positions", compute_reach, summarise_reach, draw_reach, (6.4, 3.0))
SUM_OR_CONCATENATE = Question("sum-or-concatenate", compute_joined, summarise_joined, draw_joined, (5.6, 2.8))
