"""Texts and recipes from a stranger: compressed in odd ways, bombs, very long lines, hostile recipes and flags."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from attacks.command import start_forked
from attacks.folders import change_bytes
from attacks.trial import Attack, Trial, judge

TOOLS = {"gz": "gzip", "xz": "xz", "zst": "zstd"}
MIB = 1 << 20


def pack(kind: str, content: bytes, level: int) -> bytes:
    return subprocess.run([TOOLS[kind], f"-{level}", "-cq"], input=content, capture_output=True, check=True).stdout


def random_text(chance: random.Random) -> bytes:
    size = chance.choice([0, 1, 10, 1000, 60_000, 400_000])
    return bytes(chance.choices(b"abcdefgh \n\n", k=size)) + b"\n" * chance.randint(0, 1)


def compare_tools(trial: Trial) -> str:
    """Joined, padded, cut and changed archives are read as the system's own tool reads them, or refused."""
    from undivided.core.errors import InputError
    from undivided.data.text_files import open_bytes, raw_lines

    chance, kind = trial.chance, trial.chance.choice([name for name, tool in TOOLS.items() if shutil.which(tool)])
    content = b""
    for _ in range(chance.randint(1, 4)):
        content += pack(kind, random_text(chance), chance.choice([1, 3, 9]))
        if kind != "zst" and chance.random() < 0.4:
            content += b"\0" * chance.choice([1, 3, 4, 4, 8, 8, 512, 65_532, 65_536, 65_540])
    roll = chance.random()
    if roll < 0.2:
        content = content[: chance.randrange(len(content) + 1)]
    elif roll < 0.4:
        content = change_bytes(chance, content)
    elif roll < 0.5:
        content += bytes(chance.randrange(256) for _ in range(chance.randint(1, 20)))
    path = trial.folder / f"a.{kind}"
    path.write_bytes(content)
    done = subprocess.run([TOOLS[kind], "-dcq", path], capture_output=True, check=False)
    try:
        with open_bytes(path) as stream:
            ours = stream.read()
        lines = list(raw_lines(path))
    except (InputError, EOFError, OSError, lzma.LZMAError) as error:
        ours, lines = None, [str(error).encode()]
    except Exception as error:
        if type(error).__name__ not in ("ZstdError", "error"):
            raise
        ours, lines = None, [str(error).encode()]
    if done.returncode == 0:
        trial.check(
            ours == done.stdout,
            f"{TOOLS[kind]} gives {len(done.stdout)} bytes, ours {None if ours is None else len(ours)}: {lines[:1]}",
        )
        return "same bytes"
    if ours is None:
        return "both refuse"
    # gzip calls members behind zeros garbage, and what is changed in a header's comment is nobody's loss: nothing may be missing.
    trial.check(ours.startswith(done.stdout) and kind == "gz", f"{TOOLS[kind]} refuses, ours gives {len(ours)} bytes")
    return "reads more than gzip"


