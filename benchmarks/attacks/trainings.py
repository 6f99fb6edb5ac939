"""Trainings that are killed, whose checkpoints and tokens are damaged, whose numbers or clock go wrong."""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

from attacks.command import Running, start_forked
from attacks.folders import change_bytes
from attacks.trial import Attack, Trial, Verdict, judge
from attacks.world import HALF, STEPS

NOBODY = 65534


def begin(trial: Trial, name: str = "run") -> Path:
    """A training that was stopped in the middle."""
    return shutil.copytree(trial.world.home / "half", trial.folder / name)


def train(trial: Trial, run: Path, *more: str, before: Callable[[], None] | None = None) -> Running:
    return start_forked(["train", trial.world.recipe, "--out", run, "-q", *more], trial.folder, before=before)


def digest(path: Path) -> str:
    """Of all files of a folder, with their names."""
    found = hashlib.sha256()
    for part in sorted(path.rglob("*")):
        if part.is_file() and not part.is_symlink():
            found.update(str(part.relative_to(path)).encode() + b"\0" + part.read_bytes())
    return found.hexdigest()


def checkpoints(run: Path) -> list[Path]:
    return sorted((run / "training" / "checkpoints").glob("step-*[0-9]"))


def is_right(trial: Trial, run: Path, what: str) -> None:
    """The model has to the bit the weights of a training that nobody disturbed."""
    found = hashlib.sha256((run / "model.safetensors").read_bytes()).hexdigest()
    trial.check(found == trial.world.right["weights"], f"{what}: other weights than those of an undisturbed training")


def nothing_left(trial: Trial, run: Path) -> None:
    left = [str(path) for path in run.rglob("*") if path.name.endswith((".building", "-part")) or ".incoming" in path.name]
    trial.check(not left, f"left behind: {left}")


def kill_and_resume(trial: Trial) -> str:
    """SIGKILL at random moments, from before the first file to after the last; then resume."""
    run = begin(trial) if trial.chance.random() < 0.6 else trial.folder / "run"
    kept: dict[str, str] = {}
    killed = 0
    for _ in range(trial.chance.randint(1, 3)):
        running = train(trial, run, "--log-every", "1")
        if trial.chance.random() < 0.5:
            wait_for_step(running, run, trial.chance.randint(1, STEPS))
        time.sleep(trial.chance.choice([0.01, 0.05, 0.3, 0.8]) * trial.chance.random())
        if os.waitpid(running.pid, os.WNOHANG)[0]:
            break
        running.send(signal.SIGKILL)
        judge(running.wait(20))
        killed += 1
        for path, before in kept.items():
            trial.check(Path(path).is_dir() and digest(Path(path)) == before, f"{path} is gone or changed", Verdict.LOST)
        kept = {str(path): digest(path) for path in checkpoints(run)}
    ended = judge(train(trial, run).wait(60))
    trial.check(ended.code == 0, f"did not resume: {ended.err[-500:]}", Verdict.LOST)
    is_right(trial, run, f"{killed} kills")
    nothing_left(trial, run)
    return f"{killed} kills, same weights"


def wait_for_step(running: Running, run: Path, step: int) -> None:
    """Until a training has logged a step, or has ended."""
    log = run / "training" / "log.jsonl"
    while not os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        if log.exists() and f'"step": {step},' in log.read_text():
            return
        time.sleep(0.002)


def harm_checkpoint(chance: random.Random, path: Path) -> None:
    """Make a checkpoint unreadable, in one of many ways."""
    part = chance.choice(sorted(path.iterdir()))
    match chance.randrange(7):
        case 0:
            (path / "manifest.json").unlink()
        case 1:
            part.unlink()
        case 2:
            content = part.read_bytes()
            while (changed := change_bytes(chance, content)) == content:
                pass
            part.write_bytes(changed)
        case 3:
            part.unlink()
            part.mkdir()
        case 4:
            part.unlink()
            part.symlink_to("/nonexistent")
        case 5:
            part.write_bytes(b"")
        case _:
            for each in path.iterdir():
                each.unlink()


def harm_checkpoints(trial: Trial) -> str:
    """Some or all checkpoints cannot be read: the newest whole one is used; where there is none, the run stops and keeps them."""
    chance, run = trial.chance, begin(trial)
    there = checkpoints(run)
    harmed = chance.sample(there, chance.choice([1, 1, 2, len(there)]))
    as_nobody = os.getuid() == 0 and chance.random() < 0.3
    if as_nobody:
        for path in (trial.folder, run, *run.rglob("*")):
            os.chown(path, NOBODY, NOBODY)
        for path in harmed:
            os.chown(path, 0, 0)
            path.chmod(0o700)
    else:
        for path in harmed:
            harm_checkpoint(chance, path)
    before = [digest(path) for path in harmed]
    become = (lambda: os.setuid(NOBODY)) if as_nobody else None
    ended = judge(train(trial, run, "--train.keep_last", str(chance.choice([1, 2, 20])), before=become).wait(60))
    for path, was in zip(harmed, before, strict=True):
        now = [digest(each) for each in run.glob(f"training/**/{path.name}*")]
        trial.check(was in now, f"{path.name} is gone or changed", Verdict.LOST)
    if len(harmed) < len(there):
        trial.check(ended.code == 0, f"did not resume from a whole one: {ended.err[-500:]}", Verdict.LOST)
        is_right(trial, run, "damaged checkpoints")
        return "resumed from a whole one"
    trial.refused(ended, "can be read")
    trial.check("--restart" in ended.err, "it does not say what to do")
    again = judge(train(trial, run, "--restart", before=become).wait(60))
    trial.check(again.code == 0, f"did not start over: {again.err[-300:]}")
    kept = [next(iter(run.glob(f"training/**/{path.name}")), None) for path in harmed]
    trial.check(None not in kept, "--restart removed old checkpoints", Verdict.LOST)
    is_right(trial, run, "started over")
    return "stopped, started over beside"


