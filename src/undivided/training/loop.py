"""Batches → loss → step → validate → save, until done; then the model folder. [paper 5]"""

from __future__ import annotations

import io
import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import nn

from undivided import __version__
from undivided.artifact.card import usage
from undivided.artifact.weights import fill_weights
from undivided.config import Recipe, build_recipe
from undivided.config.settings import Values
from undivided.core.console import Console, duration, plural
from undivided.core.errors import UndividedError
from undivided.data.batches import StreamPosition
from undivided.nn import backend
from undivided.nn.backend import choose_precision
from undivided.nn.device import one_thread, use_threads
from undivided.training import checkpoint
from undivided.training.distributed import Group, full_tensor, join_processes, local_rows
from undivided.training.journal import Log, Meter
from undivided.training.prepare import Plan, device_of, prepare_recipe
from undivided.training.run import Run
from undivided.training.schedule import learning_rate
from undivided.training.tasks import Validation, make_task

MOST_ROLLBACKS = 8
"""Then the rate is 1/256 of what it was: it is not the rate."""


class Stopped(UndividedError):
    """Training was asked to stop; everything is saved."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number, self.exit_code = number, 128 + number

    def said(self, message: str) -> Stopped:
        """The same in other words."""
        return Stopped(self.number, message)


def train(values: Values, console: Console | None = None) -> Path:
    """Learn a model from what a recipe says, or go on where `train.out` was left. The model folder."""
    console = console or Console()
    with join_processes(device_of(values)) as group, ExitStack() as until_the_end:
        if not group.is_main:
            # One process speaks; the others find what it has prepared.
            console = Console(quiet=True, stream=io.StringIO())
            group.wait()
        plan = prepare_run(values, console, group)
        if plan.record is None:
            console.say(f"{plan.folder.parent}: going on with the training that was begun there")
        if group.is_main:
            until_the_end.enter_context(plan.begun())
            if group.size > 1:
                make_task(plan.recipe, plan.folder, torch.device("cpu"), console)
            group.wait()
        trainer = Trainer(plan.recipe, plan.folder.parent, console, group)
        if group.broadcast_values(plan.record is None)[0]:
            trainer.resume()
        with trainer.stop_on_signals():
            trainer.run()
    return plan.folder.parent


def prepare_run(values: Values, console: Console, group: Group) -> Plan:
    """The full recipe of a run, dealt out among processes and the threads of each."""
    # What this device cannot do is said before anything is read or written.
    choose_precision(build_recipe(values).train.precision, group.device)
    plan = prepare_recipe(values, console)
    use_threads(plan.recipe.train.threads)
    return plan.dealt(torch.get_num_threads() if group.device.type == "cpu" else 1, group.size)


class Trainer(Run):
    """One training run from its beginning, or from where it was left, to its end."""

    def __init__(self, recipe: Recipe, out: Path, console: Console, group: Group | None = None) -> None:
        super().__init__(recipe, out, console, group)
        self.log = Log(self.folder if self.group.is_main else None, self.config.tensorboard)
        self._asked_to_stop = self._stop_signal = 0
        self._beginning: checkpoint.Checkpoint | None = None
        where = str(self.device) if self.group.size == 1 else f"{self.group.size} × {self.device.type}"
        half = "" if self.workers.precision is torch.float32 else f", products in {self._precision()}"
        console.say(f"{self.size() / 1e6:.1f} M parameters on {where}{half}, {self.task}")
        if self.device.type == "cpu" and backend.why_no_kernels():
            console.say(f"training does without the C kernels and takes longer: {backend.why_no_kernels()}")

    def _precision(self) -> str:
        return str(self.workers.precision).removeprefix("torch.")

    def run(self) -> None:
        """Train until a limit is reached, then write the final model."""
        self.model.train()
        if not self._finished():
            self._rehearse()
        plans = self.task.stream.plans()
        while not self._finished():
            self.advance(plans)
            self.console.status(self._line())
            if self.state.skipped >= self.config.max_skipped or (self._is_due() and not self.is_sound()):
                self._roll_back()
                plans = self.task.stream.plans()
                continue
            if self.state.step % self.config.log_every == 0:
                self._log_step()
            # In this order, a checkpoint remembers the validation of its step, and a stop loses neither.
            if self.state.step % self.config.validate_every == 0:
                self._validate()
            if self._is_due():
                self.save()
            if self._stop_signal:
                self._stop()
        with self.averaged() as model:
            if self.group.is_main:
                self._finish(model)
        self.group.wait()

    def advance(self, plans: Iterator[tuple[np.ndarray, StreamPosition]]) -> None:
        """Take a step and count it."""
        began = time.monotonic()
        loss, likelihood, tokens = self._step(plans)
        # All processes go by one clock, and stop after the same step.
        spent, stop = self.group.min_values(time.monotonic() - began, -self._asked_to_stop)
        self._stop_signal = -int(stop)
        self.state.seconds += spent
        if math.isfinite(loss):
            self.state.meter.add(loss, likelihood, tokens, spent)

    def _is_due(self) -> bool:
        """Whether a checkpoint is written after this step."""
        best = self.config.keep_best and self.state.best_step == self.state.step
        return self.state.step % self.config.save_every == 0 or best or self._finished()

    def _rehearse(self) -> None:
        """Try the batch that asks for the most memory before any step, and remember where a run without checkpoint began."""
        before = self.state.fits
        self.state.fits = self.workers.probe_memory(before)
        self._say_fits(before)
        if not self.state.step:
            held = self.snapshot()
            tensors = {part: {name: t.clone() for name, t in of.items()} for part, of in held.tensors.items()}
            self._beginning = checkpoint.Checkpoint(held.state, tensors)

    def _say_fits(self, before: int) -> None:
        if self.state.fits != before:
            self.console.warn(
                f"step {self.state.step}: memory did not suffice for a batch; from now on one with more than "
                f"{self.state.fits:,} tokens is cut. The gradient stays the same; a lower batches.tokens would be faster"
            )

    def _finished(self) -> bool:
        state, config = self.state, self.config
        return (
            state.step >= config.max_steps
            or bool(config.max_epochs and state.place.epoch >= config.max_epochs)
            or bool(config.minutes and state.seconds >= config.minutes * 60)
            or bool(config.patience and state.since_best >= config.patience)
        )

    def _step(self, plans: Iterator[tuple[np.ndarray, StreamPosition]]) -> tuple[float, float, int]:
        """One update: sums of loss and negative log-likelihood, and the target tokens they are over."""
        self.state.step += 1
        batches = []
        for _ in range(self.recipe.batches.accumulate):
            batch, self.state.place = next(plans)
            batches.append(batch)
        before = self.state.fits
        total = self.workers.gradient(self.state.step, batches, before)
        self.state.fits = total.fits
        self._say_fits(before)
        for parameter, gradient in zip(self.parameters, total.gradients, strict=True):
            parameter.grad = gradient
        self.state.target_tokens += total.tokens
        with one_thread():
            self._update(total.loss)
        return total.loss, total.likelihood, total.tokens

    def _update(self, loss: float) -> None:
        """Take the step, unless the loss or a gradient is not finite: such a step is skipped and counted."""
        rate = learning_rate(self.state.step, self.config, self.recipe.model.d_model, self.state.seconds) * self.state.rate_factor
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.unscale_(self.optimizer)
        norm = full_tensor(nn.utils.clip_grad_norm_(self.parameters, self.config.clip or math.inf))
        if bool(norm.isfinite()) and math.isfinite(loss):
            self.scaler.step(self.optimizer)
            self.state.skipped = 0
        else:
            self.state.skipped += 1
            self.state.skipped_in_all += 1
            what = "gradient" if math.isfinite(loss) else "loss"
            self.console.warn(f"step {self.state.step}: the {what} is not finite, the step is skipped")
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        if self.ema:
            # At first it is the mean of few weights, or the random ones of the beginning would stay in it for long.
            share = max(1 - self.config.ema, 10 / (10 + self.state.step))
            torch._foreach_lerp_(self.ema, [local_rows(p.detach()) for p in self.parameters], share)

    def _roll_back(self) -> None:
        """Go back to the last whole checkpoint, or to the beginning, with half the rate."""
        failed = self.state
        if failed.rollbacks == MOST_ROLLBACKS:
            raise UndividedError(
                f"step {failed.step:,}: after {plural(failed.rollbacks, 'return')} to a checkpoint, each with half the rate of the "
                "one before, losses or gradients are still not finite: begin anew with a lower train.rate, or with train.clip 1"
            )
        found = self.newest() or self._beginning
        assert found is not None, "a run has a checkpoint or remembers its beginning"
        self.restore(found)
        state = self.state
        state.rollbacks, state.rate_factor = failed.rollbacks + 1, failed.rate_factor / 2
        state.skipped_in_all, state.seconds, state.fits = failed.skipped_in_all, failed.seconds, failed.fits
        why = "weights are not finite"
        if failed.skipped:
            why = f"{plural(failed.skipped, 'step')} in a row had no finite loss and gradient"
        self.console.warn(f"step {failed.step:,}: {why}; back to step {state.step:,} with {state.rate_factor:g} of the rate")
        self.log.write("rollback", state, failed_step=failed.step, rate_factor=state.rate_factor)

    def _line(self) -> str:
        state, meter = self.state, self.state.meter
        return (
            f"step {state.step:,}, epoch {state.place.epoch + 1}, loss {meter.loss:.3f}, perplexity {meter.perplexity:.2f}, "
            f"{meter.rate:,.0f} tokens/s, {duration(self._seconds_left())} left"
        )

    def _seconds_left(self) -> float:
        state, config = self.state, self.config
        left = [(config.max_steps - state.step) * state.at_this_pace / max(1, state.step)]
        if config.minutes:
            left.append(config.minutes * 60 - state.seconds)
        if config.max_epochs and state.target_tokens:
            done = state.target_tokens / self.task.epoch_tokens
            left.append((config.max_epochs - done) * state.at_this_pace / done)
        return max(0.0, min(left))

    def save(self) -> None:
        """Write a checkpoint; from now on there is one to go back to."""
        super().save()
        self._beginning = None

    def _log_step(self) -> None:
        self.console.say(f"{self._line()}, learning rate {self.optimizer.param_groups[0]['lr']:.2e}")
        self.log.write("step", self.state, **self.logged())
        self.state.meter = Meter()

    def logged(self) -> dict[str, float]:
        """The numbers of a log line."""
        meter, rate = self.state.meter, self.optimizer.param_groups[0]["lr"]
        return {"loss": meter.loss, "perplexity": meter.perplexity, "tokens_per_second": meter.rate, "rate": rate}

    def _validate(self) -> None:
        """Measure on held-out data, in one process; all remember the best."""
        with self.averaged():
            if self.group.is_main:
                self._measure()
        state = self.state
        state.best, best_step, since_best = self.group.broadcast_values(state.best, state.best_step, state.since_best)
        state.best_step, state.since_best = int(best_step), int(since_best)

    def _measure(self) -> None:
        """Measure on held-out data; the best model so far becomes the model folder."""
        began = time.monotonic()
        measured = self.task.measure()
        if measured is None:
            return
        better = measured.quality.score > self.state.best
        self.state.since_best = 0 if better else self.state.since_best + 1
        if better:
            self.state.best, self.state.best_step = measured.quality.score, self.state.step
            self._export(measured, f"step {self.state.step}")
        spent, note = duration(time.monotonic() - began), " (best so far)" if better else ""
        self.console.say(f"validation at step {self.state.step:,}: {measured}{note}, in {spent}")
        self.log.write("validation", self.state, **measured.logged())

    def resume(self) -> None:
        """Take up the newest whole checkpoint."""
        found = self.newest()
        if found is None:
            self.console.say("no checkpoint was written yet: training begins at step 1")
            return
        self.restore(found)
        if self._finished():
            more = "--max-steps, --max-epochs or --minutes"
            self.console.say(f"step {self.state.step:,} was its last; to go on, give it more: {more}")
            return
        self.console.say(f"resumed at step {self.state.step:,}")
        self.log.write("resume", self.state)

    @contextmanager
    def stop_on_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM ask training to stop after the step it is in."""

        def ask(number: int, _: object) -> None:
            # Of several processes torchrun asks each, after somebody has asked it and, from a terminal, all of them.
            if self._asked_to_stop and self.group.size == 1:
                raise KeyboardInterrupt
            self._asked_to_stop = number
            self.console.warn("stopping after this step (once more: at once) …")

        heard = (signal.SIGINT, signal.SIGTERM) if threading.current_thread() is threading.main_thread() else ()
        before = {number: signal.signal(number, ask) for number in heard}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self) -> None:
        if not self.is_sound():
            self._roll_back()
        self.save()
        self.group.leave()
        raise Stopped(
            self._stop_signal, f"stopped and saved at step {self.state.step:,}; go on with: undivided train --out {self.out}"
        )

    def _finish(self, model: nn.Module) -> None:
        """The final model: averaged weights, unless validation liked a single checkpoint better. [paper 6.1]"""
        self.console.clear()
        last = checkpoint.regular(self.folder / "checkpoints", self.config.save_every)[-self.config.average :]
        if self.ema:
            kind = f"running average, decay {self.config.ema}"
        else:
            fill_weights(model, checkpoint.average_weights(last), "averaged checkpoints")
            kind = "last checkpoint" if len(last) == 1 else f"average of the last {plural(len(last), 'checkpoint')}"
        measured = self.task.measure()
        if measured is not None:
            self.console.say(f"{kind}: validation {measured}")
            self.log.write("final", self.state, **measured.logged())
        if measured is None or measured.quality.score >= self.state.best:
            self._export(measured, kind)
        else:
            self.console.say(f"kept the checkpoint with validation {measured.quality.name} {self.state.best:.2f}, which is better")
        self.console.say(f"the model is in {self.out}; use it with: {usage(self.recipe, str(self.out))}")

    def _export(self, measured: Validation | None, kind: str) -> None:
        """Write the model folder with what was measured."""
        state, scores = self.state, {}
        if measured is not None:
            quality = measured.quality
            scores[f"validation {quality.name}"] = {"score": round(quality.score, 2), "signature": quality.signature}
        facts = {
            "scores": scores,
            "weights": kind,
            "parameters": self.size(),
            "steps": state.step,
            "processes": self.group.size,
            "epochs": state.place.epoch,
            "target_tokens": state.target_tokens,
            "seconds": round(state.seconds, 1),
            "device": str(self.device),
            "threads": torch.get_num_threads(),
            "precision": self._precision(),
            "undivided": __version__,
            "torch": torch.__version__,
        }
        self.task.export(self.out, facts | self.task.facts())
