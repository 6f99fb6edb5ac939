"""Batches → loss → step → validate → save, until done; then the model folder. [paper 5]"""

from __future__ import annotations

import io
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import nn

from undivided import __version__
from undivided.artifact.card import usage
from undivided.artifact.weights import fill_weights
from undivided.config.settings import Values
from undivided.core.console import Console, LoggingConsole, duration, plural
from undivided.core.errors import UndividedError
from undivided.core.signals import Stopped, WorkClock, handle_stop_signals
from undivided.data.batches import StreamPosition
from undivided.nn import backend
from undivided.nn.device import choose_device, one_thread
from undivided.training import checkpoint
from undivided.training.distributed import Group, full_tensor, join_processes, local_rows
from undivided.training.fine_tuning import report_fine_tuning
from undivided.training.journal import Log, Meter, RunState
from undivided.training.limits import seconds_left, why_finished
from undivided.training.old_data import start_facts
from undivided.training.prepare import Prepared, prepare
from undivided.training.resume import requested_device
from undivided.training.run import Run
from undivided.training.schedule import learning_rate
from undivided.training.tasks import Validation

__all__ = ["MAX_ROLLBACKS", "Stopped", "Trainer", "train"]

MAX_ROLLBACKS = 8
"""Then the rate is 1/256 of what it was: it is not the rate."""


def train(values: Values, console: Console | None = None, restart: bool = False) -> Path:
    """Train a model as its settings say, or resume the training in `train.out`. Returns the model folder.

    With `restart` the training there starts over; its checkpoints and log are kept under other names.
    """
    console = console or LoggingConsole()
    with join_processes(requested_device(values)) as group:
        if not group.is_main:
            # One process speaks for all.
            console = Console(quiet=True, stream=io.StringIO())
        with prepare(values, console, group) as prepared:
            if restart:
                checkpoint.set_aside(prepared.folder, console, group)
            trainer = Trainer(prepared, console, group)
            if prepared.resumes and not restart:
                trainer.resume()
            with handle_stop_signals(trainer.ask_to_stop), trainer.clock.listen():
                trainer.train()
            if group.is_main:
                report_fine_tuning(prepared, console)
    return prepared.out


