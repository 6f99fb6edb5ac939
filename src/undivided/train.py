"""Batches → loss → step → validate → save, until done; then the model folder. [paper 5]"""

from __future__ import annotations

import dataclasses
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from undivided import __version__, checkpoint
from undivided.artifact import fill, weights
from undivided.batches import Place
from undivided.config import Recipe
from undivided.console import Console, InputError, UndividedError, duration, plural
from undivided.device import Crew, choose_device, choose_precision, one_thread, use_threads
from undivided.dropout import seeded_dropout
from undivided.journal import Log, Meter, RunState
from undivided.prepare import prepare_recipe
from undivided.schedule import learning_rate, make_optimizer
from undivided.settings import Values
from undivided.tasks import Measured, make_task
from undivided.tokens import random_bits


class Stopped(UndividedError):
    """Training was asked to stop; everything is saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.exit_code = 128 + number


def train(values: Values, console: Console | None = None) -> Path:
    """Learn a model from what a recipe says, or go on where `train.out` was left. The model folder."""
    console = console or Console()
    plan = prepare_recipe(values, console)
    use_threads(plan.recipe.train.threads)
    with plan.begun():
        trainer = Trainer(plan.recipe, plan.folder.parent, console)
        if plan.record is None:
            trainer.resume()
        with trainer.stop_on_signals():
            trainer.run()
    return plan.folder.parent


class ShardResult(NamedTuple):
    """What one worker gives for one step."""

    gradients: tuple[Tensor, ...]
    loss: float
    likelihood: float
    tokens: int


class Trainer:
    """One training run."""

    def __init__(self, recipe: Recipe, out: Path, console: Console) -> None:
        self.recipe, self.config, self.console = recipe, recipe.train, console
        self.out, self.folder = out, out / "training"
        self.device = choose_device(self.config.device)
        self.precision = choose_precision(self.config.precision, self.device)
        torch.manual_seed(self.config.seed)
        self.task = make_task(recipe, self.folder, self.device, console)
        self.model = self.task.model
        self.names = [name for name, _ in self.model.named_parameters()]
        self.parameters = list(self.model.parameters())
        self.optimizer = make_optimizer(self.model, self.config)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.precision is torch.float16)
        self.ema = [p.detach().clone() for p in self.parameters] if self.config.ema else []
        self.state = RunState()
        self.log = Log(self.folder, self.config.tensorboard)
        self._stop_signal = 0
        self.crew = Crew(torch.get_num_threads() if self.device.type == "cpu" else 1)
        console.say(f"{self._size() / 1e6:.1f} M parameters on {self.device}, {self.task}")

    def _size(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters)

    def run(self) -> None:
        """Train until a limit is reached, then write the final model."""
        self.model.train()
        meter = Meter()
        plans = self.task.stream.plans()
        while not self._finished():
            began = time.monotonic()
            loss, likelihood, tokens = self._step(plans)
            spent = time.monotonic() - began
            self.state.seconds += spent
            meter.add(loss, likelihood, tokens, spent)
            self.console.status(self._line(meter))
            if self.state.step % self.config.log_every == 0:
                self._log_step(meter)
                meter = Meter()
            # In this order, a checkpoint remembers the validation of its step, and a stop loses neither.
            if self.state.step % self.config.validate_every == 0:
                self._validate()
            if self.state.step % self.config.save_every == 0:
                self.save()
            if self._stop_signal:
                self._stop()
        self.save()
        if self._stop_signal:
            self._stop()
        self._finish()

    def _finished(self) -> bool:
        state, config = self.state, self.config
        return (
            state.step >= config.max_steps
            or bool(config.max_epochs and state.place.epoch >= config.max_epochs)
            or bool(config.minutes and state.seconds >= config.minutes * 60)
            or bool(config.patience and state.since_best >= config.patience)
        )

    def _step(self, plans: Iterator[tuple[np.ndarray, Place]]) -> tuple[float, float, int]:
        """One update: sums of loss and negative log-likelihood, and the target tokens they are over."""
        self.state.step += 1
        results = self.crew.map(lambda numbered: self._gradients(*numbered), enumerate(self._next_shards(plans)))
        tokens = sum(result.tokens for result in results)
        self.state.target_tokens += tokens
        with one_thread():
            self._gather(results, tokens)
            self._update()
        return sum(result.loss for result in results), sum(result.likelihood for result in results), tokens

    def _gather(self, results: list[ShardResult], tokens: int) -> None:
        """The gradient of the mean over all tokens of a step."""
        total = list(results[0].gradients)
        for result in results[1:]:
            torch._foreach_add_(total, list(result.gradients))
        torch._foreach_mul_(total, self.recipe.batches.tokens / tokens)
        for parameter, gradient in zip(self.parameters, total, strict=True):
            parameter.grad = gradient

    def _next_shards(self, plans: Iterator[tuple[np.ndarray, Place]]) -> list[np.ndarray]:
        """The pairs of a step, those of each batch dealt out among the crew."""
        shards: list[np.ndarray] = []
        for _ in range(self.recipe.batches.accumulate):
            plan, self.state.place = next(plans)
            shards += [plan[worker :: self.crew.size] for worker in range(min(self.crew.size, len(plan)))]
        return shards

    def _gradients(self, number: int, shard: np.ndarray) -> ShardResult:
        """The loss of a shard as a sum over its tokens, and its gradients over the token budget. [paper 3.1, 5.4]"""
        key = (self.config.seed, self.state.step, number)
        half = torch.autocast(self.device.type, self.precision, enabled=self.precision is not torch.float32)
        with half, seeded_dropout(int(random_bits(1, *key)[0])):
            loss, likelihood, tokens = self.task.loss(shard, *key)
        # Over the budget, not yet over the tokens of the step: float16 gradients of a bare sum would overflow.
        scaled = self.scaler.scale(loss / self.recipe.batches.tokens)
        gradients = torch.autograd.grad(scaled, self.parameters)
        return ShardResult(gradients, float(loss.detach()), float(likelihood), tokens)

    def _update(self) -> None:
        """Take the step, unless a gradient is not finite: such a step is skipped and counted."""
        rate = learning_rate(self.state.step, self.config, self.recipe.model.d_model, self.state.seconds)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.unscale_(self.optimizer)
        norm = nn.utils.clip_grad_norm_(self.parameters, self.config.clip or math.inf)
        if bool(norm.isfinite()):
            self.scaler.step(self.optimizer)
            self.state.skipped = 0
        else:
            self.state.skipped += 1
            self.console.warn(f"step {self.state.step}: the gradient is not finite, the step is skipped")
            if self.state.skipped >= 20:
                raise UndividedError("20 steps in a row had no finite gradient: lower train.rate, or set train.clip to 1")
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema:
            torch._foreach_lerp_(self.ema, [p.detach() for p in self.parameters], 1 - self.config.ema)

    def _line(self, meter: Meter) -> str:
        state = self.state
        return (
            f"step {state.step:,}, epoch {state.place.epoch + 1}, loss {meter.loss:.3f}, perplexity {meter.perplexity:.2f}, "
            f"{meter.rate:,.0f} tokens/s, {duration(self._seconds_left())} left"
        )

    def _seconds_left(self) -> float:
        state, config = self.state, self.config
        left = [(config.max_steps - state.step) * state.seconds / max(1, state.step)]
        if config.minutes:
            left.append(config.minutes * 60 - state.seconds)
        if config.max_epochs and state.target_tokens:
            done = state.target_tokens / self.task.epoch_tokens
            left.append((config.max_epochs - done) * state.seconds / done)
        return max(0.0, min(left))

    def _log_step(self, meter: Meter) -> None:
        rate = self.optimizer.param_groups[0]["lr"]
        self.console.say(f"{self._line(meter)}, rate {rate:.2e}")
        self.log.write("step", self.state, loss=meter.loss, perplexity=meter.perplexity, tokens_per_second=meter.rate, rate=rate)

    @contextmanager
    def _averaged(self) -> Iterator[None]:
        """For a while, the model has its running-average weights, if such are kept."""
        own = [parameter.detach().clone() for parameter in self.parameters] if self.ema else []
        _assign(self.model, self.ema)
        self.model.eval()
        try:
            yield
        finally:
            _assign(self.model, own)
            self.model.train()

    def _validate(self) -> None:
        """Measure on held-out data; the best model so far becomes the model folder."""
        began = time.monotonic()
        with self._averaged():
            measured = self.task.measure()
            if measured is None:
                return
            better = measured.quality.score > self.state.best
            self.state.since_best = 0 if better else self.state.since_best + 1
            if better:
                self.state.best = measured.quality.score
                self._export(measured, f"step {self.state.step}")
        spent, note = duration(time.monotonic() - began), " (best so far)" if better else ""
        self.console.say(f"validation at step {self.state.step:,}: {measured}{note}, in {spent}")
        self.log.write("validation", self.state, **measured.logged())

    def save(self) -> None:
        """Write a checkpoint, then remove what is too old."""
        tensors = {
            "model": weights(self.model),
            "optimizer": checkpoint.optimizer_tensors(self.optimizer, self.names),
            "random": checkpoint.random_tensors(),
        }
        if self.ema:
            tensors["ema"] = dict(zip(self.names, self.ema, strict=True))
        state = asdict(self.state) | {"scaler": self.scaler.state_dict()}
        folder = self.folder / "checkpoints"
        checkpoint.write(folder, self.state.step, checkpoint.Checkpoint(state, tensors))
        checkpoint.prune(folder, max(self.config.keep_last, self.config.average))

    def resume(self) -> None:
        """Take up the newest whole checkpoint."""
        found = checkpoint.newest(self.folder / "checkpoints", self.console)
        if found is None:
            self.console.say("no checkpoint was written yet: training begins at step 1")
            return
        fill(self.model, found.tensors["model"], "checkpoint")
        checkpoint.fill_optimizer(self.optimizer, self.names, found.tensors["optimizer"])
        checkpoint.fill_random(found.tensors["random"])
        if self.ema:
            self.ema = [found.tensors["ema"][name].to(self.device) for name in self.names]
        state = dict(found.state)
        self.scaler.load_state_dict(state.pop("scaler"))
        try:
            self.state = RunState(**{**state, "place": Place(**state["place"])})
        except TypeError as error:
            raise InputError(f"{self.out}: begun with another version of undivided, whose checkpoints differ: {error}") from None
        self.task.stream.place = dataclasses.replace(self.state.place)
        self.console.say(f"resumed at step {self.state.step:,}")
        self.log.write("resume", self.state)

    @contextmanager
    def stop_on_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask training to stop after the step it is in."""

        def ask(number: int, _: object) -> None:
            if self._stop_signal:
                raise KeyboardInterrupt
            self._stop_signal = number
            self.console.warn("stopping after this step (once more: at once) …")

        heard = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, ask) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self) -> None:
        self.save()
        raise Stopped(
            self._stop_signal, f"stopped and saved at step {self.state.step:,}; go on with: undivided train --out {self.out}"
        )

    def _finish(self) -> None:
        """The final model: averaged weights, unless validation liked a single checkpoint better. [paper 6.1]"""
        self.console.clear()
        last = checkpoint.paths(self.folder / "checkpoints")[-self.config.average :]
        if self.ema:
            _assign(self.model, self.ema)
            kind = f"running average, decay {self.config.ema}"
        else:
            fill(self.model, checkpoint.average_weights(last), "averaged checkpoints")
            kind = f"average of the last {plural(len(last), 'checkpoint')}"
        self.model.eval()
        measured = self.task.measure()
        if measured is not None:
            self.console.say(f"{kind}: validation {measured}")
            self.log.write("final", self.state, **measured.logged())
        if measured is None or measured.quality.score >= self.state.best:
            self._export(measured, kind)
        else:
            self.console.say(f"kept the checkpoint with validation {measured.quality.name} {self.state.best:.2f}, which is better")
        self.console.say(f"the model is in {self.out}; translate with: undivided translate {self.out} < FILE")

    def _export(self, measured: Measured | None, kind: str) -> None:
        """Write the model folder with what was measured."""
        state, scores = self.state, {}
        if measured is not None:
            quality = measured.quality
            scores[f"validation {quality.name}"] = {"score": round(quality.score, 2), "signature": quality.signature}
        facts = {
            "scores": scores,
            "weights": kind,
            "parameters": self._size(),
            "steps": state.step,
            "epochs": state.place.epoch,
            "target_tokens": state.target_tokens,
            "seconds": round(state.seconds, 1),
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "undivided": __version__,
            "torch": torch.__version__,
        }
        self.task.export(self.out, facts | self.task.facts())


def _assign(model: nn.Module, tensors: list[Tensor]) -> None:
    with torch.no_grad():
        for parameter, tensor in zip(model.parameters(), tensors, strict=False):
            parameter.copy_(tensor)