def harm_store(trial: Trial) -> str:
    """Ids, ends or description of the token store changed, in half of the trials with new digests: built again, right weights."""
    import numpy as np

    from undivided.data import store as stores

    chance, run = trial.chance, begin(trial)
    folder = next(iter((run / "training").glob("store-*")))
    if chance.random() < 0.5:
        part = chance.choice(sorted(folder.iterdir()))
        content = part.read_bytes()
        changed = bytes(len(content)) if chance.random() < 0.3 else change_bytes(chance, content)
        part.write_bytes(changed)
    else:
        side = chance.choice(["src", "tgt"])
        ids, ends = np.fromfile(folder / f"{side}.ids", np.uint16), np.fromfile(folder / f"{side}.ends", np.int64)
        if chance.random() < 0.6:
            for _ in range(chance.randint(1, 5)):
                ids[chance.randrange(len(ids))] = chance.choice([320, 321, 400, 5000, 65535])
            ids.tofile(folder / f"{side}.ids")
        else:
            at = chance.randrange(1, len(ends))
            ends[at] = chance.choice([-1, 0, 2**40, 2**62, -(2**62), int(ends[at - 1]) - 1])
            ends.tofile(folder / f"{side}.ends")
        facts = json.loads((folder / "store.json").read_text())
        del facts["seal"]
        facts["sha256"] = {part: stores._block_digests(folder / part) for part in stores.PARTS}
        (folder / "store.json").write_text(json.dumps(facts | {"seal": stores._seal(facts)}))
    ended = judge(train(trial, run).wait(60))
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-500:]}")
    is_right(trial, run, "damaged token store")
    return "built again, same weights"


def harm_record(trial: Trial) -> str:
    """Recipe, subwords or log of a run changed: refused or resumed, and no checkpoint is lost."""
    chance, run = trial.chance, begin(trial)
    part = run / "training" / chance.choice(["recipe.json", "subwords/subwords.model", "subwords/manifest.json", "log.jsonl"])
    if not part.exists():
        part = run / "training" / "recipe.json"
    part.write_bytes(change_bytes(chance, part.read_bytes()))
    before = {path: digest(path) for path in checkpoints(run)}
    ended = judge(train(trial, run).wait(60))
    for path, was in before.items():
        trial.check(path.is_dir() and digest(path) == was, f"{path.name} is gone or changed", Verdict.LOST)
    if ended.code:
        return trial.refused(ended)
    is_right(trial, run, f"{part.name} changed")
    return "same weights"


def become_nan(trial: Trial) -> str:
    """Losses, gradients or weights that are not finite at random steps; sometimes the newest checkpoint is damaged too."""
    from undivided.training import loop

    chance, run = trial.chance, begin(trial)
    bad = {chance.randint(HALF, STEPS) for _ in range(chance.randint(1, 8))}
    lasting, kind, harmed = chance.random() < 0.3, chance.choice(["loss", "gradient", "weight"]), chance.random() < 0.3
    real = loop.Trainer._update

    def update(self: loop.Trainer, loss: float) -> None:
        step = self.state.step
        hit = step in bad
        if hit and not lasting:
            bad.discard(step)
        if hit and kind == "gradient":
            self.run.parameters[0].grad.view(-1)[0] = math.nan
        real(self, math.nan if hit and kind == "loss" else loss)
        if hit and kind == "weight":
            self.run.parameters[0].data.view(-1)[0] = math.inf
        if hit and harmed and len(found := checkpoints(run)) > 1:
            (found[-1] / "model.safetensors").write_bytes(b"damaged")

    def patch() -> None:
        loop.Trainer._update = update

    ended = judge(train(trial, run, "--train.max_skipped", str(chance.choice([1, 2, 3])), before=patch).wait(60))
    for path in checkpoints(run):
        trial.check(is_finite(path / "model.safetensors"), f"{path.name} has weights that are not finite")
    log = [json.loads(line) for line in (run / "training" / "log.jsonl").read_text().splitlines()]
    rollbacks = [line for line in log if line["event"] == "rollback"]
    trial.check(len(rollbacks) <= loop.MAX_ROLLBACKS, f"{len(rollbacks)} rollbacks")
    factors = [line["rate_factor"] for line in rollbacks]
    trial.check(factors == [0.5 ** (number + 1) for number in range(len(factors))], f"rates: {factors}")
    if ended.code == 0:
        trial.check(is_finite(run / "model.safetensors"), "the model has weights that are not finite")
        return "ended finite"
    trial.check(ended.code == 1 and "still not finite" in ended.err, f"exit code {ended.code}: {ended.err[-500:]}")
    return "stopped with a sentence"