class Trainer:
    """Takes a run from its first step, or from where it was left, to its end."""

    def __init__(self, prepared: Prepared, console: Console, group: Group | None = None) -> None:
        self.recipe, self.config, self.console = prepared.recipe, prepared.recipe.train, console
        self.out, self.group = prepared.out, group or Group(device=choose_device(prepared.recipe.train.device))
        self.run = Run(prepared, console, self.group)
        self.task, self.model = self.run.task, self.run.model
        self.log = Log(prepared.folder if self.group.is_main else None, self.config.tensorboard)
        self._asked_to_stop = self._stop_signal = 0
        self.clock = WorkClock()
        self._beginning: checkpoint.Checkpoint | None = None
        device = self.group.device
        where = str(device) if self.group.size == 1 else f"{self.group.size} × {device.type}"
        half = "" if self.run.workers.precision is torch.float32 else f", products in {self._precision()}"
        console.say(f"{self.run.count_parameters() / 1e6:.1f} M parameters on {where}{half}, {self.task}")
        if device.type == "cpu" and backend.why_no_kernels():
            console.say(f"training without the C kernels, which is slower: {backend.why_no_kernels()}")

    @property
    def state(self) -> RunState:
        """The counters of the run."""
        return self.run.state

    def _precision(self) -> str:
        return str(self.run.workers.precision).removeprefix("torch.")

    def train(self) -> None:
        """Train until a limit is reached, then write the final model."""
        self.model.train()
        if not self._is_finished():
            self._probe_memory()
        if not self.state.step:
            self.run.keep_snapshot()
        plans = self.task.stream.plans()
        while not self._is_finished():
            self.advance(plans)
            self.console.status(self._status_line())
            if self.state.skipped >= self.config.max_skipped or (self._is_use_due() and not self.run.is_finite()):
                self._roll_back()
                plans = self.task.stream.plans()
                continue
            if self.state.step % self.config.log_every == 0:
                self._log_step()
            # In this order, a checkpoint remembers the validation of its step, and a stop loses neither.
            if self.state.step % self.config.validate_every == 0:
                self._validate()
            if self._is_save_due():
                self.save()
            self.run.keep_snapshot()
            if self._stop_signal:
                self._stop()
        with self.run.averaged_model() as model:
            if self.group.is_main:
                self._finish(model)
        self.group.wait()

    def advance(self, plans: Iterator[tuple[np.ndarray, StreamPosition]]) -> None:
        """Take a step and count it."""
        self.clock.start()
        loss, likelihood, tokens = self._step(plans)
        # All processes go by one clock, and stop after the same step.
        spent, stop = self.group.min_values(self.clock.seconds(), -self._asked_to_stop)
        self._stop_signal = -int(stop)
        self.state.seconds += spent
        if math.isfinite(loss):
            self.state.meter.add(loss, likelihood, tokens, spent)

    def _is_save_due(self) -> bool:
        """Whether a checkpoint is written after this step."""
        best = self.config.keep_best and self.state.best_step == self.state.step
        return self.state.step % self.config.save_every == 0 or best or self._is_finished()

    def _is_use_due(self) -> bool:
        """Whether the weights are saved, kept or validated after this step."""
        return self._is_save_due() or self.state.step % self.config.validate_every == 0 or self.run.is_snapshot_due()

    def _probe_memory(self) -> None:
        """Try the batch that needs the most memory before any step, and remember the start of a run without checkpoint."""
        before = self.state.fits
        self.state.fits = self.run.workers.probe_memory(before)
        self._warn_of_memory(before)
        if not self.state.step:
            held = self.run.to_checkpoint()
            tensors = {part: {name: t.clone() for name, t in of.items()} for part, of in held.tensors.items()}
            self._beginning = checkpoint.Checkpoint(held.state, tensors)

    def _warn_of_memory(self, before: int) -> None:
        if self.state.fits != before:
            self.console.warn(
                f"step {self.state.step}: out of memory for a batch; from now on batches of more than {self.state.fits:,} "
                f"{self.task.size_unit} are split. The gradient stays the same; a lower batches.tokens would be faster"
            )

    def _is_finished(self) -> bool:
        return bool(why_finished(self.state, self.config))

    def _step(self, plans: Iterator[tuple[np.ndarray, StreamPosition]]) -> tuple[float, float, int]:
        """One update: sums of loss and negative log-likelihood, and the target tokens they are over."""
        self.state.step += 1
        batches = []
        for _ in range(self.recipe.batches.accumulate):
            batch, self.state.place = next(plans)
            batches.append(batch)
        before = self.state.fits
        total = self.run.workers.gradient(self.state.step, batches, before)
        self.state.fits = total.fits
        self._warn_of_memory(before)
        for parameter, gradient in zip(self.run.parameters, total.gradients, strict=True):
            parameter.grad = gradient
        self.state.target_tokens += total.tokens
        with one_thread():
            self._update(total.loss)
        return total.loss, total.likelihood, total.tokens

    def _update(self, loss: float) -> None:
        """Take the step, unless the loss or a gradient is not finite: such a step is skipped and counted."""
        run, optimizer, scaler = self.run, self.run.optimizer, self.run.scaler
        rate = learning_rate(self.state.step, self.config, self.recipe.model.d_model, self.state.seconds) * self.state.rate_factor
        for group in optimizer.param_groups:
            group["lr"] = rate
        scaler.unscale_(optimizer)
        norm = full_tensor(nn.utils.clip_grad_norm_(run.parameters, self.config.clip or math.inf))
        if bool(norm.isfinite()) and math.isfinite(loss):
            scaler.step(optimizer)
            run.pull_back(rate)
            self.state.meter.add_norm(float(norm), self.config.clip)
            self.state.skipped = 0
        else:
            self.state.skipped += 1
            self.state.skipped_in_all += 1
            what = "gradient" if math.isfinite(loss) else "loss"
            self.console.warn(f"step {self.state.step}: the {what} is not finite, the step is skipped")
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        if run.ema:
            # At first it is the mean of few weights, or the random ones of the beginning would stay in it for long.
            share = max(1 - self.config.ema, 10 / (10 + self.state.step))
            torch._foreach_lerp_(run.ema, [local_rows(p.detach()) for p in run.parameters], share)

    def _roll_back(self) -> None:
        """Return to the last complete checkpoint, or to the beginning, with half the rate."""
        failed = self.state
        if failed.rollbacks == MAX_ROLLBACKS:
            raise UndividedError(
                f"step {failed.step:,}: losses or gradients are still not finite after {plural(failed.rollbacks, 'rollback')} to a "
                "checkpoint, each with half the rate of the one before; start over with a lower train.rate, or with train.clip 1"
            )
        found = self.run.newest_checkpoint() or self._beginning
        assert found is not None, "a run has a checkpoint or remembers its beginning"
        self.run.return_to(found)
        state = self.state
        state.rollbacks, state.rate_factor = failed.rollbacks + 1, failed.rate_factor / 2
        state.skipped_in_all, state.seconds, state.fits = failed.skipped_in_all, failed.seconds, failed.fits
        why = "weights are not finite"
        if failed.skipped:
            why = f"{plural(failed.skipped, 'step')} in a row had no finite loss and gradient"
        self.console.warn(f"step {failed.step:,}: {why}; back to step {state.step:,} with {state.rate_factor:g} of the rate")
        self.log.write("rollback", state, failed_step=failed.step, rate_factor=state.rate_factor)

    def _status_line(self) -> str:
        state, meter = self.state, self.state.meter
        return (
            f"step {state.step:,}, epoch {state.place.epoch + 1}, loss {meter.loss:.3f}, perplexity {meter.perplexity:.2f}, "
            f"{meter.rate:,.0f} tokens/s, {duration(seconds_left(state, self.config, self.task.epoch_tokens))} left"
        )

    def save(self) -> None:
        """Write a checkpoint; from now on there is one to return to."""
        self.run.save()
        self._beginning = None

    def _log_step(self) -> None:
        self.console.say(f"{self._status_line()}, learning rate {self.run.optimizer.param_groups[0]['lr']:.2e}")
        self.log.write("step", self.state, **self.log_entry())
        self.state.meter = Meter()

    def log_entry(self) -> dict[str, float]:
        """The numbers of a log line."""
        return self.state.meter.log_entry(self.run.optimizer.param_groups[0]["lr"], self.group.device)

    def _validate(self) -> None:
        """Measure on held-out data, in one process; all remember the best."""
        with self.run.averaged_model():
            if self.group.is_main:
                self._measure()
        state = self.state
        state.best, best_step, since_best = self.group.broadcast_values(state.best, state.best_step, state.since_best)
        state.best_step, state.since_best = int(best_step), int(since_best)

    def _measure(self) -> None:
        """Measure on held-out data; the best model so far becomes the model folder."""
        began = time.monotonic()
        validation = self.task.measure()
        if validation is None:
            return
        better = validation.quality.score > self.state.best
        self.state.since_best = 0 if better else self.state.since_best + 1
        if better:
            self.state.best, self.state.best_step = validation.quality.score, self.state.step
            self._export(validation, f"step {self.state.step}")
        spent, note = duration(time.monotonic() - began), " (best so far)" if better else ""
        self.console.say(f"validation at step {self.state.step:,}: {validation}{note}, in {spent}")
        self.log.write("validation", self.state, **validation.log_entry())

    def resume(self) -> None:
        """Restore the newest complete checkpoint."""
        self.console.say(f"{self.out}: resuming the training in this folder")
        found = self.run.newest_checkpoint()
        if found is None:
            self.console.say("no checkpoint was written yet: training starts at step 1")
            return
        self.run.return_to(found)
        if self._is_finished():
            more = "--max-steps, --max-epochs or --minutes"
            self.console.say(f"finished at step {self.state.step:,}; to train further, raise {more}")
            return
        self.console.say(f"resumed at step {self.state.step:,}")
        self.log.write("resume", self.state)

    def ask_to_stop(self, number: int) -> None:
        """Stop after this step; asked for a second time, at once."""
        # Of several processes torchrun asks each, after somebody has asked it and, from a terminal, all of them.
        if self._asked_to_stop and self.group.size == 1:
            raise KeyboardInterrupt
        self._asked_to_stop = number
        self.console.warn("stopping after this step (interrupt again to stop at once) …")

    def _stop(self) -> None:
        if not self.run.is_finite():
            self._roll_back()
        self.save()
        self.group.leave()
        raise Stopped(
            self._stop_signal, f"stopped and saved at step {self.state.step:,}; resume with: undivided train --out {self.out}"
        )

    def _finish(self, model: nn.Module) -> None:
        """The final model: averaged weights, unless validation scored a single checkpoint higher. [paper 6.1]"""
        self.console.clear()
        self.console.say(f"training ended at step {self.state.step:,}: {why_finished(self.state, self.config)}")
        last = checkpoint.regular(self.run.checkpoints, self.config.save_every)[-self.config.average :]
        if self.run.ema:
            kind = f"running average, decay {self.config.ema}"
        else:
            fill_weights(model, checkpoint.average_weights(last), "averaged checkpoints")
            kind = "last checkpoint" if len(last) == 1 else f"average of the last {plural(len(last), 'checkpoint')}"
        validation = self.task.measure()
        if validation is not None:
            self.console.say(f"{kind}: validation {validation}")
            self.log.write("final", self.state, **validation.log_entry())
        if validation is None or validation.quality.score >= self.state.best:
            self._export(validation, kind)
        else:
            self.console.say(
                f"kept the checkpoint with validation {validation.quality.name} {self.state.best:.2f}, which is better"
            )
        self.console.say(f"the model is in {self.out}; use it with: {usage(self.recipe, str(self.out))}")

    def _export(self, validation: Validation | None, kind: str) -> None:
        """Write the model folder with what was measured."""
        state, scores = self.state, {}
        if validation is not None:
            quality = validation.quality
            scores[f"validation {quality.name}"] = {"score": round(quality.score, 2), "signature": quality.signature}
        facts = {
            "scores": scores,
            "weights": kind,
            "parameters": self.run.count_parameters(),
            "steps": state.step,
            "processes": self.group.size,
            "epochs": state.place.epoch,
            "target_tokens": state.target_tokens,
            "seconds": round(state.seconds, 1),
            "device": str(self.group.device),
            "threads": torch.get_num_threads(),
            "precision": self._precision(),
            "undivided": __version__,
            "torch": torch.__version__,
        }
        self.task.export(self.out, facts | self.task.facts() | start_facts(self.recipe.train.start))
