"""Ctrl-C, readers that leave, full disks, closed streams, two that write one file, terminals."""

from __future__ import annotations

import json
import os
import pty
import random
import resource
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attacks.command import CLOSED, Ended, patient, run_process, start_forked
from attacks.folders import sign
from attacks.trial import Attack, Trial, Verdict, judge

DEADLINE = 4.0
"""Seconds from Ctrl-C to the end, on a machine that is not busy with other work."""


def is_prefix(trial: Trial, lines: list[bytes], right: list[str]) -> None:
    """Lines that were written are the first of the right ones, in order."""
    found = [line.decode() for line in lines]
    trial.check(found == right[: len(found)], f"lines that are not those of the file, from line {_first_difference(found, right)}")


def _first_difference(found: list[str], right: list[str]) -> int:
    return next((number for number, (a, b) in enumerate(zip(found, right, strict=False), 1) if a != b), len(right) + 1)


def translate_long(trial: Trial, engine: str, *more: str | Path) -> list[str | Path]:
    world = trial.world
    return [
        "translate",
        world.model("transformer"),
        world.home / "long",
        "--beam-size",
        "1",
        "--engine",
        engine,
        "--threads",
        "1",
        "-q",
        *more,
    ]


def interrupt(trial: Trial) -> str:
    """SIGINT or SIGTERM, once or twice, at a random moment of a long translation."""
    chance, engine = trial.chance, trial.chance.choice([*trial.world.right["engines"], "ctranslate2"])
    out = trial.folder / "out"
    to_file = chance.random() < 0.5
    running = start_forked(translate_long(trial, engine, *(["-o", out] if to_file else [])), trial.folder, to_the_end=True)
    time.sleep(chance.uniform(0.3, 2.5))
    number = chance.choice([signal.SIGINT, signal.SIGTERM])
    if os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        judge(running.wait(1))
        return "ended before"
    sent = time.monotonic()
    running.send(number)
    for _ in range(chance.choice([0, 0, 1, 3])):
        time.sleep(chance.random() * 0.5)
        if not os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            running.send(signal.SIGINT)
    ended = judge(running.wait(20))
    took = time.monotonic() - sent
    if ended.code == 0:
        return "ended before"
    # Before `main` listens, SIGTERM ends a process as it ends any. Of two signals that wait, Python hears the lower number first.
    allowed = {128 + number, -number} | {128 + each for each in running.sent}
    trial.check(ended.code in allowed, f"exit code {ended.code} after signal {number}: {ended.err[-300:]}")
    trial.check(took < patient(DEADLINE), f"{took:.1f} s after the signal", Verdict.HANG)
    trial.check(not ended.out or ended.out.endswith(b"\n"), "half a line was written")
    is_prefix(trial, ended.lines, trial.world.right[f"long-{engine}"])
    left = [path.name for path in trial.folder.iterdir() if path.name.startswith("out")]
    trial.check(not left or ended.code == -signal.SIGTERM, f"left behind: {left}")
    return f"ended in time, exit code {ended.code}"


def leave_early(trial: Trial) -> str:
    """The reader of a pipe leaves after some lines."""
    chance, engine = trial.chance, trial.chance.choice([*trial.world.right["engines"], "ctranslate2"])
    reading, writing = os.pipe()
    running = start_forked(translate_long(trial, engine), trial.folder, stdout=writing, to_the_end=True)
    os.close(writing)
    wanted, lines = chance.choice([0, 1, 10, 100, 1999, 2000, 2001, 3000]), []
    with open(reading, "rb") as stream:
        for _ in range(wanted):
            lines.append(stream.readline().removesuffix(b"\n"))
    ended = judge(running.wait(50))
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-300:]}")
    noise = [line for line in ended.err.splitlines() if not line.startswith(("line ", "and "))]
    trial.check(not noise, f"not quiet: {noise[:5]}")
    is_prefix(trial, lines, trial.world.right[f"long-{engine}"])
    return "quiet, exit code 0"


