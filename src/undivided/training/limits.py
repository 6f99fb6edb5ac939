"""When a training ends, and how long until then."""

from __future__ import annotations

from undivided.config import TrainConfig
from undivided.core.console import duration, plural
from undivided.training.journal import RunState


def why_finished(state: RunState, config: TrainConfig) -> str:
    """The limit that a training has reached, in words with its flag; empty while it has reached none."""
    if config.minutes and state.seconds >= config.minutes * 60:
        return f"{duration(config.minutes * 60)} of training (--minutes)"
    if config.patience and state.since_best >= config.patience:
        return f"{plural(state.since_best, 'validation')} in a row brought no better score (--patience)"
    if config.max_epochs and state.place.epoch >= config.max_epochs:
        return f"{plural(config.max_epochs, 'epoch')} (--max-epochs)"
    return f"{plural(config.max_steps, 'step')} (--max-steps)" if state.step >= config.max_steps else ""


def seconds_left(state: RunState, config: TrainConfig, epoch_tokens: int) -> float:
    """Until the first limit that can be foreseen, at the recent pace; an epoch has so many predictions."""
    left = [(config.max_steps - state.step) * state.at_this_pace / max(1, state.step)]
    if config.minutes:
        left.append(config.minutes * 60 - state.seconds)
    if config.max_epochs and state.target_tokens:
        done = state.target_tokens / epoch_tokens
        left.append((config.max_epochs - done) * state.at_this_pace / done)
    return max(0.0, min(left))
