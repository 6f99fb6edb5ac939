"""What a run counts and writes down as it goes. [paper 5]"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from undivided.batches import Place
from undivided.console import InputError


@dataclass
class RunState:
    """The counters of a run."""

    step: int = 0
    place: Place = field(default_factory=Place)
    seconds: float = 0.0
    target_tokens: int = 0
    best: float = -1.0
    since_best: int = 0
    skipped: int = 0


@dataclass
class Meter:
    """Sums between two log lines."""

    loss_sum: float = 0.0
    likelihood_sum: float = 0.0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, loss: float, likelihood: float, tokens: int, seconds: float) -> None:
        """Count one step."""
        self.loss_sum, self.likelihood_sum = self.loss_sum + loss, self.likelihood_sum + likelihood
        self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds

    @property
    def loss(self) -> float:
        """Mean label-smoothed loss of a token."""
        return self.loss_sum / max(1, self.tokens)

    @property
    def perplexity(self) -> float:
        """exp of the mean negative log-likelihood of a token."""
        return math.exp(min(700.0, self.likelihood_sum / max(1, self.tokens)))

    @property
    def rate(self) -> float:
        """Target tokens a second."""
        return self.tokens / max(1e-9, self.seconds)


class Log:
    """Every logged number as a line of JSON, and for TensorBoard where asked."""

    def __init__(self, folder: Path, tensorboard: bool) -> None:
        self.path = folder / "log.jsonl"
        self.board: Any = None
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise InputError("TensorBoard is an extra: pip install 'undivided[tensorboard]'") from None
            self.board = SummaryWriter(folder / "tensorboard")

    def write(self, event: str, state: RunState, **numbers: float | str) -> None:
        """Add one line."""
        line = {"event": event, "step": state.step, "epoch": state.place.epoch, "seconds": round(state.seconds, 3)}
        line |= {"target_tokens": state.target_tokens, **numbers}
        with self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(line) + "\n")
        if self.board is not None:
            for name, value in numbers.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{event}/{name}", value, state.step)