@contextmanager
def small_disk(trial: Trial, kilobytes: int) -> Iterator[tuple[Path, Any]]:
    """A file system with little space; where none can be mounted, a limit on the size of files."""
    home = trial.folder / "disk"
    home.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", home], capture_output=True, check=False)
    if done.returncode:
        yield home, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024,) * 2)
        return
    try:
        yield home, None
    finally:
        subprocess.run(["umount", "-l", home], check=False)


def fill_disk(trial: Trial) -> str:
    """No space on the disk at a random point: one sentence, what was there is still there, nothing half is left."""
    chance, world = trial.chance, trial.world
    size = chance.choice([4, 8, 20, 40, 80, 160, 300, 600])
    with small_disk(trial, size) as (home, limit):
        out = home / "out"
        out.write_text("old\n")
        commands: list[list[str | Path]] = [
            translate_long(trial, chance.choice(trial.world.right["engines"]), "-o", out),
            [
                "score",
                world.home / "few.src",
                world.home / "few.tgt",
                "--model",
                world.model("transformer"),
                "-o",
                out,
                "--threads",
                "1",
            ],
            ["average", world.home / "run", "-o", home / "mean"],
            ["train", world.recipe, "--out", home / "run", "-q"],
            ["look", world.model("transformer"), "The dog sees a tree today.", "-o", home / "page.html"],
            [
                "translate",
                world.model("transformer"),
                world.text,
                "-o",
                home / "new",
                "--report",
                home / "r.jsonl",
                "--threads",
                "1",
            ],
            ["generate", world.model("drawing"), "zero", "-o", home / "a.png", "--scale", "64"],
            ["classify", world.model("bert"), world.text, "-o", out],
            ["distill", world.model("transformer"), "--train", *world.pairs, "--out", home / "student", "--max-steps", "1", "-q"],
        ]
        command = chance.choice(commands)
        ended = trial.run(*command, before=limit, to_the_end=True, timeout=100)
        left = sorted(
            str(path.relative_to(home)) for path in home.rglob("*") if path.name.endswith("-part") or ".incoming." in path.name
        )
        old = out.read_text(encoding="utf-8") if out.exists() else ""
        if ended.code == 0:
            return "there was room"
        trial.check(
            ended.code == 1 and ("full" in ended.err or "too large" in ended.err or "space" in ended.err),
            f"exit code {ended.code}: {ended.err[-300:]}",
        )
        trial.check(not left, f"left behind: {left}")
        trial.check(old == "old\n", "the old file is gone", Verdict.LOST)
    return "one sentence, the old file is whole"


def close_streams(trial: Trial) -> str:
    """Any of stdin, stdout and stderr closed: no file takes their place; results that cannot be written are a failure."""
    chance, world, out = trial.chance, trial.world, trial.folder / "out"
    closed = [chance.random() < 0.5 for _ in range(3)]
    closed[chance.randrange(3)] = True
    to_file = chance.random() < 0.5
    from_stdin = chance.random() < 0.3
    command: list[str | Path] = ["translate", world.model("transformer"), "-" if from_stdin else world.text, "--threads", "1"]
    command += ["--engine", chance.choice(trial.world.right["engines"]), *(["-o", out] if to_file else [])]
    if chance.random() < 0.12:
        shell = "…" + "".join(text for text, is_closed in zip(("0<&- ", ">&- ", "2>&- "), closed, strict=True) if is_closed)
        ended = judge(run_process(command, trial.folder, shell=shell))
    else:
        how: dict[str, Any] = {
            name: CLOSED for name, is_closed in zip(("stdin", "stdout", "stderr"), closed, strict=True) if is_closed
        }
        ended = trial.run(*command, **how, to_the_end=True)
    if from_stdin and closed[0]:
        trial.check(ended.code == 1, f"read from nowhere: exit code {ended.code}")
        return "a closed stdin is a failure"
    written = out.read_text(encoding="utf-8").splitlines() if to_file and out.exists() else [line.decode() for line in ended.lines]
    if closed[1] and not to_file and not from_stdin:
        trial.check(ended.code == 1, f"results that went nowhere: exit code {ended.code}")
        return "a closed stdout is a failure"
    if from_stdin:
        return f"nothing to read, exit code {ended.code}"
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-300:]}")
    trial.check(written in [world.right[engine] for engine in world.right["engines"]], f"other lines: {written[:3]}")
    return "same lines"


