"""Kill a training with SIGKILL at 50 random moments, many of them inside a save; nothing may be lost, and the end be the same.

    python benchmarks/resume.py [--kills 50] [--seed 1] [--processes 1 2] [--report docs/resume.md]

A tiny model is trained undisturbed. The same training is then started again and again, and killed at moments drawn from the seed:
inside a save (a tensor file half written, before or after a sync or the rename, while the model folder is replaced), or some
milliseconds after a step, wherever it is then. With two processes either one is killed, and the other must end by itself.

After each kill, every checkpoint that was complete must still be there and whole, or a newer one. At the end the logged losses of
all steps, the sha256 of weights, optimizer and averages, and the model folder's must equal those of the undisturbed run.

Processes are forks of this one, so that none has to load torch again.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn

# Imported by torch's optimizers when they are first used: here it is done once, and not in every fork.
import torch._dynamo  # noqa: F401
from damage import COLOURS, THINGS

from undivided.artifact import save as artifact
from undivided.artifact import weights
from undivided.core.console import Console, duration
from undivided.core.errors import UndividedError
from undivided.core.files import sha256_of
from undivided.inference.score import Score
from undivided.training import checkpoint
from undivided.training.loop import Trainer, train
from undivided.training.tasks import Validation
from undivided.training.tasks.translation import TranslationTask

ROOT = Path(__file__).resolve().parent.parent
STEPS, SAVE_EVERY, VALIDATE_EVERY = 150, 2, 6
PARTS = ("model", "optimizer", "ema", "random")
MOMENTS = {
    "checkpoint": [("write_tensors", "half", 4), ("write_tensors", "before", 4), ("fsync", "before", 8), ("fsync", "after", 8),
                   ("_finish_building", "before", 1), ("_finish_building", "after", 1), ("prune", "before", 1)],
    "model": [("write_tensors", "half", 1), ("fsync", "before", 8), ("fsync", "after", 8), ("open_atomic", "before", 5),
              ("_settle", "before", 2), ("_settle", "after", 2)],
}  # fmt: skip
"""Where within a save, of a checkpoint or of the model folder: a function, before or after one of its calls, or half written."""


class Kill(NamedTuple):
    """When a process dies."""

    where: str
    """`checkpoint` and `model` are inside a save, the first one from `step` on; `any` is `delay` seconds after that step."""
    step: int
    rank: int
    delay: float = 0.0
    function: str = ""
    when: str = ""
    call: int = 1


class Outcome(NamedTuple):
    """What became of the training in so many processes."""

    processes: int
    kills: dict[str, int]
    lost: int
    different: list[str]
    sums: dict[str, str]
    seconds: float


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def doomed(module: ModuleType, kill: Kill) -> None:
    """From now on, a call of a function of a module is the end."""
    real, left = getattr(module, kill.function), [kill.call]

    def call(*arguments: Any, **more: Any) -> Any:
        left[0] -= 1
        if left[0]:
            return real(*arguments, **more)
        if kill.when != "before":
            real(*arguments, **more)
        if kill.when == "half":
            with open(arguments[0], "r+b") as stream:
                stream.truncate(arguments[0].stat().st_size // 2)
        return die()

    setattr(module, kill.function, call)


def arrange(kill: Kill | None, rank: int) -> None:
    """In a process of its own: validation that finds every model better than the last, and the death inside a save."""
    now = [0]
    step = Trainer._step

    def stepping(self: Trainer, plans: Any) -> tuple[float, float, int]:
        now[0] = self.state.step + 1
        return step(self, plans)

    Trainer._step = stepping  # type: ignore[method-assign]
    TranslationTask.measure = lambda self: Validation(Score("BLEU", float(now[0] or STEPS), "made up"), {})  # type: ignore[method-assign]
    if kill is None or kill.rank != rank or kill.where == "any":
        return
    module, name = {"checkpoint": (checkpoint, "save"), "model": (artifact, "_export")}[kill.where]
    # The model folder's writer imports this one when it is called.
    module = weights if (kill.where, kill.function) == ("model", "write_tensors") else module
    real = getattr(Trainer, name)

    def saving(self: Trainer, *arguments: Any) -> None:
        if self.state.step >= kill.step:
            doomed(module, kill)
        real(self, *arguments)

    setattr(Trainer, name, saving)


@contextmanager
def leaving() -> Iterator[None]:
    """In a fork: do the work and exit, never returning to the code of its parent."""
    code = 1
    try:
        yield
        code = 0
    except (UndividedError, SystemExit) as error:
        print(error, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def work(recipe: dict[str, Any], kill: Kill | None, environment: dict[str, str], errors: Path) -> NoReturn:
    """In a fork: train."""
    with errors.open("a") as stream:
        os.dup2(stream.fileno(), 2)
    with leaving():
        os.environ.update(environment)
        arrange(kill, int(environment["RANK"]))
        train(recipe, Console(quiet=True))
    raise AssertionError("a fork has left")


def start(recipe: dict[str, Any], kill: Kill | None, processes: int) -> list[int]:
    """Train until the end or the kill; the exit codes, negative for a signal."""
    out = Path(recipe["train"]["out"])
    errors = out.with_suffix(".err")
    errors.write_text("")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    children = []
    for rank in range(processes):
        environment = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(processes)}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        child = os.fork()
        if not child:
            work(recipe, kill, environment, errors)
        children.append(child)
    if kill is not None and kill.where == "any":
        kill_after(children[kill.rank], out, kill)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if "Traceback" in errors.read_text() or (kill is None and any(codes)):
        raise SystemExit(f"{kill}: exit codes {codes}\n{errors.read_text()}")
    return codes


def kill_after(child: int, out: Path, kill: Kill) -> None:
    """Kill a process some milliseconds after it has logged a step."""
    log = out / "training" / "log.jsonl"
    begin = log.stat().st_size if log.exists() else 0
    while True:
        time.sleep(0.004)
        if log.exists() and log.stat().st_size > begin:
            with log.open("rb") as stream:
                stream.seek(begin)
                text = stream.read()
            if any(f'"event": "step", "step": {step},'.encode() in text for step in range(kill.step, kill.step + 8)):
                break
    time.sleep(kill.delay)
    os.kill(child, signal.SIGKILL)


def make_recipe(home: Path, out: Path) -> dict[str, Any]:
    """Everything random is on: dropout, subword sampling, and a running average beside."""
    pairs = [(f"A {c} {t}.", f"Ein {farbe}es {ding}.") for c, farbe in COLOURS.items() for t, ding in THINGS.items()]
    files = [home / "src", home / "tgt"]
    for side, path in enumerate(files):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    names = [str(path) for path in files]
    return {
        "data": {"train": [names], "valid": [names]},
        "tokens": {"vocab_size": 300, "dropout": 0.1},
        "batches": {"tokens": 60, "parts": 2},
        "model": {"d_model": 16, "d_ff": 32, "n_heads": 2, "encoder_layers": 1, "decoder_layers": 1, "dropout": 0.2},
        "train": {
            "out": str(out), "max_steps": STEPS, "save_every": SAVE_EVERY, "validate_every": VALIDATE_EVERY, "log_every": 1,
            "ema": 0.9, "threads": 1, "warmup_steps": 20, "keep_last": 3, "average": 2, "device": "cpu",
        },
    }  # fmt: skip


def draw(chance: random.Random, begin: int, processes: int, inside: bool) -> Kill:
    """When to kill: soon after the step that training resumes from."""
    step = min(begin + chance.randrange(1, 5), STEPS - VALIDATE_EVERY)
    if not inside:
        return Kill("any", step, chance.randrange(processes), chance.random() * 0.03)
    where = chance.choice(["checkpoint", "checkpoint", "model"])
    function, when, calls = chance.choice(MOMENTS[where])
    return Kill(where, step, 0, 0.0, function, when, chance.randrange(calls) + 1)


def newest_step(run: Path) -> int:
    """The step of the newest whole checkpoint, 0 if there is none."""
    found = checkpoint.newest(run / "training" / "checkpoints", Console(quiet=True, stream=io.StringIO()))
    return 0 if found is None else int(found.state["step"])


def logged(run: Path) -> list[dict[str, Any]]:
    """What was logged of steps, in order; a line that a kill cut off is none."""
    found = []
    for line in (run / "training" / "log.jsonl").read_text(encoding="utf-8").splitlines():
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if event["event"] == "step":
            found.append(event)
    return found


def losses(run: Path) -> dict[int, set[tuple[float, float]]]:
    """Of each step, all that was ever logged of it: once or, after a kill, again."""
    found: dict[int, set[tuple[float, float]]] = {}
    for event in logged(run):
        found.setdefault(event["step"], set()).add((event["loss"], event["rate"]))
    return found


def sums(run: Path) -> dict[str, str]:
    """sha256 of what the last checkpoint and the model folder hold."""
    last = run / "training" / "checkpoints" / f"step-{STEPS:09d}"
    found = {f"the checkpoint's {part}": sha256_of(last / f"{part}.safetensors") for part in PARTS}
    return found | {"the model folder's weights": sha256_of(run / "model.safetensors")}


def disturb(home: Path, whole: Path, processes: int, turns: list[bool], chance: random.Random) -> Outcome:
    """Kill a training again and again, then let it end; compare it with one that nobody disturbed."""
    began, run = time.monotonic(), home / "killed"
    recipe = make_recipe(home, run)
    counts: Counter[str] = Counter()
    lost = 0
    for number, inside in enumerate(turns, start=1):
        before = newest_step(run)
        kill = draw(chance, before, processes, inside)
        codes = start(recipe, kill, processes)
        if -signal.SIGKILL not in codes:
            raise SystemExit(f"kill {number}: {kill}: it did not come to that, exit codes {codes}")
        counts["inside" if inside else "any"] += 1
        # A step is logged before it is saved: what was saved up to the step before the last logged one was complete.
        complete = (logged(run)[-1]["step"] - 1) // SAVE_EVERY * SAVE_EVERY
        after = newest_step(run)
        lost += after < max(before, complete)
        print(f"{processes}: kill {number} of {len(turns)}: {kill}: step {before} → {after}", file=sys.stderr, flush=True)
    start(recipe, None, processes)
    different = [] if losses(whole) == losses(run) else ["the losses"]
    if sorted(losses(run)) != list(range(1, STEPS + 1)):
        different.append("the steps")
    found, expected = sums(run), sums(whole)
    different += [name for name, sha256 in expected.items() if found[name] != sha256]
    return Outcome(processes, counts, lost, different, found, time.monotonic() - began)


def describe(outcomes: list[Outcome], options: argparse.Namespace, seconds: float, proven: bool) -> str:
    verdict = "No checkpoint was lost, and every end was the same." if proven else "NOT PROVEN."
    rows = [
        f"| {each.processes} | {sum(each.kills.values())} | {each.kills.get('inside', 0)} | {each.lost} | "
        f"{'none' if not each.different else ', '.join(each.different)} | {duration(each.seconds)} |"
        for each in outcomes
    ]
    weights = [f"- {each.processes}: `{next(iter(each.sums.values()))}`" for each in outcomes]
    return "\n".join(
        [
            "# Resume: a training that is killed again and again",
            "",
            f"Written by `benchmarks/resume.py --kills {options.kills} --seed {options.seed}` (`make prove-resume`) on "
            f"{date.today().isoformat()}, in {duration(seconds)}.",
            "",
            f"**{verdict}** A tiny model ({STEPS} steps, a checkpoint every {SAVE_EVERY}, dropout, subword sampling, a running",
            "average) was trained undisturbed. The same training was killed with SIGKILL at moments drawn from the seed, and",
            "started again after each. Of two processes one is killed, and the other ends by itself.",
            "",
            "| processes | kills | of these inside a save | checkpoints lost | differences from the undisturbed run | took |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"Compared: the loss and the rate of each of the {STEPS} steps, of one that was taken again every time; the sha256 of "
            f"{', '.join(outcomes[0].sums)}.",
            "Inside a save is: a tensor file half written, before or after a sync or the rename, before old checkpoints are",
            "removed, while the model folder is replaced. The others come up to 30 milliseconds after a step, wherever it is then.",
            "",
            "sha256 of the last checkpoint's weights, by number of processes:",
            "",
            *weights,
        ]
    )


def prove_in_fork(home: Path, processes: int, options: argparse.Namespace) -> tuple[int, Path]:
    """Begin the proof for so many processes beside this one: its process, and the file where its outcome will be."""
    path = home / f"{processes}.json"
    child = os.fork()
    if child:
        return child, path
    with leaving():
        folder = home / str(processes)
        folder.mkdir()
        chance = random.Random(options.seed)
        start(make_recipe(folder, folder / "whole"), None, processes)
        turns = [number < options.kills * 2 // 5 for number in range(options.kills)]
        chance.shuffle(turns)
        outcome = disturb(folder, folder / "whole", processes, turns, chance)
        path.write_text(json.dumps(outcome._asdict()))
    raise AssertionError("a fork has left")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--report", default=str(ROOT / "docs" / "resume.md"))
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        # Side by side: where there are two cores, it takes half the time.
        results = [prove_in_fork(Path(name), processes, options) for processes in options.processes]
        if any(os.waitpid(child, 0)[1] for child, _ in results):
            raise SystemExit("a proof broke off; see above")
        outcomes = [Outcome(**json.loads(path.read_text())) for _, path in results]
    proven = not any(each.lost or each.different for each in outcomes)
    text = describe(outcomes, options, time.monotonic() - began, proven)
    print(text)
    Path(options.report).write_text(text + "\n", encoding="utf-8")
    raise SystemExit(not proven)


if __name__ == "__main__":
    main()
