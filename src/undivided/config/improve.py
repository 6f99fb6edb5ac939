"""What `undivided improve` and `undivided tune` may use, and how long they may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from undivided.config.settings import setting


@dataclass(frozen=True)
class ImproveConfig:
    """How a translator is made better by text in one language, and by its own translations."""

    minutes: float = setting(
        120.0,
        "for everything together; each stage takes its share of what is left. 0 = no limit: trainings end by their own settings",
        flags=("--minutes",),
        at_least=0.0,
    )
    target_text: list[str] = setting(
        [], "files of text in the target language alone, to translate back by a reverse model", flags=("--target-text",)
    )
    source_text: list[str] = setting(
        [], "files of text in the source language alone, to translate by the model itself", flags=("--source-text",)
    )
    rounds: int = setting(
        2, "most rounds; another one begins only if the last brought a better validation BLEU", flags=("--rounds",), at_least=1
    )
    back_translation: Literal["beam", "sample"] = setting(
        "beam", "how text is translated back: the most likely translation, or a random sample", flags=("--back-translation",)
    )
    tag: bool = setting(
        True, "mark the sources of text that was translated back, so that the model can tell them from real ones", flags=("--tag",)
    )
    keep: float = setting(
        0.9,
        "share of translations that is kept, by the score of the model that made them",
        flags=("--keep",),
        at_least=0.05,
        at_most=1.0,
    )
    diversify: bool = setting(
        True,
        "translate the training pairs too, in both directions, and learn from these versions beside them",
        flags=("--diversify",),
    )
    originals: float = setting(
        0.25, "least share of an epoch that is pairs which people wrote", flags=("--originals",), at_least=0.0, at_most=0.95
    )
    trials: float = setting(
        0.0,
        "minutes in which each kind of made-up pairs is tried, beside the real ones, before it is used; a kind that brings no "
        "better validation BLEU is left out. 0 = all are used untried",
        flags=("--trials",),
        at_least=0.0,
    )


@dataclass(frozen=True)
class TuneConfig:
    """How settings are tried."""

    minutes: float = setting(
        60.0, "for all trials together; 0 = by steps: the last trial takes train.max_steps", flags=("--minutes",), at_least=0.0
    )
    trials: int = setting(
        8, "settings that are tried; half of them are dropped after each round", flags=("--trials",), at_least=2, at_most=64
    )