def write_twice(trial: Trial) -> str:
    """Two commands write one file at once: it is the whole result of one of them, and nothing else is left."""
    chance, world, out = trial.chance, trial.world, trial.folder / "o" / "out"
    out.parent.mkdir()
    base: list[str | Path] = ["translate", world.model("transformer"), "-", "--threads", "1", "--engine", "torch", "-q", "-o", out]
    text = Path(world.text).read_text(encoding="utf-8").splitlines()
    parts = [text[: chance.randint(1, len(text))], text[chance.randrange(len(text)) :]]
    right = [world.right["torch"][: len(parts[0])], world.right["torch"][len(text) - len(parts[1]) :]]
    running = []
    for part in parts:
        running.append(start_forked(base, trial.folder, stdin="".join(f"{line}\n" for line in part).encode()))
        time.sleep(chance.random() * 0.2)
    doomed = chance.random() < 0.3
    if doomed:
        time.sleep(chance.random() * 0.5)
        if not os.waitid(os.P_PID, running[0].pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            running[0].send(signal.SIGKILL)
    ended = [judge(each.wait(60)) for each in running]
    codes = [each.code for each in ended]
    trial.check(codes[1] in (0, 2) and codes[0] in (0, 2, -9) and (0 in codes or -9 in codes), f"exit codes {codes}")
    if 0 not in codes:
        return "both ended early"
    found = out.read_text(encoding="utf-8").splitlines()
    # One that was killed may have written its file already.
    whole = [lines for lines, code in zip(right, codes, strict=True) if code in (0, -9)]
    trial.check(found in whole, f"{len(found)} lines, of neither of {[len(each) for each in right]}, {codes}", Verdict.LOST)
    if -9 in codes:
        # What a killed one left goes with the next that writes there.
        judge(start_forked(base, trial.folder, stdin=b"The dog.\n").wait(60))
    left = sorted(path.name for path in out.parent.iterdir())
    trial.check(left == ["out"], f"left behind: {left}")
    return "killed and cleaned up" if -9 in codes else "the result of one"


ESCAPES = [
    "\x1b]0;mine\x07",
    "\x1b[2J",
    "\u202e",
    "\x9b31m",
    "\x1b[6n",
    "\x08\x08",
    "\r",
    "\x1bP$q\x1b\\",
    "\x85",
    "\u2028",
    "\x00",
]


def plant(chance: random.Random, value: Any, share: float) -> Any:
    """The same value with escapes in some of its strings and keys."""
    if isinstance(value, dict):
        return {plant(chance, key, share / 4): plant(chance, each, share) for key, each in value.items()}
    if isinstance(value, list):
        return [plant(chance, each, share) for each in value]
    return f"{value}{chance.choice(ESCAPES)}" if isinstance(value, str) and chance.random() < share else value


def command_terminal(trial: Trial) -> str:
    """Escapes in strings of a folder, file names, texts, recipes and arguments: none reaches a terminal."""
    chance, world = trial.chance, trial.world
    evil = chance.choice([each for each in ESCAPES if each != "\x00"]).replace("/", "")
    kind = chance.choice(world.kinds)
    folder = world.copy(kind, trial.folder / f"m{evil}")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    share = chance.choice([0.02, 0.1, 1.0])
    config["facts"] = plant(chance, config["facts"], share)
    config["recipe"]["data"] = plant(chance, config["recipe"]["data"], share)
    if chance.random() < 0.2:
        config = plant(chance, config, 0.02)
    (folder / "config.json").write_text(json.dumps(config))
    sign(folder)
    text = trial.folder / f"text{evil}"
    text.write_text(
        "".join(f"{line}{chance.choice(ESCAPES[:-1])}\n" for line in ("The dog.", "a cat", "")), encoding="utf-8", newline="\n"
    )
    recipe = trial.folder / f"r{evil}.yaml"
    recipe.write_text(json.dumps(plant(chance, json.loads(Path(world.recipe).read_text()), 0.1)))
    commands: list[list[str | Path]] = [
        world.command(kind, folder),
        world.command(kind, folder),
        ["translate", folder, text, "--engine", "torch"],
        ["translate", folder, f"{evil} the dog"],
        ["look", folder, f"the dog {evil}"],
        ["score", text, text, "--model", folder],
        ["score", text, trial.folder / f"none{evil}"],
        ["train", recipe],
        ["plan", recipe],
        ["generate", folder, evil],
        ["classify", folder, text],
        ["average", folder, "-o", trial.folder / f"o{evil}"],
        [evil],
        ["translate", folder, f"--{evil}"],
        ["train", "--train", text, text, "--out", trial.folder / f"run{evil}", "--max-steps", "1", "--preset", "tiny"],
        ["paper", "parse", folder, text],
        ["import", folder, "-o", trial.folder / "i"],
        ["demo", "--pair", evil],
    ]
    command = chance.choice(commands)
    shown = run_in_terminal(trial, command)
    bad = sorted(set(shown) & set("\x1b\x07\x08\x9b\x85\u202e\u2028\x00"))
    trial.check(not bad, f"{bad} reached the terminal: {command}: {shown[-300:]!r}")
    trial.check("\r" not in shown.replace("\r\n", "\n"), f"a carriage return reached the terminal: {shown[-300:]!r}")
    return "nothing reached the terminal"


def run_in_terminal(trial: Trial, command: list[str | Path]) -> str:
    """What a terminal gets of a command."""
    master, slave = pty.openpty()
    env = {"TERM": "dumb", "NO_COLOR": "1"}
    running = start_forked(
        [each for each in command if "\x00" not in str(each)], trial.folder, stdin=CLOSED, stdout=slave, stderr=slave, env=env
    )
    os.close(slave)
    pieces: list[bytes] = []

    def collect() -> None:
        try:
            while piece := os.read(master, 65536):
                pieces.append(piece)
        except OSError:
            return

    reader = threading.Thread(target=collect, daemon=True)
    reader.start()
    ended = running.wait(60)
    reader.join(5)
    shown = b"".join(pieces).decode("utf-8", "replace")
    judge(Ended(ended.command, ended.code, b"", shown, hung=ended.hung))
    return shown


ATTACKS = [
    Attack(
        "Ctrl-C", "12",
        "SIGINT or SIGTERM, once or several times, at a random moment of 6,000 lines with every engine: the end within 4 "
        "s, exit code 130 or 143, the first lines in order, no half line, no file",
        24, interrupt,
    ),
    Attack(
        "readers that leave", "13",
        "`| head -N` for eight N, every engine: exit code 0, quiet, the first lines in order",
        20, leave_early, 90,
    ),
    Attack(
        "full disks", "13 24",
        "nine verbs on a disk of 4 to 600 kB: one sentence, the old file whole, nothing half",
        30, fill_disk, 130,
    ),
    Attack(
        "closed streams", "19",
        "stdin, stdout, stderr closed in all combinations, some in processes of their own",
        26, close_streams, 150,
    ),
    Attack(
        "two writers", "3 22",
        "two `translate -o` on one file, one of them killed in some: the whole result of one, nothing left behind",
        24, write_twice, 150,
    ),
    Attack(
        "terminal escapes", "8",
        "escapes in every string of a folder, file names, recipes, texts, arguments; every verb in a terminal",
        96, command_terminal, 90,
    ),
]  # fmt: skip