def is_finite(path: Path) -> bool:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return all(bool(tensor.isfinite().all()) for tensor in load_file(path).values())
    except SafetensorError:
        return path.read_bytes() == b"damaged"


def move_clock(trial: Trial) -> str:
    """The clock jumps by up to decades, forwards and back, at every look, and files have times of another century."""
    chance, run = trial.chance, begin(trial)
    for path in run.rglob("*"):
        if chance.random() < 0.5:
            moment = chance.choice([0, 1, 2**31, 2**32, int(time.time() + chance.uniform(-1e9, 1e9))])
            os.utime(path, (moment, moment))
    jumps = random.Random(chance.random())

    def patch() -> None:
        real = time.time
        time.time = lambda: max(0.0, real() + jumps.uniform(-1e9, 1e9))  # type: ignore[assignment]
        time.time_ns = lambda: int(time.time() * 1e9)  # type: ignore[assignment]

    running = train(trial, run, before=patch)
    if chance.random() < 0.4:
        wait_for_step(running, run, chance.randint(HALF, STEPS))
        running.send(signal.SIGKILL)
        running.wait(20)
        running = train(trial, run, before=patch)
    ended = judge(running.wait(60))
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-500:]}")
    is_right(trial, run, "moved clock")
    nothing_left(trial, run)
    return "same weights"


def stop_the_process(trial: Trial) -> str:
    """SIGSTOP while a training has a limit of time: the pause does not count."""
    run = begin(trial)
    running = train(trial, run, "--minutes", "0.5")
    wait_for_step(running, run, HALF + trial.chance.randint(1, 6))
    pause = trial.chance.uniform(3, 5)
    running.send(signal.SIGSTOP)
    time.sleep(pause)
    running.send(signal.SIGCONT)
    ended = judge(running.wait(60))
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-500:]}")
    log = [json.loads(line) for line in (run / "training" / "log.jsonl").read_text().splitlines()]
    seconds = [line["seconds"] for line in log if "seconds" in line]
    most = max(after - before for before, after in pairwise(seconds))
    # Other steps count as long as they take, on a machine that may be busy.
    trial.check(most < pause - 0.5, f"a pause of {pause:.1f} s counted as {most:.1f} s of a step")
    is_right(trial, run, "paused")
    return "the pause does not count"


def train_twice(trial: Trial) -> str:
    """Two trainings in one folder at once: one is refused, the other is undisturbed."""
    run = begin(trial)
    first = train(trial, run)
    time.sleep(trial.chance.random() * 0.3)
    second = train(trial, run)
    ended = [judge(each.wait(60)) for each in (first, second)]
    codes = sorted(each.code for each in ended)
    trial.check(codes in ([0, 2], [0, 0]), f"exit codes {codes}: {[each.err[-200:] for each in ended]}")
    is_right(trial, run, "two trainings")
    return "one refused" if codes == [0, 2] else "one after the other"


ATTACKS = [
    Attack(
        "kill and resume", "1 22",
        "`kill -9` up to three times at random moments of a training of 24 steps, a checkpoint every 4: the same weights "
        "to the bit, no checkpoint lost, nothing left behind",
        30, kill_and_resume, 150,
    ),
    Attack(
        "unreadable checkpoints", "1",
        "checkpoints damaged, incomplete or owned by somebody else: none is removed, the newest whole one is used; if "
        "there is none the run stops, and `--restart` keeps them",
        40, harm_checkpoints, 120,
    ),
    Attack(
        "token store", "2",
        "ids zeroed, flipped, beyond the vocabulary, also with new digests: built again, the same weights",
        40, harm_store, 90,
    ),
    Attack(
        "records of a run", "1 2",
        "recipe, subwords, log of a run changed: refused or the same weights, no checkpoint lost",
        25, harm_record, 90,
    ),
    Attack(
        "NaN and rollback", "rollback",
        "losses, gradients, weights that are not finite at random steps, over several checkpoints, some damaged: no "
        "checkpoint and no model that is not finite, at most eight rollbacks, each at half the rate",
        30, become_nan, 90,
    ),
    Attack(
        "moved clock", "clock",
        "the clock jumps by decades at every look, files have times of another century, `kill -9` too: the same weights",
        15, move_clock, 120,
    ),
    Attack(
        "paused", "24",
        "SIGSTOP and SIGCONT during `--minutes`: the pause does not count, the same weights",
        4, stop_the_process, 90, alone=True,
    ),
    Attack(
        "two trainings", "3",
        "two trainings in one folder at once",
        10, train_twice, 120,
    ),
]  # fmt: skip