def bomb(chance: random.Random, kind: str) -> bytes:
    """A few kilobytes that unpack to a gigabyte or more."""
    unit = chance.choice([b"\n", b"a\n", b"a" * MIB, b"\0" * MIB, b"the dog sees a tree today.\n", b" " * 200 + b"\n"])
    block = (unit * (MIB // len(unit) + 1))[:MIB]
    count = chance.choice([700, 1400])
    if kind == "gz":
        sink = io.BytesIO()
        with gzip.GzipFile(fileobj=sink, mode="wb", compresslevel=1) as stream:
            for _ in range(count):
                stream.write(block)
        return sink.getvalue()
    if kind == "xz":
        one = lzma.compress(block * 64, preset=1)
        return one * (count // 64)
    from undivided.data.text_files import zstd_module

    zstd = zstd_module()
    one = zstd.compress(block * 64)
    return one * (count // 64)


BOMB_SECONDS = 10
"""After so long a bomb that is still read is stopped with Ctrl-C."""


def explode(trial: Trial) -> str:
    """A bomb wherever a file is read: memory stays flat, and Ctrl-C ends it."""
    chance, world = trial.chance, trial.world
    kind = chance.choice(list(TOOLS))
    path = trial.folder / f"bomb.{kind}"
    path.write_bytes(bomb(chance, kind))
    out = trial.folder / "out"
    commands: list[list[str | Path]] = [
        ["translate", world.model("transformer"), path, "-o", out, "--threads", "1", "-q"],
        ["translate", world.model("transformer"), world.text, "--prefix", path, "--threads", "1", "-q"],
        ["score", path, path],
        ["score", world.text, path, "--model", world.model("transformer"), "--threads", "1"],
        ["classify", world.model("bert"), path, "--threads", "1"],
        ["classify", world.model("vision"), path, "--threads", "1"],
        ["score", path, world.home / "labels", "--model", world.model("vision"), "--threads", "1"],
        ["score", world.home / "images.idx", path, "--model", world.model("vision"), "--threads", "1"],
        ["score", path, "--model", world.model("gpt"), "--threads", "1"],
        ["train", "--train", path, path, "--out", out, "--max-steps", "1", "--preset", "tiny"],
        ["train", world.recipe, "--train", path, path, "--out", out, "--max-steps", "1"],
        ["train", world.recipe, "--valid", path, path, "--out", out, "--max-steps", "1"],
        ["plan", "--train", path, path],
        ["look", world.model("transformer"), "--corpus", path, path],
        ["distill", world.model("transformer"), "--train", path, path, "--out", out, "--max-steps", "1"],
        ["paper", "parse", world.model("transformer"), path],
    ]
    command = chance.choice(commands)
    running = start_forked(command, trial.folder)
    deadline = time.monotonic() + BOMB_SECONDS
    while time.monotonic() < deadline and not os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.02)
    if time.monotonic() >= deadline:
        running.send(signal.SIGINT)
        time.sleep(0.5)
        running.send(signal.SIGINT)
    ended = judge(running.wait(20))
    taken = ended.peak - world.right["base"]
    trial.check(taken < 700 * MIB, f"took {taken // MIB:,} MiB: {ended.command}")
    trial.check(not [each for each in trial.folder.iterdir() if each.name.endswith("-part")], "left a part of a file")
    return {0: "read", 2: "refused", 1: "refused", 130: "stopped by Ctrl-C"}.get(ended.code, f"exit code {ended.code}")


def long_lines(trial: Trial) -> str:
    """Very long and odd lines among others: one line out for each, the others as they are alone, no piece above the limit."""
    from undivided.inference.pieces import Limits  # noqa: F401
    from undivided.inference.translator import Translator

    chance, kind = trial.chance, trial.chance.choice(["transformer", "learned"])
    text = Path(trial.world.text).read_text(encoding="utf-8").splitlines()
    units = ["the dog ", "a", "漢", "🙂", "the dog sees a tree. ", "x" * 100, "\u0301", "…", "1", "<b>", " "]
    lines, long = [], 0
    for line in text:
        if chance.random() < 0.2 and long < 3:
            unit = "".join(chance.choices(units, k=chance.randint(1, 3)))
            lines.append(unit * (int(10 ** chance.uniform(1, 4)) // len(unit) + 1))
            long += 1
        lines.append(line)
    path = trial.folder / "in"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    translator = Translator(trial.world.model(kind), threads=1, engine="torch")
    most = translator.limits.longest
    for line in lines:
        for piece in translator.split(line):
            count = len(translator.artifact.tokenizer.source.encode([piece])[0])
            trial.check(count <= most, f"a piece of {count} tokens where {most} is the limit")
    ended = trial.run(
        "translate", trial.world.model(kind), path, "--threads", "1", "--engine", "torch", "-q", "--beam-size", "1", timeout=100
    )
    trial.check(ended.code == 0, f"exit code {ended.code}: {ended.err[-300:]}")
    trial.check(len(ended.lines) == len(lines), f"{len(ended.lines)} lines for {len(lines)}")
    return "one line for each"


SECTIONS = ["data", "tokens", "batches", "model", "train", "search", "preset", "x", "", "train.out"]
VALUES = [
    "!!bool foo",
    "!!timestamp foo",
    '!!int ""',
    '!!float ""',
    "!!set {a, b}",
    "!!binary aGk=",
    "!!python/object:os.system x",
    ".inf",
    "-.inf",
    ".nan",
    "1e999",
    "0x7fffffffffffffffffff",
    "1_000_000_000_000",
    "~",
    "[]",
    "{}",
    "[[[[[[[]]]]]]]",
    '"\\0"',
    '"\\ud800"',
    '"\\x1b[2J"',
    "2001-01-01",
    "1:30:00",
    "&a [*a]",
    "*a",
    "<<: {a: 1}",
    "? [a]",
    "- - - -",
    "|",
    ">",
    "'",
    '"',
    "\t",
    "%YAML 9.9",
    "yes",
    "no",
    "0o17",
    "true",
    "🙂",
    "١٢",
    "-1",
    "0",
    "1e30",
    "99999999999999999999999999",
    "[a, 1, {b: c}]",
    "!<tag:yaml.org,2002:str> a",
    "!local a",
    "@",
    "`",
]


def hostile_recipe(trial: Trial) -> str:
    """Recipes with tags, aliases, odd scalars, broken syntax and values of other types: a sentence, or a training of two steps."""
    from undivided.config import Recipe
    from undivided.config.settings import iter_settings

    chance = trial.chance
    names = [name for name, _, _ in iter_settings(Recipe)]
    base = json.loads(Path(trial.world.recipe).read_text())
    base["train"] |= {"out": str(trial.folder / "run"), "max_steps": 2}
    text = json.dumps(base, indent=1)
    roll = chance.random()
    if roll < 0.5:
        lines = [
            f"{section}:\n" + "".join(f"  {key}: {json.dumps(value)}\n" for key, value in base[section].items()) for section in base
        ]
        name = chance.choice(names).split(".")
        lines.append(f"{chance.choice([name[0], *SECTIONS])}:\n  {name[-1]}: {chance.choice(VALUES)}\n")
        chance.shuffle(lines)
        text = "".join(lines)
    elif roll < 0.8:
        content = bytearray(text.encode())
        for _ in range(chance.choice([1, 2, 5])):
            at = chance.randrange(len(content))
            content[at : at + chance.randint(0, 3)] = chance.choice(VALUES).encode("utf-8", "surrogatepass")
        text = content.decode("utf-8", "surrogateescape")
    else:
        for _ in range(chance.randint(1, 3)):
            key = chance.choice(list(base))
            inner = chance.choice(sorted(base[key])) if isinstance(base[key], dict) else "x"
            base[key] = chance.choice([None, [], 1, "a", True, {"x": 1}, [base[key]], {inner: [[["a"]]]}])
        text = json.dumps(base)
    path = trial.folder / "r.yaml"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return limited(trial, chance.choice([["train", path, "-q"], ["plan", path]]))


def limited(trial: Trial, command: list[str | Path]) -> str:
    """Run what may be long or large because a person asks for it: it ends by itself, by a sentence, or soon after Ctrl-C."""
    from attacks.command import limit_memory

    running = start_forked(command, trial.folder, cwd=trial.folder, before=lambda: limit_memory(6 << 30))
    deadline = time.monotonic() + 12
    while time.monotonic() < deadline and not os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
        time.sleep(0.01)
    if time.monotonic() >= deadline:
        running.send(signal.SIGINT)
        time.sleep(1)
        if not os.waitid(os.P_PID, running.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            running.send(signal.SIGINT)
    ended = judge(running.wait(25))
    return {0: "done", 2: "refused", 1: "a sentence", 130: "stopped by Ctrl-C"}.get(ended.code, f"exit code {ended.code}")


NUMBERS: list[Any] = [
    "nan",
    "inf",
    "-inf",
    "1e30",
    "-1",
    "0",
    "1",
    "2",
    "1e-300",
    "100000",
    str(2**31),
    str(2**63),
    str(10**400),
    "",
    " ",
    "0x10",
    "1_0",
    "½",
    "\udcff",
    "--",
    "true",
]


def hostile_flags(trial: Trial) -> str:
    """Any flag of any verb with values far outside its range."""
    from undivided.cli import make_parser

    chance, world = trial.chance, trial.world
    base: dict[str, list[str | Path]] = {
        "train": [world.recipe, "--out", trial.folder / "run", "--max-steps", "2", "-q"],
        "translate": [world.model("transformer"), world.text, "--threads", "1", "-q"],
        "score": [world.text, world.text, "--model", world.model("transformer"), "--threads", "1"],
        "generate": [world.model("gpt"), "the dog"],
        "classify": [world.model("bert"), world.text],
        "plan": [world.recipe],
        "look": [world.model("transformer"), "The dog sees."],
        "distill": [world.model("transformer"), "--train", *world.pairs, "--out", trial.folder / "student", "--max-steps", "1"],
        "average": [world.home / "run", "-o", trial.folder / "mean"],
    }
    verb = chance.choice(list(base))
    parser = make_parser()._subparsers._group_actions[0].choices[verb]  # type: ignore[union-attr, index]
    flags = [
        each
        for each in parser._actions
        if each.option_strings and each.dest not in ("help", "out", "output", "ray", "comet_python")
    ]
    command: list[str | Path] = [verb, *base[verb]]
    for _ in range(chance.choice([1, 1, 2])):
        flag = chance.choice(flags)
        command.append(flag.option_strings[-1])
        if flag.nargs != 0:
            command.append(chance.choice(NUMBERS))
    return limited(trial, command)


ATTACKS = [
    Attack(
        "compressed files", "4",
        "gz, xz and zst joined, padded, cut, changed: the bytes that `gzip`, `xz` and `zstd` give, or refused",
        700, compare_tools,
    ),
    Attack(
        "bombs", "bombs",
        "up to 1.4 GB in a few kilobytes of gz, xz or zst, wherever a verb reads a file: less than 700 MiB more memory, "
        "Ctrl-C ends it",
        24, explode, 90,
    ),
    Attack(
        "long lines", "21",
        "lines of up to 10,000 characters of odd text among others: one line for each, no piece longer than the model "
        "reads",
        24, long_lines, 150,
    ),
    Attack(
        "hostile recipes", "18",
        "tags, aliases, odd scalars, broken syntax, values of other types",
        500, hostile_recipe, 90,
    ),
    Attack(
        "hostile flags", "14",
        "any flag of nine verbs with NaN, infinity, 10³⁰, 2⁶³, nothing, half characters",
        160, hostile_flags, 90,
    ),
]  # fmt: skip
