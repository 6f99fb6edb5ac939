"""Settings that suit the data and the budget: size, subwords, batches and schedule, from minutes, steps, epochs or nothing.

What a person sets stays; only what nobody has set is chosen here. [paper 5.2, 5.3, Table 3]
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from undivided.config import Recipe, build_recipe
from undivided.config.model import PAIRED
from undivided.config.presets import keep_applicable
from undivided.config.settings import Values, merge
from undivided.core.console import Console, duration, plural
from undivided.data.subword_learning import vocab_size_for
from undivided.models.cost import model_cost

BYTES_PER_TOKEN = 4.2
"""Bytes of UTF-8 in a target token, about the same for German with 4,000 subwords and for Korean."""

USEFUL_TOKENS = 2e6
"""Target tokens that the smallest model must have seen before its translations are of use."""


class Size(NamedTuple):
    """A model that suits a number of target tokens in training, repeated ones included."""

    least_tokens: float
    most_subwords: int
    model: Values


SIZES = (
    Size(0, 4_000, {"d_model": 128, "d_ff": 256, "n_heads": 4, "encoder_layers": 3, "decoder_layers": 3}),
    Size(8e6, 8_000, {"d_model": 128, "d_ff": 512, "n_heads": 4, "encoder_layers": 4, "decoder_layers": 4}),
    Size(60e6, 16_000, {"d_model": 256, "d_ff": 1024, "n_heads": 4, "encoder_layers": 4, "decoder_layers": 4}),
    Size(400e6, 37_000, {"d_model": 512, "d_ff": 2048, "n_heads": 8, "encoder_layers": 6, "decoder_layers": 6}),
)


FITTED = {
    "model": ("norm", "d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "dropout"),
    "tokens": ("vocab_size",),
    "batches": ("tokens",),
    "train": (
        "schedule",
        "rate",
        "warmup_steps",
        "clip",
        "average",
        "keep_last",
        "validate_every",
        "save_every",
        "max_steps",
        "patience",
    ),
    "search": ("length_penalty",),
}
"""What is fitted: another budget has other values."""


class Workload(NamedTuple):
    """What there is to learn from."""

    pairs: int
    target_tokens: int

    @property
    def length(self) -> int:
        """Tokens of a usual sentence."""
        return max(5, min(100, self.target_tokens // max(1, self.pairs)))

    @property
    def largest(self) -> int:
        """The largest size that so few pairs can fill."""
        return 1 if self.pairs < 100_000 else 2 if self.pairs < 1_000_000 else 3

    @property
    def full_epochs(self) -> int:
        """Passes over the data after which more of them bring little."""
        return 40 if self.pairs < 100_000 else 20 if self.pairs < 1_000_000 else 8


def estimate_workload(pairs: int, target_bytes: int) -> Workload:
    """What so many pairs, and bytes on their target sides, are in subwords."""
    return Workload(pairs, int(target_bytes / BYTES_PER_TOKEN) + pairs)


class Fit(NamedTuple):
    """Settings for a budget, and what came of it."""

    settings: Values
    """Below what a person has set."""
    tokens: float
    """Target tokens that training will see."""
    steps: int
    speed: float
    """Target tokens a second, measured; 0 where the budget is not in minutes."""


def has_budget(values: Values) -> bool:
    """Whether a person has said how long to train."""
    given = values.get("train") or {}
    return any(given.get(limit) for limit in ("minutes", "max_steps", "max_epochs"))


def fit_budget(values: Values, work: Workload, subwords: int = 0) -> Fit:
    """Settings for a new model: the largest size that the budget can train well, and a schedule that ends with it."""
    xs = _recipe(values, SIZES[0], work)
    speed = _speed(xs, work) if xs.train.minutes else 0.0
    chosen = SIZES[0]
    for size in reversed(SIZES[: work.largest + 1]):
        chosen = size
        recipe = _recipe(values, size, work)
        if _tokens(values, recipe, work, speed / _relative_cost(recipe, xs, work)) >= size.least_tokens:
            break
    model = {"norm": "pre"} | chosen.model
    settings: Values = {"model": model, "tokens": {"vocab_size": _vocabulary(chosen, work)}, "search": {"length_penalty": 1.0}}
    return _fit_schedule(values, keep_applicable(settings, values), work, subwords)


def fit_fine_tuning(values: Values, work: Workload, subwords: int) -> Fit:
    """A gentle schedule for a model that has learned before: a tenth of the rate, and fewer passes over the data.

    A draft decoder has the fewer passes, too, but has not learned before.
    """
    return _fit_schedule(values, {}, work, subwords, gentle=True)


def fit_clock(values: Values, recipe: Recipe) -> Values:
    """For models whose speed is not measured: a schedule that goes by the clock alone, below what a person has set."""
    if not (values.get("train") or {}).get("minutes"):
        return {}
    schedule = _schedule(recipe, 100 * recipe.train.log_every, gentle=bool(recipe.train.start))
    kept = ("schedule", "rate", "warmup_steps", "clip")
    return {"train": {name: schedule[name] for name in kept} | {"max_steps": 1_000_000, "patience": 0}}


def expect(recipe: Recipe, work: Workload) -> Fit:
    """What a recipe that is fixed comes to in its minutes."""
    speed = _speed(recipe, work)
    tokens = speed * 60 * recipe.train.minutes
    steps = max(1, round(tokens / (recipe.batches.tokens * recipe.batches.accumulate * _SHARE)))
    return Fit({}, tokens, min(steps, recipe.train.max_steps), speed)


def _fit_schedule(values: Values, settings: Values, work: Workload, subwords: int, gentle: bool = False) -> Fit:
    recipe = build_recipe(merge(settings, values))
    vocabulary = subwords or recipe.tokens.vocab_size
    needs_speed = bool(recipe.train.minutes) or not has_budget(values)
    speed = _speed(recipe, work, vocabulary) if needs_speed else 0.0
    tokens = _tokens(values, recipe, work, speed, epochs=8 if gentle else 0)
    batch = _batch_tokens(values, tokens)
    steps = max(1, round(tokens / (batch * _SHARE)))
    if (values.get("train") or {}).get("max_steps"):
        steps = min(steps, recipe.train.max_steps)
        tokens = min(tokens, batch * _SHARE * steps)
    settings = merge(
        settings, {"batches": {"tokens": batch}, "train": _schedule(recipe, steps, gentle and not recipe.train.drafts)}
    )
    if not gentle:
        settings = merge(settings, {"model": {"dropout": _dropout(tokens / work.target_tokens)}})
    if not has_budget(values):
        settings = merge(settings, {"train": {"max_steps": steps, "patience": 8}})
    elif recipe.train.minutes or recipe.train.max_epochs:
        # The time decides; the number of steps only bounds it.
        settings = merge(settings, {"train": {"max_steps": 20 * steps, "patience": 0}})
    else:
        settings = merge(settings, {"train": {"patience": 0}})
    if gentle and not recipe.train.drafts:
        settings = merge(settings, {"train": {"patience": GENTLE_PATIENCE}})
    return Fit(keep_applicable(settings, values), tokens, steps, speed)


GENTLE_PATIENCE = 3
"""Fine-tuning ends after so many validations without a better score: little data is soon learned by heart."""

_SHARE = 0.85
"""Target tokens in a batch for each that its budget allows: the rest is padding, or the source is longer."""


def _schedule(recipe: Recipe, steps: int, gentle: bool) -> dict[str, Any]:
    """A cosine to zero, and everything that is counted in steps. Wide models need lower rates."""
    rate = 0.64 / recipe.model.d_model * (0.1 if gentle else 1.0)
    minutes = recipe.train.minutes
    validations = max(1, min(10, round(minutes / (1 if gentle else 3)))) if minutes else 10
    return {
        "schedule": "cosine",
        "rate": float(f"{rate:.2g}"),
        "warmup_steps": max(1, min(4000, steps // 16)),
        "clip": 1.0,
        "average": 1,
        "keep_last": 3,
        "validate_every": max(100, steps // validations),
        "save_every": max(100, min(1000, steps // 10)),
    }


def _dropout(epochs: float) -> float:
    """More, the more often the model sees each sentence; what was tried is in docs/log.md."""
    return 0.0 if epochs < 14 else 0.1 if epochs < 24 else 0.2 if epochs < 40 else 0.3


def _batch_tokens(values: Values, tokens: float) -> int:
    """Small batches where there is little time: steps count more than tokens."""
    given = (values.get("batches") or {}).get("tokens")
    return int(given) if given else _round_batch(_BATCH * math.sqrt(max(1.0, tokens)))


_BATCH = 0.45
"""Tokens of a batch for each square root of the tokens that training will see."""


def _round_batch(tokens: float) -> int:
    return max(1024, min(25_000, 2 ** round(math.log2(max(1.0, tokens)))))


def _tokens_of_steps(values: Values, steps: int) -> float:
    """Target tokens that so many steps see, with the batches that suit so many tokens."""
    given = (values.get("batches") or {}).get("tokens")
    return int(given or _round_batch(_BATCH**2 * _SHARE * steps)) * _SHARE * steps


def _tokens(values: Values, recipe: Recipe, work: Workload, speed: float, epochs: int = 0) -> float:
    """Target tokens that training will see: those of the budget that ends first."""
    given = values.get("train") or {}
    ends = []
    if recipe.train.minutes:
        ends.append(speed * 60 * recipe.train.minutes)
    if given.get("max_steps"):
        ends.append(_tokens_of_steps(values, recipe.train.max_steps))
    if recipe.train.max_epochs or not ends:
        ends.append(float(work.target_tokens) * (recipe.train.max_epochs or epochs or work.full_epochs))
    return max(1.0, min(ends))


def _recipe(values: Values, size: Size, work: Workload) -> Recipe:
    settings = {
        "model": {"norm": "pre"} | size.model,
        "tokens": {"vocab_size": _vocabulary(size, work)},
        "batches": {"tokens": 1024},
    }
    return build_recipe(merge(keep_applicable(settings, values), values))


def _vocabulary(size: Size, work: Workload) -> int:
    return min(size.most_subwords, vocab_size_for(work.pairs))


def _relative_cost(recipe: Recipe, to: Recipe, work: Workload) -> float:
    """How many times as much a token costs as with another model."""
    one, other = (model_cost(each.model, each.tokens.vocab_size, work.length).step_flops(1, 1) for each in (recipe, to))
    return one / other


def _speed(recipe: Recipe, work: Workload, vocabulary: int = 0) -> float:
    from undivided.nn.device import use_threads
    from undivided.training.speed import tokens_per_second

    use_threads(recipe.train.threads)
    return tokens_per_second(recipe, vocabulary or recipe.tokens.vocab_size or vocab_size_for(work.pairs), work.length)


def describe_fit(fit: Fit, recipe: Recipe, work: Workload) -> str:
    """The choice in one sentence, for people."""
    model, train = recipe.model, recipe.train
    budget = _in_minutes(train.minutes) if train.minutes else plural(fit.steps, "step")
    shape = f"{model.kind} of d_model {model.d_model}" if model.kind in PAIRED else model.kind
    if model.kind == "transformer":
        shape = f"{model.encoder_layers} + {model.decoder_layers} layers of d_model {model.d_model}"
    seen = f"about {plural(fit.steps, 'step')}, {fit.tokens / work.target_tokens:.1f} passes over the data"
    here = f"; {fit.speed:,.0f} target tokens/s on this machine" if fit.speed else ""
    time = f", {duration(fit.tokens / fit.speed)} of training or less" if fit.speed and not train.minutes else ""
    return (
        f"fitted to {budget}: {shape}, batches of {recipe.batches.tokens:,} tokens, cosine schedule from {train.rate:g}: "
        f"{seen}{time}{here} (any setting or --preset changes it)"
    )


def _in_minutes(minutes: float) -> str:
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def warn_if_too_short(fit: Fit, recipe: Recipe, console: Console) -> None:
    """Say so before a training starts that cannot end well, and what it would take."""
    minutes = recipe.train.minutes
    if not minutes:
        return
    if fit.tokens < USEFUL_TOKENS and not recipe.train.start:
        console.warn(
            f"{_in_minutes(minutes)} is too short for a useful model: about {plural(fit.steps, 'step')} on this machine. "
            f"Give it at least --minutes {math.ceil(USEFUL_TOKENS / fit.speed / 60)}; "
            f"--minutes {math.ceil(5 * USEFUL_TOKENS / fit.speed / 60)} is much better"
        )
    elif fit.steps < 2 * recipe.train.warmup_steps:
        enough = math.ceil(4 * minutes * recipe.train.warmup_steps / fit.steps)
        console.warn(
            f"{_in_minutes(minutes)} is about {plural(fit.steps, 'step')} on this machine, but the learning rate rises for "
            f"{recipe.train.warmup_steps:,}: give it at least --minutes {enough}, or leave out --preset and --warmup-steps"
        )


def warn_if_too_few(fit: Fit, recipe: Recipe, work: Workload, console: Console) -> None:
    """The same where steps or passes over the data are the budget, or where there is none and hardly any data."""
    if fit.tokens >= USEFUL_TOKENS or recipe.train.start:
        return
    what, flag, each = plural(fit.steps, "step"), "--max-steps", recipe.batches.tokens * _SHARE
    if recipe.train.max_epochs and fit.tokens >= work.target_tokens * recipe.train.max_epochs:
        what, flag, each = plural(recipe.train.max_epochs, "epoch"), "--max-epochs", float(work.target_tokens)
    least, better = (math.ceil(times * USEFUL_TOKENS / each) for times in (1, 5))
    advice = f"Give it at least {flag} {least}; {flag} {better} is much better"
    if recipe.train.patience:
        what = plural(work.pairs, "pair")
        advice = "Add text (undivided corpus gets some), or fine-tune a model that knows both languages: --from MODEL"
    seen, needed = (f"{round(tokens, -3):,.0f}" for tokens in (fit.tokens, USEFUL_TOKENS))
    is_one = what.startswith("1 ")
    console.warn(
        f"{what} {'is' if is_one else 'are'} too few for a useful model: it learns from {seen} target tokens, repeated ones "
        f"included, and needs {needed} or more. {advice}"
    )
