"""The counters of a run, and its log file. [paper 5]"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from undivided.core.errors import InputError
from undivided.core.files import open_append
from undivided.data.batches import StreamPosition
from undivided.nn.device import peak_memory


@dataclass
class Meter:
    """Sums between two log lines."""

    loss_sum: float = 0.0
    likelihood_sum: float = 0.0
    tokens: int = 0
    seconds: float = 0.0
    steps: int = 0
    norm_sum: float = 0.0
    clipped: int = 0

    def add(self, loss: float, likelihood: float, tokens: int, seconds: float) -> None:
        """Count one step."""
        self.loss_sum, self.likelihood_sum = self.loss_sum + loss, self.likelihood_sum + likelihood
        self.tokens, self.seconds = self.tokens + tokens, self.seconds + seconds

    def add_norm(self, norm: float, clip: float) -> None:
        """Count the norm of a step's gradient, as it was before it was clipped; a `clip` of 0 is none."""
        self.steps, self.norm_sum = self.steps + 1, self.norm_sum + norm
        self.clipped += 0 < clip < norm

    def log_entry(self, rate: float, device: torch.device) -> dict[str, float]:
        """The numbers of a log line."""
        steps = max(1, self.steps)
        found = {"loss": self.loss, "perplexity": self.perplexity, "tokens_per_second": self.rate, "rate": rate}
        found |= {"gradient_norm": self.norm_sum / steps, "clipped": self.clipped / steps, "memory_bytes": peak_memory(device)}
        return found

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


@dataclass
class RunState:
    """The counters of a run. All but the seconds are the same however often it was stopped. Checkpoints hold these names."""

    step: int = 0
    place: StreamPosition = field(default_factory=StreamPosition)
    seconds: float = 0.0
    target_tokens: int = 0
    best: float = -1.0
    best_step: int = 0
    since_best: int = 0
    skipped: int = 0
    """Steps in a row, up to this one, whose loss or gradient was not finite."""
    skipped_in_all: int = 0
    rollbacks: int = 0
    rate_factor: float = 1.0
    """Halved at each rollback."""
    fits: int = 0
    """Size of the largest batch that is known to fit into memory; 0 is no limit."""
    meter: Meter = field(default_factory=Meter)
    """Sums since the last log line."""

    @property
    def at_this_pace(self) -> float:
        """Seconds that all steps so far would take at the recent pace: earlier ones may have run beside other work."""
        return self.target_tokens / self.meter.rate if self.meter.tokens else self.seconds

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> RunState:
        """The state that a checkpoint holds; TypeError where it holds another."""
        state = cls(**values)
        return dataclasses.replace(state, place=StreamPosition(**values["place"]), meter=Meter(**values.get("meter", {})))


class Log:
    """The log: a line of JSON for each event, and TensorBoard where asked."""

    def __init__(self, folder: Path | None, tensorboard: bool) -> None:
        self.path = folder / "log.jsonl" if folder is not None else None
        self.board: Any = None
        if folder is None or self.path is None:
            return
        _close_last_line(self.path)
        if tensorboard:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise InputError("TensorBoard is not installed: pip install tensorboard") from None
            self.board = SummaryWriter(folder / "tensorboard")

    def write(self, event: str, state: RunState, **numbers: float | str) -> None:
        """Add one line; nothing in a process that is not the main one."""
        if self.path is None:
            return
        line = {"event": event, "step": state.step, "epoch": state.place.epoch, "seconds": round(state.seconds, 3)}
        line |= {"target_tokens": state.target_tokens, **numbers}
        with open_append(self.path) as stream:
            stream.write(f"{json.dumps(line)}\n".encode())
        if self.board is not None:
            for name, value in numbers.items():
                if isinstance(value, float):
                    self.board.add_scalar(f"{event}/{name}", value, state.step)


def _close_last_line(path: Path) -> None:
    """End a line that a killed process left unfinished, so that the next one is a line of its own."""
    if path.exists() and path.stat().st_size:
        with path.open("rb") as stream:
            stream.seek(-1, os.SEEK_END)
            is_closed = stream.read(1) == b"\n"
        if not is_closed:
            with open_append(path) as stream:
                stream.write(b"\n")


def read_logged_steps(folder: Path) -> dict[int, dict[str, Any]]:
    """What a run logged of its steps, by step; of a step that was taken twice, the last."""
    found = {}
    for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if event["event"] == "step":
                found[int(event["step"])] = event
    return found
